// SPDX-License-Identifier: GPL-2.0

//! A transport ([`Client`]): what the RPC client asks for, and who does it.

use crate::{
    beat::Beat,
    debug,
    endpoint::Connection,
    link::Link,
    params,
    request::{
        Phase,
        Request, //
    },
    send,
    stats::{
        self,
        Stats, //
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
use xprtrdma_proto::{
    conn::{
        Epoch,
        Event, //
    },
    credit::ForwardCredits,
    Credits, //
};
use xprtrdma_rdma::marked::Marked;
use xprtrdma_sunrpc::{
    backchannel::Callback,
    call::{
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    common,
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

/// Requests of the server that are served at a time.
pub(crate) const CALLBACK_SLOTS: u16 = 16;

/// What we grant the server for its requests (BC-04).
pub(crate) fn callback_credits() -> Credits {
    Credits(CALLBACK_SLOTS.into())
}

/// Regions of so many pages and more can carry whatever the RPC client may ask for.
const SMALL_REGION: u32 = 64;

/// The RPC client's window for our credits.
pub(crate) fn cwnd(credits: &ForwardCredits) -> u32 {
    // CAST: We never ask for more credits than a transport has slots, and get no more than that.
    credits.cwnd() as u32
}

/// One transport.
#[pin_data]
pub(crate) struct Client {
    pub(crate) link: Arc<Link>,
    /// The connection, for those who do not hold the send lock.
    #[pin]
    pub(crate) current: SpinLock<Option<Arc<Connection>>>,
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
    debug: Mutex<Option<Pin<KBox<debug::Files>>>>,
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
    pub(crate) fn refuse(&self, call: &Call<'_, Self>, error: xprtrdma_proto::Error) {
        self.tell_of_refused(call, error);
        // Nothing was mapped, so nothing is lent.
        let _ = call.fail(Error::from_errno(error.to_errno()));
    }

    fn tell_of_refused(&self, call: &Encoded<'_, Self>, error: xprtrdma_proto::Error) {
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

impl Transport for Client {
    /// The connection, for those who hold the send lock. It may have ended: see [`Link`].
    type Locked = Option<Arc<Connection>>;
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

    fn new(create: &Create) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            link: Link::new(common::get()?, create, &Self::limits(create)?)?,
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
        let files = debug::files(xprt)?;
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

    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        match lock.state() {
            Some(conn) => send::send_call(xprt, conn, call),
            None => Err(NotSent::NotConnected),
        }
    }

    fn attend(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>) {
        // The reply may have come.
        if waiting.is_over() {
            return;
        }
        let current = xprt.data().current.lock().clone();
        if let Some(conn) = current {
            conn.handler().attend(&conn, waiting);
        }
    }

    fn send_callback_reply(
        lock: &mut SendLock<'_, Self>,
        callback: &Callback<'_>,
    ) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        match lock.state() {
            Some(conn) => send::send_callback_reply(xprt, conn, callback),
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
        stats::show(xprt, m);
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

/// Whether a call can be carried on the present connection.
#[cold]
fn check(xprt: &Xprt<Client>, call: &Encoded<'_, Client>) -> Result {
    let current = xprt.data().current.lock().clone();
    match current {
        Some(conn) => send::plan_call(&conn, call, conn.handler().thresholds())
            .map(|_| ())
            .map_err(|error| {
                xprt.data().tell_of_refused(call, error);
                Error::from_errno(error.to_errno())
            }),
        None => Ok(()),
    }
}

/// A call ends whose reply the connection with the number `owed_on` still owes.
#[cold]
fn abandon(xprt: &Xprt<Client>, owed_on: u32) -> Option<u32> {
    // No reference is taken: the last one must not be dropped here.
    let current = xprt.data().current.lock();
    let endpoint = current.as_ref()?.handler();
    if endpoint.epoch.raw() != owed_on {
        return None;
    }
    let mut credits = endpoint.state.credits.lock();
    credits.abandon();
    Some(cwnd(&credits))
}

/// For how long the task of a call that ends without its reply waits for that, in milliseconds.
const LINGER_MS: u32 = 1000;

/// Takes the memory of a call back that was sent and is not over.
///
/// As a rule its process was killed, and the server is at work on it. If the server writes to memory that
/// was taken back, its queue pair and ours fail, and everybody who uses the mount waits for the next
/// connection; and a server that answers within milliseconds does so nearly every time. So the reply is
/// given some time.
///
/// The memory does not stay exposed any longer than the call exists: pages of the page cache or of the
/// process would be used for something else while the server could still read or write them. So the
/// task waits, which nobody sees: its process is at its end. It holds its slot meanwhile, and what its
/// process holds, such as the lock of a directory, which is why it is not given more than a second. Nobody
/// but tasks of processes waits ([`Leaving::linger`]), and only while there is the connection that owes the
/// reply: the end of that takes the regions, and so ends the wait.
#[cold]
fn revoke(xprt: &Xprt<Client>, call: &Encoded<'_, Client>, leaving: Leaving) {
    let request = call.slot().call();
    let (exposed, epoch) = {
        let state = request.state.lock();
        (!state.regions.is_empty(), state.epoch)
    };
    let is_current = |conn: &Arc<Connection>| conn.handler().epoch == epoch;
    let current = || xprt.data().current.lock().clone().filter(is_current);
    if exposed && xprt.is_connected() && current().is_some() {
        // See `Endpoint::departed` for the reply.
        leaving.linger(call, LINGER_MS);
    }
    {
        let mut state = request.state.lock();
        if state.regions.is_empty() {
            request.set_phase(&mut state, Phase::Idle);
            return;
        }
        if state.phase == Phase::Revoked {
            // The reply has come, and what it left is being invalidated.
            return;
        }
        request.set_phase(&mut state, Phase::Revoked);
    }
    // A connection that is not there any more, or not yet gone, takes care of its regions: its
    // end looks at every slot.
    if let Some(conn) = current() {
        let endpoint = conn.handler();
        endpoint.react(Event::MemoryRevoked(epoch));
        endpoint.invalidate(&conn, call.slot().index());
    }
}

/// Ends the connection because a test or an administrator wants it.
pub(crate) fn force_disconnect(xprt: &Xprt<Client>) {
    xprt.data().link.force(xprt);
}
