// SPDX-License-Identifier: GPL-2.0

//! The operations of the RPC server.

use crate::{
    call::Call,
    connection::Connection,
    driver::Rdma,
    listener::{
        self,
        Listener, //
    },
    receive::Handler, //
};
use core::net::SocketAddr;
use kernel::prelude::*;
use xprtrdma_rdma::{
    pages::Pages,
    qp::Held, //
};
use xprtrdma_svc::{
    bell::Bell,
    reply::Reply,
    service::{
        Accepted,
        Listening,
        Service, //
    },
    util::Net, //
};

impl Service for Rdma {
    type Listener = Listener;
    type Connection = Connection;
    type Message = Held<Handler>;
    type Pages = Pages;
    type Call = Call;

    fn listen(net: &Net, addr: &SocketAddr, bell: Bell) -> Result<Listening<Self>> {
        let listener = listener::listen(net, addr, bell)?;
        let local = listener.local_addr().ok_or(EINVAL)?;
        Ok(Listening { listener, local })
    }

    fn accept(listener: &Listener, longest_call: u32) -> Option<Accepted<Self>> {
        let request = listener.take()?;
        Connection::accept(listener.handler(), request, longest_call)
    }

    fn has_requests(listener: &Listener) -> bool {
        listener.is_waiting()
    }

    fn close(listener: &Listener) {
        listener.close();
    }

    fn reply(connection: &Connection, call: &mut Call, front: &[u8], reply: &Reply<'_>) -> Result {
        connection.reply(call, front, reply)
    }

    fn result(call: &mut Call, front: &[u8], from: u32, len: u32) -> Result {
        call.mark(front, from, len)
    }

    fn over(connection: &Connection, call: Call) {
        connection.over(call);
    }

    fn detach(connection: &Connection) {
        connection.detach();
    }
}
