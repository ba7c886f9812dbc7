// SPDX-License-Identifier: GPL-2.0

//! A transport ([`Client`]): what the RPC client asks for, and who does it.

use crate::{
    connection::{
        credits::abandon,
        Connection, //
    },
    counters::Stats,
    driver::Rdma,
    link::{
        keepalive::Beat,
        Link, //
    },
    observe::{
        debugfs,
        mountstats, //
    },
    params,
    rpc::{
        callback::{
            self,
            CALLBACK_SLOTS, //
        },
        invalidate::revoke,
        request::Request,
        send,
        shape::{
            check,
            SMALL_REGION, //
        },
    },
};
use core::net::SocketAddr;
use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    },
};
use xprtrdma_proto::conn::{
    Epoch,
    Event, //
};
use xprtrdma_rdma::{
    marked::Marked,
    qp::Qp, //
};
use xprtrdma_sunrpc::{
    callback::Callback,
    call::{
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    common::Common,
    transport::{
        Create,
        Limits,
        NotSent,
        Transport, //
    },
    util::{
        may_log,
        Jiffies, //
    },
    xprt::{
        ConnectLock,
        SendLock,
        Xprt, //
    },
};

/// One transport.
#[pin_data]
pub(crate) struct Client {
    pub(crate) link: Arc<Link>,
    /// The connection, for those who do not hold the send lock.
    #[pin]
    pub(crate) current: SpinLock<Option<Arc<Qp<Connection>>>>,
    /// Our address on the present or last connection.
    #[pin]
    pub(crate) local: SpinLock<Option<SocketAddr>>,
    /// Longest callback and callback reply on the present or last connection, in octets.
    pub(crate) callback_size: Atomic<u32>,
    /// Most pages in a region of the present or last connection.
    pub(crate) region_pages: Atomic<u32>,
    /// Largest messages sent and received without RDMA so far, in octets.
    inline_sizes: (Atomic<u32>, Atomic<u32>),
    pub(crate) stats: Stats,
    /// Looks after the present connection.
    #[pin]
    pub(crate) beat: SpinLock<Option<Arc<Beat>>>,
    #[pin]
    debug: Mutex<Option<Pin<KBox<debugfs::Files>>>>,
}

impl Client {
    /// The sizes of the largest messages without RDMA on a connection that is made now, sent and
    /// received: never less than before, for an NFSv4.1 session was promised the callbacks that
    /// its first connection could carry. Attempts come one after the other.
    pub(crate) fn inline_sizes(&self) -> (u32, u32) {
        let grown = |kept: &Atomic<u32>, wanted: u32| {
            let size = wanted.max(kept.load(Relaxed));
            kept.store(size, Relaxed);
            size
        };
        let (out, back) = params::inline_sizes();
        (
            grown(&self.inline_sizes.0, out),
            grown(&self.inline_sizes.1, back),
        )
    }

    /// Ends a call that cannot be carried at all (V1-097).
    pub(crate) fn refuse(&self, call: &Call<'_, Rdma>, error: xprtrdma_proto::Error) {
        self.tell_of_refused(call, error);
        // Nothing was mapped, so nothing is lent.
        let _ = call.fail(Error::from_errno(error.to_errno()));
    }

    pub(crate) fn tell_of_refused(&self, call: &Encoded<'_, Rdma>, error: xprtrdma_proto::Error) {
        self.stats.failed_marshal.add(1);
        if may_log() {
            let (message, reply) = (call.message(), call.reply());
            pr_warn!(
                "a request of {} bytes with a reply of up to {} bytes cannot be carried: {error:?}\n",
                message.len(),
                reply.capacity()
            );
        }
    }
}

impl Transport for Rdma {
    type Data = Client;
    /// The connection, for those who hold the send lock. It may have ended: see [`Link`].
    type Locked = Option<Arc<Qp<Connection>>>;
    type Call = Request;

    const CALLBACK_SLOTS: u16 = CALLBACK_SLOTS;

    fn limits(create: &Create) -> Result<Limits> {
        Ok(Limits {
            slots: params::slots(),
            max_payload: params::max_payload(params::region_pages()),
            rpc_timeout_ms: 60_000,
            connect_timeout_ms: create.connect_timeout_ms.unwrap_or(60_000),
            reconnect_timeout_ms: create.reconnect_timeout_ms.unwrap_or(60_000),
        })
    }

    fn new(create: &Create, common: &Arc<Common>) -> impl PinInit<Client, Error> {
        try_pin_init!(Client {
            link: Link::new(common.clone(), create, &Self::limits(create)?)?,
            current <- new_spinlock!(None, "Client::current"),
            local <- new_spinlock!(None, "Client::local"),
            callback_size: Atomic::new(1024 - 28),
            region_pages: Atomic::new(u32::MAX),
            inline_sizes: (Atomic::new(0), Atomic::new(0)),
            stats: Stats::new(),
            beat <- new_spinlock!(None, "Client::beat"),
            debug <- new_mutex!(None, "Client::debug"),
        })
    }

    fn new_call() -> impl PinInit<Request, Error> {
        Request::new()
    }

    fn start(xprt: &Xprt<Self>) -> Result {
        let files = debugfs::files(xprt)?;
        *xprt.data().debug.lock() = Some(files);
        Ok(())
    }

    fn connect(lock: ConnectLock<Self>) {
        let link = lock.xprt().data().link.clone();
        link.connect(lock);
    }

    fn close(lock: &mut SendLock<'_, Self>) {
        let link = lock.xprt().data().link.clone();
        link.close(lock, false);
    }

    // Into its one caller.
    #[inline(always)]
    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        match lock.state() {
            Some(qp) => send::send_call(xprt, qp, call),
            None => Err(NotSent::NotConnected),
        }
    }

    fn attend(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>) {
        // The reply may have come.
        if waiting.is_over() {
            return;
        }
        let current = xprt.data().current.lock().clone();
        if let Some(qp) = current {
            qp.handler().attend(&qp, waiting);
        }
    }

    fn send_callback_reply(
        lock: &mut SendLock<'_, Self>,
        callback: &Callback<'_>,
    ) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        match lock.state() {
            Some(qp) => callback::send_callback_reply(xprt, qp, callback),
            None => Err(NotSent::NotConnected),
        }
    }

    #[inline]
    fn check(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Result {
        // Only a device with small regions has calls that cannot be carried.
        if xprt.data().region_pages.read_once() >= SMALL_REGION {
            return Ok(());
        }
        check(xprt, call)
    }

    #[inline]
    fn revoke(xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving) {
        // As a rule its reply has come.
        if call.slot().call().is_at_work() {
            revoke(xprt, call, leaving);
        }
    }

    #[inline]
    fn abandon(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Option<u32> {
        // Not the call's state: its lock is taken before the transport's.
        let request = call.slot().call();
        if request.owed_on.read_once() == Epoch::NONE.raw() {
            return None;
        }
        // The reply may be coming just now.
        abandon(xprt, request.take_owed())
    }

    fn timed_out(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) {
        let sent_on = call.slot().call().state.lock().epoch;
        let link = &xprt.data().link;
        let (epoch, cookie) = link.with_conn(|conn| (conn.epoch(), conn.cookie()));
        // A timer says nothing about a connection that never carried the call.
        if sent_on == epoch && call.sent_on_this_connection(xprt) {
            link.react(xprt, Event::RpcTimeout { cookie });
        }
    }

    fn lower_timeouts(xprt: &Xprt<Self>, connect: Jiffies, reconnect: Jiffies) {
        xprt.data().link.lower_timeouts(connect, reconnect);
    }

    fn stop(lock: &mut SendLock<'_, Self>) {
        let xprt = lock.xprt();
        let files = xprt.data().debug.lock().take();
        drop(files);
        let link = xprt.data().link.clone();
        link.close(lock, true);
    }

    fn show_stats(xprt: &Xprt<Self>, m: &SeqFile) {
        mountstats::show(xprt, m);
    }

    fn local_addr(xprt: &Xprt<Self>) -> Option<SocketAddr> {
        *xprt.data().local.lock()
    }

    fn start_callbacks(xprt: &Xprt<Self>) -> Result {
        xprt.data().link.bind_backchannel(xprt);
        Ok(())
    }

    fn callback_size(xprt: &Xprt<Self>) -> usize {
        let size = xprt.data().callback_size.load(Relaxed) as usize;
        size.min(kernel::page::PAGE_SIZE)
    }
}

/// Ends the connection because a test or an administrator wants it.
pub(crate) fn force_disconnect(xprt: &Xprt<Rdma>) {
    xprt.data().link.force(xprt);
}
