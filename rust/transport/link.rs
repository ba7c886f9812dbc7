// SPDX-License-Identifier: GPL-2.0

//! The connection of a transport ([`Link`]): drives the protocol core's connection machine.
//!
//! One worker makes a connection: it performs what the machine asks for and waits for what the
//! connection manager answers. While it works, all events go to its mailbox; afterwards whoever has
//! an event hands it to the machine at once.
//!
//! The end of a connection has two halves. [`Link::end`] brings it out of the server's reach, and with
//! it the memory of all its calls. That needs no lock of the RPC client's, so tasks may wait for it
//! whatever they hold and wherever they run. [`Link::close`] is the RPC client's business, for which the
//! send lock must be free: it lets go of the connection, of which nothing may be left for the next one.
//! When the machine wants an end, both are ordered: a work item for the first half, and
//! [`Xprt::force_disconnect`] for the second, which does the first as well if nobody has done it yet.
//!
//! Teardown order of a connection:
//!
//! 1. the queue pair is disconnected, drained and destroyed, so no handler runs any more and nothing is
//!    posted;
//! 2. each slot gives up the regions of this connection, which deregisters them and ends the loans
//!    of the request's memory; a reply that had arrived and only waited for that completes its call;
//! 3. the pool's regions;
//! 4. the send path and the request paths lose sight of it (send lock, `Client::current`), which is first
//!    if nobody was faster than `close`;
//! 5. the completion queue, the rings, the device's events, the protection domain and the id.
//!
//! In between senders find the send queue closed: what they have mapped goes back to the pool.

use crate::{
    connection::Connection,
    driver::Rdma,
    params, //
};
use kernel::{
    impl_has_work,
    new_condvar,
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    },
    workqueue::Work, //
};
use xprtrdma_proto::{
    conn::{
        Action,
        Actions,
        BackoffConfig,
        Cause,
        Config,
        Conn,
        DeviceLog,
        Event,
        KeepaliveConfig,
        Mailbox,
        Outage, //
    },
    time::{
        Millis,
        Time, //
    },
    PrivateData, //
};
use xprtrdma_rdma::qp::QpOwner;
use xprtrdma_sunrpc::{
    common::Common,
    trace,
    transport::{
        Create,
        Limits, //
    },
    util::{
        now_ms,
        random,
        Jiffies, //
    },
    xprt::{
        ConnectLock,
        Xprt, //
    },
};

/// A silent peer is asked for a sign of life after this, and given up without one.
const KEEPALIVE: KeepaliveConfig = KeepaliveConfig {
    busy_after: Millis::from_secs(5),
    idle_after: Millis::from_secs(30),
    timeout: Millis::from_secs(10),
};

/// How often a waiting worker looks whether it is still needed, in milliseconds.
const LOOK_MS: u32 = 250;

pub(crate) mod attempt;
mod cm_events;
pub(crate) mod device_events;
pub(crate) mod keepalive;
mod teardown;

/// See the module's documentation.
#[pin_data]
pub(crate) struct Link {
    pub(crate) common: Arc<Common>,
    #[pin]
    mailbox: SpinLock<Mailbox>,
    /// Told when an event waits for the worker.
    #[pin]
    arrived: CondVar,
    /// What the peer of the present attempt said about itself.
    #[pin]
    peer: SpinLock<Option<PrivateData>>,
    #[pin]
    job: SpinLock<Option<ConnectLock<Rdma>>>,
    /// What of failed attempts was told.
    #[pin]
    outage: SpinLock<Outage>,
    /// What the devices of this and of earlier connections told.
    #[pin]
    told: SpinLock<DeviceLog>,
    #[pin]
    work: Work<Link, CONNECT>,
    /// The connection, until its end. Locked while that is going on, so that whoever wants the same waits
    /// until it is done.
    #[pin]
    owner: Mutex<Option<QpOwner<Connection>>>,
    #[pin]
    end: Work<Link, END>,
}

/// The numbers of the work items that make and end connections.
const CONNECT: u64 = 0;
const END: u64 = 1;

impl_has_work! {
    impl HasWork<Self, CONNECT> for Link { self.work }
    impl HasWork<Self, END> for Link { self.end }
}

pub(crate) fn now() -> Time {
    Time::from_millis(now_ms())
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
            idle_timeout: params::idle_timeout().filter(|_| !create.keep_idle),
            ..Config::default()
        };
        let seed = u64::from(random());
        Arc::pin_init(
            pin_init!(Self {
                common,
                mailbox <- new_spinlock!(Mailbox::new(Conn::new(config, seed)), "Link::mailbox"),
                arrived <- new_condvar!("Link::arrived"),
                peer <- new_spinlock!(None, "Link::peer"),
                job <- new_spinlock!(None, "Link::job"),
                outage <- new_spinlock!(Outage::new(), "Link::outage"),
                told <- new_spinlock!(DeviceLog::new(), "Link::told"),
                work <- new_work!("Link::work"),
                owner <- new_mutex!(None, "Link::owner"),
                end <- new_work!("Link::end"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts a connection attempt.
    pub(crate) fn connect(self: &Arc<Self>, lock: ConnectLock<Rdma>) {
        let old = self.job.lock().replace(lock);
        // There is none: its send lock would have kept this attempt from starting.
        drop(old);
        // Cannot fail: the worker has ended before the send lock became free.
        let queue = self.common.queue().queue();
        let _ = queue.enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// Hands an event to the machine: through the worker's mailbox while there is a worker,
    /// otherwise directly, and then does what the machine asks for.
    pub(crate) fn react(&self, xprt: &Xprt<Rdma>, event: Event) {
        let delivered = self.mailbox.lock().deliver(event, now());
        match delivered {
            Some(actions) => self.carry_out(xprt, actions),
            None => self.arrived.notify_all(),
        }
    }

    /// Does what the machine asks for while there is no worker.
    fn carry_out(&self, xprt: &Xprt<Rdma>, actions: Actions) {
        for action in actions.into_iter().flatten() {
            match action {
                Action::Disconnect { epoch, cause, .. } => {
                    trace::disconnected(xprt.id(), epoch.raw(), cause.name());
                    // With the lock held: one that has been closed meanwhile needs no more, and no
                    // other is made before the order is given.
                    let mailbox = self.mailbox.lock();
                    if mailbox.conn.is_ending(epoch) {
                        self.order_end(xprt);
                    }
                }
                Action::Keepalive { epoch } => self.probe(xprt, epoch),
                // The others belong to attempts, which have a worker.
                _ => {}
            }
        }
    }

    /// Has both halves of the connection's end done. Does not sleep.
    fn order_end(&self, xprt: &Xprt<Rdma>) {
        xprt.force_disconnect();
        // An error means that it is queued and has not begun yet.
        let ends = self.common.ends().queue();
        let _ = ends.enqueue::<Arc<Self>, END>(xprt.data().link.clone());
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
        let ms = |time: Jiffies| Millis::new(time.as_ms().into());
        self.mailbox
            .lock()
            .conn
            .limit_timeouts(ms(connect), ms(reconnect));
    }

    /// Hands an event to the machine, as the worker or to close a connection.
    fn handle(&self, event: Event) {
        self.mailbox.lock().conn.handle(event, now());
    }

    fn poll_action(&self) -> Option<Action> {
        self.mailbox.lock().conn.poll_action()
    }

    /// Looks at the machine.
    pub(crate) fn with_conn<R>(&self, f: impl FnOnce(&Conn) -> R) -> R {
        f(&self.mailbox.lock().conn)
    }
}
