// SPDX-License-Identifier: GPL-2.0

//! The operations that the RPC server calls.

use crate::{
    call::Call,
    connection::Connection,
    driver::Rdma,
    listener::{
        self,
        Owner, //
    },
    memory::Counted,
    receive::Handler,
    sizes::{
        CALLBACKS,
        SHOWN, //
    }, //
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::served::cause::Cause;
use xprtrdma_rdma::{
    pages::Pages,
    qp::{
        Held,
        Qp, //
    }, //
};
use xprtrdma_svc::{
    bell::Bell,
    reply::Reply,
    reverse::{
        NotSent,
        Outgoing, //
    },
    service::{
        Accepted,
        Listening,
        Service, //
    },
    sysctl::Sizes,
    util::Net, //
};

impl Service for Rdma {
    type Listener = Owner;
    type Connection = Connection;
    type Message = Held<Handler>;
    type Pages = Pages;
    type Call = Call;
    type Debt = Option<Counted>;
    type Sender = Arc<Qp<Handler>>;

    const CALLS: u32 = CALLBACKS as u32;
    const SIZES: Sizes = SHOWN;

    fn listen(net: &Net, addr: &SocketAddr, bell: Bell) -> Result<Listening<Self>> {
        let listener = listener::listen(net, addr, bell)?;
        let local = listener.local_addr();
        Ok(Listening { listener, local })
    }

    fn accept(listener: &Owner, longest_call: u32) -> Option<Accepted<Self>> {
        listener::follow_address(listener);
        let request = listener.take()?;
        Connection::accept(listener.handler(), request, longest_call)
    }

    fn reject(listener: &Owner) {
        listener::follow_address(listener);
        listener.handler().reject(listener.take());
    }

    fn has_requests(listener: &Owner) -> bool {
        listener.is_waiting()
    }

    fn close(listener: &Owner) {
        listener.close();
    }

    // This function, `result`, `over`, `settle` and `QpHandler::received` are inlined into their
    // callers, which are C callbacks.
    #[inline(always)]
    fn reply(
        connection: &Connection,
        call: &mut Call,
        front: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result {
        connection.reply(call, front, reply)
    }

    #[inline(always)]
    fn result(call: &mut Call, front: &[u8], from: u32, len: u32) -> Result {
        call.mark(front, from, len)
    }

    #[inline(always)]
    fn over(connection: &Connection, call: &mut Call) -> Option<Counted> {
        connection.over(call)
    }

    #[inline(always)]
    fn settle(connection: &Connection, counted: Option<Counted>) {
        if let Some(counted) = counted {
            connection.give_back(counted);
        }
    }

    fn detach(connection: &Connection) {
        connection.detach();
    }

    fn sender(connection: &Connection) -> Self::Sender {
        connection.qp.handler().callbacks.allow();
        connection.qp.clone()
    }

    fn longest_outgoing(sender: &Self::Sender) -> usize {
        sender.handler().callbacks.longest()
    }

    fn call(sender: &Self::Sender, call: &Outgoing<'_>) -> Result<(), NotSent> {
        sender.handler().callbacks.call(sender, call)
    }

    fn hang_up(sender: &Self::Sender) {
        sender.handler().events.end(Cause::Callbacks);
    }
}
