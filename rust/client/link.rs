// SPDX-License-Identifier: GPL-2.0

//! The connections of a transport ([`Link`]): the present connection, and the state that outlives
//! it.
//!
//! [`attempt`] makes a connection: it performs the actions of the connection's state machine.
//! [`keepalive`] checks the connection periodically. [`rails`] chooses the rail of the connection,
//! [`probe`] tests rails that failed, and [`port_events`] receives the events of the connection's
//! device. [`teardown`] ends the connection in this order:
//!
//! 1. The queue pair is disconnected and drained. From then on no handler runs, nothing is
//!    posted, and the server can access no memory.
//! 2. The regions of this connection that slots hold return to the pool, which ends the loans of
//!    the requests' memory. If the reply to a call has arrived and the call only waited for its
//!    regions, the call completes.
//! 3. The references to the connection in the send lock and in [`Link::current`] are dropped. This
//!    step comes first if [`Link::close`] started the teardown.
//! 4. The queue pair is destroyed, and then the regions in the pool.
//! 5. The completion queue, the rings, the registration for the device's events, the protection
//!    domain and the identifier of the connection manager are destroyed.
//!
//! If rails are configured, calls do not wait for the last two steps, because the device of a dead
//! rail may take seconds for them. Only the end of the transport waits for these steps.
//!
//! During the whole teardown, senders find the send queue closed, and return their mapped regions
//! to the pool.

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

/// Numbers that identify the work items of a link. Each work item makes, checks or probes a
/// connection.
const CONNECT: u64 = 0;
const KEEPALIVE_WORK: u64 = 1;
const SUSPICION_WORK: u64 = 2;
const PROBE_WORK: u64 = 3;

/// Maximum length of a callback, in bytes, before the first connection: the smallest inline
/// threshold minus the transport header (RFC 8166, section 3.3.3).
const LEAST_CALLBACK: u32 = 1024 - 28;

/// The link of a transport; see the module's documentation.
#[pin_data]
pub(crate) struct Link {
    services: Services,
    /// The connection, for threads that do not hold the send lock.
    #[pin]
    current: SpinLock<Option<Arc<Qp<Connection>>>>,
    /// The local address of the latest connection.
    #[pin]
    local: SpinLock<Option<SocketAddr>>,
    /// Maximum length in bytes of a callback, and of its reply, on the latest connection.
    callback_size: Atomic<u32>,
    /// Maximum number of pages in a region of the latest connection.
    region_pages: Atomic<u32>,
    /// The state that all transports of the server share; used only with version 2 or with rails.
    #[pin]
    server: SpinLock<Option<Arc<Server>>>,
    /// The rail that the present attempt or connection uses, if rails are configured.
    #[pin]
    place: SpinLock<Option<Place>>,
    /// Number of [`Place`] objects that this link has made. The link numbers the objects with this
    /// counter.
    places: Atomic<u32>,
    /// Whether the last attempt or connection ended because its rail died. Two threads write this
    /// flag. One of them ends the attempt or connection, and the next attempt begins only after
    /// that. The other thread handles an event of a port. It holds the lock of `place` when it
    /// writes, and the next attempt takes this lock before it reads the flag. So the accesses to
    /// the flag need no memory ordering.
    rail_died: Atomic<bool>,
    /// Maximum length in bytes of an inline message that this host sends, and of an inline message
    /// that it receives. These lengths never shrink.
    inline_sizes: (Atomic<u32>, Atomic<u32>),
    /// The private data that the peer of the present attempt sent.
    #[pin]
    peer: SpinLock<Option<PrivateData>>,
    #[pin]
    job: SpinLock<Option<ConnectLock<Rdma>>>,
    /// Record of the failed attempts since the last connection. The record limits the number of log
    /// lines about such attempts.
    #[pin]
    outage: SpinLock<Outage>,
    #[pin]
    connect: Work<Link, CONNECT>,
    /// Checks the present connection periodically. This work item is cancelled before the
    /// connection ends.
    #[pin]
    keepalive: DelayedWork<Link, KEEPALIVE_WORK>,
    /// Reports the time to the connection's state machine while the peer may be out of reach. This
    /// work item is cancelled before the connection ends.
    #[pin]
    suspicion: DelayedWork<Link, SUSPICION_WORK>,
    /// Posts a keepalive probe to a peer that may be out of reach. This work item is cancelled
    /// before the connection ends.
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
    /// Makes a link without a connection. May sleep.
    pub(crate) fn new(common: Arc<Common>, create: &Create, limits: &Limits) -> Result<Arc<Self>> {
        let ms = |ms: u32| Millis::new(ms.into());
        let usual = Config::default();
        let config = Config {
            connect_timeout: ms(limits.connect_timeout_ms),
            backoff: BackoffConfig {
                max: usual.backoff.max.min(ms(limits.reconnect_timeout_ms)),
                ..usual.backoff
            },
            version: params::version_policy(),
            idle_timeout: params::idle_timeout().filter(|_| !create.keep_idle),
            ..usual
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

    /// Returns the objects that all connections of the transport share.
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the state machine of the transport's connections.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        self.services.machine()
    }

    /// Returns the present connection, if there is one. It may have ended already.
    pub(crate) fn current(&self) -> Option<Arc<Qp<Connection>>> {
        self.current.lock().clone()
    }

    /// Calls `f` with the present connection. The function takes no reference to the connection,
    /// because the last reference to a connection must not be dropped under the locks that are held
    /// here.
    pub(crate) fn with_current<R>(&self, f: impl FnOnce(&Connection) -> Option<R>) -> Option<R> {
        f(self.current.lock().as_ref()?.handler())
    }

    /// Returns which protocol versions this transport may use.
    fn version_policy(&self) -> VersionPolicy {
        self.machine().with_conn(Conn::version_policy)
    }

    /// Returns the local address of the latest connection.
    pub(crate) fn local_addr(&self) -> Option<SocketAddr> {
        *self.local.lock()
    }

    /// Returns the maximum length in bytes of a callback, and of its reply, on the latest
    /// connection.
    pub(crate) fn callback_size(&self) -> usize {
        self.callback_size.load(Relaxed) as usize
    }

    /// Returns the maximum number of pages in a region of the latest connection.
    #[inline]
    pub(crate) fn region_pages(&self) -> u32 {
        self.region_pages.read_once()
    }

    /// Returns two maximum lengths of an inline message on a new connection, in bytes: of a message
    /// that this host sends, and of a message that this host receives.
    ///
    /// These lengths never shrink, because an NFSv4.1 session relies on the maximum callback size
    /// of its first connection. If version 2 is allowed, a Receive is large enough for any message
    /// that version 2 allows a server to send. Only one attempt runs at a time, so this function
    /// needs no lock.
    fn inline_sizes(&self) -> (u32, u32) {
        let grown = |kept: &Atomic<u32>, wanted: u32| {
            let size = wanted.max(kept.load(Relaxed));
            kept.store(size, Relaxed);
            size
        };
        let policy = self.version_policy();
        let (out, back) = params::inline_sizes(policy);
        let back = receive_size(policy, back);
        (
            grown(&self.inline_sizes.0, out),
            grown(&self.inline_sizes.1, back),
        )
    }

    /// Starts a connection attempt.
    pub(crate) fn connect(self: &Arc<Self>, lock: ConnectLock<Rdma>) {
        let old = self.job.lock().replace(lock);
        // `old` is `None`: an attempt holds the send lock until it ends, and only the holder of the
        // send lock starts an attempt.
        drop(old);
        // Queueing the work item cannot fail, because the previous worker ended before the send
        // lock became free.
        let queue = self.services.common().queue().queue();
        let _ = queue.enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// Reports an event to the connection's state machine, and does the work that the state machine
    /// leaves to its caller.
    pub(crate) fn react(&self, xprt: &Xprt<Rdma>, event: Event) {
        let todo = self.machine().react(xprt, event);
        self.fulfil(xprt, todo);
    }

    /// Does the work that the state machine has returned to its caller.
    fn fulfil(&self, xprt: &Xprt<Rdma>, todo: Todo) {
        match todo {
            Todo::Nothing => {}
            Todo::Probe(epoch) => {
                let Some(qp) = self.current().filter(|qp| qp.handler().epoch() == epoch) else {
                    return;
                };
                let failed = match Connection::probe(&qp) {
                    Ok(()) => return,
                    // The send queue has no space for a probe. No probe is needed: if one of the
                    // work requests in the queue completes, this proves that the peer is alive.
                    Err(SendError::Full) => Event::KeepaliveNotSent(epoch),
                    Err(SendError::Closed) => Event::Lost(epoch, Cause::PostFailed),
                };
                self.machine().react(xprt, failed).expect_nothing();
            }
        }
    }

    /// Ends the connection because an administrator or a test requested it.
    pub(crate) fn force(&self, xprt: &Xprt<Rdma>) {
        self.react(xprt, Event::Close(Cause::Forced));
    }

    /// Reports that callbacks may arrive from now on. After this report the connection does not
    /// count as idle, even if there are no calls (BC-16).
    pub(crate) fn bind_backchannel(&self, xprt: &Xprt<Rdma>) {
        self.react(xprt, Event::Backchannel { bound: true });
    }

    /// Lowers the maximum duration of a connection attempt to `connect`, and the maximum pause
    /// between attempts to `reconnect`. Must not sleep.
    pub(crate) fn lower_timeouts(&self, connect: Jiffies, reconnect: Jiffies) {
        self.machine().lower_timeouts(connect, reconnect);
    }
}
