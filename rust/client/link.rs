// SPDX-License-Identifier: GPL-2.0

//! The connections of a transport ([`Link`]): the one that there is, and what lasts from one to
//! the next.
//!
//! [`attempt`] makes a connection: it performs what the connection machine asks for. [`keepalive`]
//! looks after it. [`rails`] sees to the way that it takes, [`probe`] to ways that did not work,
//! [`port_events`] hears what its device tells. [`teardown`] ends it, in this order:
//!
//! 1. the queue pair is disconnected and drained, so no handler runs any more, nothing is posted,
//!    and the server reaches nothing;
//! 2. each slot gives up the regions of this connection to the pool, which ends the loans of the
//!    request's memory; a reply that had arrived and only waited for that completes its call;
//! 3. the send path and the request paths lose sight of it (send lock, [`Link::current`]), which
//!    is first if nothing was faster than [`Link::close`];
//! 4. the queue pair is destroyed, then the pool's regions are;
//! 5. the completion queue, the rings, the device's events, the protection domain and the id.
//!
//! With rails only the end of the transport waits for the last two: the device of a rail that
//! died may take its time.
//!
//! In between senders find the send queue closed, and their mapped regions go back to the pool.

mod attempt;
mod cm_events;
mod keepalive;
mod port_events;
mod probe;
mod rails;
mod teardown;

use crate::{
    connection::{
        Connection,
        Machine,
        Services, //
    },
    driver::Rdma,
    machine::Todo,
    params,
    server::{
        Place,
        Server, //
    }, //
};
use core::net::SocketAddr;
use kernel::{
    impl_has_delayed_work, impl_has_work, new_delayed_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        DelayedWork,
        Work, //
    },
};
use xprtrdma_proto::{
    conn::{
        BackoffConfig,
        Cause,
        Config,
        Conn,
        Event,
        KeepaliveConfig,
        Outage, //
    },
    time::Millis,
    v2::negotiate::{
        receive_size,
        VersionPolicy, //
    },
    PrivateData, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    new_spinlock,
    qp::{
        Qp,
        SendError, //
    },
    spin::SpinLock, //
};
use xprtrdma_sunrpc::{
    common::Common,
    transport::{
        Create,
        Limits, //
    },
    util::Jiffies,
    xprt::{
        ConnectLock,
        Xprt, //
    },
};

/// When a silent peer is asked for a sign of life, and when it is given up without an answer.
const KEEPALIVE: KeepaliveConfig = KeepaliveConfig {
    busy_after: Millis::from_secs(5),
    idle_after: Millis::from_secs(30),
    timeout: Millis::from_secs(10),
};

/// The numbers of the work items that make a connection and look after it.
const CONNECT: u64 = 0;
const KEEPALIVE_WORK: u64 = 1;
const SUSPICION_WORK: u64 = 2;
const PROBE_WORK: u64 = 3;

/// The longest callback before there was a connection, in bytes: what the smallest inline threshold
/// leaves (RFC 8166, section 3.3.3).
const LEAST_CALLBACK: u32 = 1024 - 28;

/// See the module's documentation.
#[pin_data]
pub(crate) struct Link {
    services: Services,
    /// The connection, for threads that do not hold the send lock.
    #[pin]
    current: SpinLock<Option<Arc<Qp<Connection>>>>,
    /// Our address on the present or last connection.
    #[pin]
    local: SpinLock<Option<SocketAddr>>,
    /// Longest callback and callback reply on the present or last connection, in bytes.
    callback_size: Atomic<u32>,
    /// Most pages in a region of the present or last connection.
    region_pages: Atomic<u32>,
    /// What the transports of the server share; only needed if `rdma_version` or rails make it
    /// matter.
    #[pin]
    server: SpinLock<Option<Arc<Server>>>,
    /// The place of the present attempt or connection among the rails to the server.
    #[pin]
    place: SpinLock<Option<Place>>,
    /// How many places there have been.
    places: Atomic<u32>,
    /// Whether the last attempt or connection ended because its rail died. The thread that ends it
    /// writes this. The next attempt, which waits for that thread, reads it; so nothing else is
    /// ordered by it.
    rail_died: Atomic<bool>,
    /// Largest messages sent and received without RDMA so far, in bytes.
    inline_sizes: (Atomic<u32>, Atomic<u32>),
    /// The private data of the peer of the present attempt.
    #[pin]
    peer: SpinLock<Option<PrivateData>>,
    #[pin]
    job: SpinLock<Option<ConnectLock<Rdma>>>,
    /// The failed attempts that were logged.
    #[pin]
    outage: SpinLock<Outage>,
    #[pin]
    connect: Work<Link, CONNECT>,
    /// Looks after the present connection. Cancelled before its end.
    #[pin]
    keepalive: DelayedWork<Link, KEEPALIVE_WORK>,
    /// Posts the probe that asks a peer that may be out of reach. Cancelled before the connection
    /// ends.
    #[pin]
    suspicion: DelayedWork<Link, SUSPICION_WORK>,
    /// Asks a peer that may be out of reach. Cancelled likewise.
    #[pin]
    probe: DelayedWork<Link, PROBE_WORK>,
}

impl_has_work! {
    impl HasWork<Self, CONNECT> for Link { self.connect }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, KEEPALIVE_WORK> for Link { self.keepalive }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, SUSPICION_WORK> for Link { self.suspicion }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, PROBE_WORK> for Link { self.probe }
}

impl Link {
    /// Makes a link without a connection. Sleeps.
    pub(crate) fn new(common: Arc<Common>, create: &Create, limits: &Limits) -> Result<Arc<Self>> {
        let ms = |ms: u32| Millis::new(ms.into());
        let backoff = BackoffConfig::default();
        let config = Config {
            connect_timeout: ms(limits.connect_timeout_ms),
            backoff: BackoffConfig {
                max: backoff.max.min(ms(limits.reconnect_timeout_ms)),
                ..backoff
            },
            keepalive: Some(KEEPALIVE),
            version: params::version_policy(),
            idle_timeout: params::idle_timeout().filter(|_| !create.keep_idle),
            ..Config::default()
        };
        let machine = Machine::new(common.clone(), config)?;
        let services = Services::new(common, machine)?;
        Arc::pin_init(
            pin_init!(Self {
                services,
                current <- new_spinlock!(None, "Link::current"),
                local <- new_spinlock!(None, "Link::local"),
                callback_size: Atomic::new(LEAST_CALLBACK),
                region_pages: Atomic::new(u32::MAX),
                server <- new_spinlock!(None, "Link::server"),
                place <- new_spinlock!(None, "Link::place"),
                places: Atomic::new(0),
                rail_died: Atomic::new(false),
                inline_sizes: (Atomic::new(0), Atomic::new(0)),
                peer <- new_spinlock!(None, "Link::peer"),
                job <- new_spinlock!(None, "Link::job"),
                outage <- new_spinlock!(Outage::new(), "Link::outage"),
                connect <- new_work!("Link::connect"),
                keepalive <- new_delayed_work!("Link::keepalive"),
                suspicion <- new_delayed_work!("Link::suspicion"),
                probe <- new_delayed_work!("Link::probe"),
            }),
            GFP_KERNEL,
        )
    }

    /// The objects that all connections of the transport share.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// The connection machine.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        self.services.machine()
    }

    /// The connection, if there is one. It may have ended.
    pub(crate) fn current(&self) -> Option<Arc<Qp<Connection>>> {
        self.current.lock().clone()
    }

    /// Calls a function with the connection. Locks are held during the call, under which the last
    /// reference to the connection must not be dropped; so this takes no reference.
    pub(crate) fn with_current<R>(&self, f: impl FnOnce(&Connection) -> Option<R>) -> Option<R> {
        f(self.current.lock().as_ref()?.handler())
    }

    /// Which versions may be spoken.
    fn version_policy(&self) -> VersionPolicy {
        self.machine().with_conn(Conn::version_policy)
    }

    /// Our address on the present or last connection.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        *self.local.lock()
    }

    /// Longest callback and callback reply on the present or last connection, in bytes.
    pub(crate) fn callback_size(&self) -> usize {
        self.callback_size.load(Relaxed) as usize
    }

    /// Most pages in a region of the present or last connection.
    #[inline]
    pub(crate) fn region_pages(&self) -> u32 {
        self.region_pages.read_once()
    }

    /// The sizes of the largest messages without RDMA on a connection that is made now, sent and
    /// received: never less than before, for an NFSv4.1 session was promised the callbacks that
    /// its first connection could carry. If version 2 may be spoken, Receives hold what that allows
    /// a server to send. Attempts come one after the other.
    fn inline_sizes(&self) -> (u32, u32) {
        let grown = |kept: &Atomic<u32>, wanted: u32| {
            let size = wanted.max(kept.load(Relaxed));
            kept.store(size, Relaxed);
            size
        };
        let (out, back) = params::inline_sizes();
        let back = receive_size(self.version_policy(), back);
        (
            grown(&self.inline_sizes.0, out),
            grown(&self.inline_sizes.1, back),
        )
    }

    /// Starts a connection attempt.
    pub(crate) fn connect(self: &Arc<Self>, lock: ConnectLock<Rdma>) {
        let old = self.job.lock().replace(lock);
        // `old` is empty: the send lock of an older job would have kept this attempt from starting.
        drop(old);
        // Cannot fail: the last worker ended before the send lock became free.
        let queue = self.services.common().queue().queue();
        let _ = queue.enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// Hands an event to the machine, and does the work that it leaves.
    pub(crate) fn react(&self, xprt: &Xprt<Rdma>, event: Event) {
        let todo = self.machine().react(xprt, event);
        self.fulfil(xprt, todo);
    }

    /// Does the work that the machine leaves to its caller.
    fn fulfil(&self, xprt: &Xprt<Rdma>, todo: Todo) {
        match todo {
            Todo::Nothing => {}
            Todo::Probe(epoch) => {
                let Some(qp) = self.current().filter(|qp| qp.handler().epoch() == epoch) else {
                    return;
                };
                let failed = match Connection::probe(&qp) {
                    Ok(()) => return,
                    // The work requests that fill the queue serve as well as a probe.
                    Err(SendError::Full) => Event::KeepaliveNotSent(epoch),
                    Err(SendError::Closed) => Event::Lost(epoch, Cause::PostFailed),
                };
                self.machine().react(xprt, failed).expect_nothing();
            }
        }
    }

    /// Ends the connection by order of an administrator or a test.
    pub(crate) fn force(&self, xprt: &Xprt<Rdma>) {
        self.react(xprt, Event::Close(Cause::Forced));
    }

    /// Callbacks may come from now on: the connection is not idle without calls (BC-16).
    pub(crate) fn bind_backchannel(&self, xprt: &Xprt<Rdma>) {
        self.react(xprt, Event::Backchannel { bound: true });
    }

    /// Attempts and the pauses between them get no longer than this. Must not sleep.
    pub(crate) fn lower_timeouts(&self, connect: Jiffies, reconnect: Jiffies) {
        self.machine().lower_timeouts(connect, reconnect);
    }
}
