// SPDX-License-Identifier: GPL-2.0

//! A transport ([`Client`]). It implements the operations that the RPC client calls, and passes
//! each operation to another module of this crate.

use crate::{
    connection::{
        Connection,
        CALLBACK_SLOTS, //
    },
    driver::Rdma,
    link::Link,
    observe::{
        debugfs,
        mountstats, //
    },
    params,
    rpc::{
        self,
        Request,
        SMALL_REGION, //
    },
};
use core::net::SocketAddr;
use kernel::{
    new_mutex,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        Arc,
        Mutex, //
    },
};
use xprtrdma_proto::{
    conn::{
        Config,
        Conn,
        Event,
        RpcTimer, //
    },
    time::Millis, //
};
use xprtrdma_rdma::qp::Qp;
use xprtrdma_sunrpc::{
    call::{
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    callback::Callback,
    common::Common,
    transport::{
        Create,
        Limits,
        NotSent,
        Transport, //
    },
    util::Jiffies,
    xprt::{
        ConnectLock,
        SendLock,
        Xprt, //
    },
};

/// The driver's state of one transport.
#[pin_data]
pub(crate) struct Client {
    link: Arc<Link>,
    #[pin]
    files: Mutex<Option<debugfs::Files>>,
}

impl Transport for Rdma {
    type Data = Client;
    /// The connection that the holder of the send lock uses. This connection may have ended: see
    /// [`Link`].
    type Locked = Option<Arc<Qp<Connection>>>;
    type SlotData = Request;

    const CALLBACK_SLOTS: u16 = CALLBACK_SLOTS;

    fn limits(create: &Create) -> Result<Limits> {
        // CAST: The cast cannot truncate: the limit is a minute, in milliseconds.
        let connect = Config::default().connect_timeout.get() as u32;
        Ok(Limits {
            slots: params::slots(),
            max_payload: params::max_payload(params::region_pages()),
            rpc_timeout_ms: 60_000,
            connect_timeout_ms: create.connect_timeout_ms.unwrap_or(connect),
            reconnect_timeout_ms: create.reconnect_timeout_ms.unwrap_or(60_000),
        })
    }

    fn new(create: &Create, common: &Arc<Common>) -> impl PinInit<Client, Error> {
        try_pin_init!(Client {
            link: Link::new(common.clone(), create, &Self::limits(create)?)?,
            files <- new_mutex!(None, "Client::files"),
        })
    }

    fn new_slot_data() -> impl PinInit<Request, Error> {
        Request::new()
    }

    fn start(xprt: &Xprt<Self>) -> Result {
        let client = xprt.data();
        let files = debugfs::files(xprt, &client.link)?;
        *client.files.lock() = Some(files);
        Ok(())
    }

    fn connect(lock: ConnectLock<Self>) {
        let link = lock.xprt().data().link.clone();
        link.connect(lock);
    }

    fn close(lock: &mut SendLock<'_, Self>) {
        let link = lock.xprt().data().link.clone();
        link.close(lock);
    }

    // This function is inlined, because it has only one caller.
    #[inline(always)]
    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent> {
        match lock.state() {
            Some(qp) => rpc::send_call(qp, call),
            None => Err(NotSent::NotConnected),
        }
    }

    // This function is inlined, because it has only one caller.
    #[inline(always)]
    fn busy_poll(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>) {
        if let Some(qp) = xprt.data().link.current() {
            qp.handler().busy_poll(&qp, waiting);
        }
    }

    fn send_callback_reply(
        lock: &mut SendLock<'_, Self>,
        callback: &Callback<'_>,
    ) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        match lock.state() {
            Some(qp) => rpc::send_callback_reply(xprt, qp, callback),
            None => Err(NotSent::NotConnected),
        }
    }

    #[inline]
    fn check(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Result {
        // A call can be too large for the transport only if the memory regions of the device are
        // small. Otherwise no check is needed.
        let link = &xprt.data().link;
        if link.region_pages() >= SMALL_REGION {
            return Ok(());
        }
        match link.current() {
            Some(qp) => rpc::check(&qp, call),
            None => Ok(()),
        }
    }

    #[inline]
    fn revoke(xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving) {
        // Usually the reply has already arrived, so there is nothing to revoke.
        if call.slot().driver_data().is_at_work() {
            let link = &xprt.data().link;
            rpc::revoke(xprt, || link.current(), call, leaving);
        }
    }

    #[inline]
    fn abandon(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Option<u32> {
        // The state of the call is not read here. Reading it would need the call's lock, which must
        // be taken before the transport's lock. This thread already holds the transport's lock.
        let request = call.slot().driver_data();
        if !request.is_owed() {
            return None;
        }
        // `take_owed` returns the number of the connection that owes the reply, but only to its
        // first caller. The reply may arrive at this moment, and the reply handler also calls
        // `take_owed`. If the reply handler gets the number, the call is not counted as abandoned.
        let owed_on = request.take_owed();
        xprt.data()
            .link
            .with_current(|conn| (conn.epoch().raw() == owed_on).then(|| conn.abandon()))
    }

    fn timed_out(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) {
        let sent_on = call.slot().driver_data().sent_on();
        let link = &xprt.data().link;
        let look = |conn: &Conn| (conn.epoch(), conn.cookie());
        let (epoch, cookie) = link.machine().with_conn(look);
        // If the connection never carried the call, the call's timer says nothing about the
        // connection.
        if sent_on == epoch && call.sent_on_this_connection(xprt) {
            let heard = link.with_current(|conn| Some(conn.heard()));
            let timer = RpcTimer {
                span: Millis::new(call.timer_span().as_ms().into()),
                // If the connection no longer exists, its state machine ignores the event. So the
                // default value of `heard` (the time of the last message) does no harm.
                heard: heard.unwrap_or_default(),
            };
            link.react(xprt, Event::RpcTimeout { cookie, timer });
        }
    }

    fn lower_timeouts(xprt: &Xprt<Self>, connect: Jiffies, reconnect: Jiffies) {
        xprt.data().link.lower_timeouts(connect, reconnect);
    }

    fn stop(lock: &mut SendLock<'_, Self>) {
        let xprt = lock.xprt();
        let files = xprt.data().files.lock().take();
        drop(files);
        let link = xprt.data().link.clone();
        link.shut_down(lock);
    }

    fn show_stats(xprt: &Xprt<Self>, m: &SeqFile) {
        mountstats::show(xprt, xprt.data().link.services().counters(), m);
    }

    fn local_addr(xprt: &Xprt<Self>) -> Option<SocketAddr> {
        xprt.data().link.local_addr()
    }

    fn start_callbacks(xprt: &Xprt<Self>) -> Result {
        xprt.data().link.bind_backchannel(xprt);
        Ok(())
    }

    fn callback_size(xprt: &Xprt<Self>) -> usize {
        let size = xprt.data().link.callback_size();
        size.min(kernel::page::PAGE_SIZE)
    }
}
