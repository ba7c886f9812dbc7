// SPDX-License-Identifier: GPL-2.0

//! The connection machine of a transport ([`Machine`]): the protocol core's, behind a lock.
//!
//! One worker makes a connection: it performs the machine's actions and waits for events of the
//! connection manager answers. While it works, all events go to its mailbox. Afterwards a thread
//! that has an event hands it to the machine at once ([`Machine::react`]).
//!
//! The end of a connection has two halves. [`Machine::end`] brings it out of the server's reach,
//! and with it the memory of all its calls. That needs no lock of the RPC client's, so tasks may
//! wait for it whatever they hold and wherever they run. The other half is the RPC client's
//! business, for which the send lock must be free: it lets go of the connection, of which nothing
//! may be left for the next one. When the machine wants an end, both are ordered: a work item for
//! the first half, and [`Xprt::force_disconnect`] for the second, which does the first as well if
//! that is not done yet.
//!
//! What is left then is out of reach. A device may take seconds to have it back, and a
//! call that can go out over another rail does not wait for that: a further work item gives it back
//! ([`Machine::destroy_ended`]).
//!
//! This room needs nothing of the driver's but its name. What it wishes of the rooms above it
//! returns ([`Todo`]), and what an end consists of they implement ([`Established`]).

use crate::driver::Rdma;
use kernel::{
    impl_has_work, new_condvar, new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use xprtrdma_proto::{
    conn::{
        Action,
        Actions,
        Activity,
        Cause,
        Config,
        Conn,
        Epoch,
        Event,
        Mailbox,
        RailFacts, //
    },
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::Known, //
};
use xprtrdma_sunrpc::{
    common::Common,
    trace,
    util::{
        now_ms,
        random,
        Jiffies,
        NoFs, //
    },
    xprt::Xprt,
};

/// How often a waiting worker looks whether it is still needed, in milliseconds.
const LOOK_MS: u32 = 250;

/// The numbers of the work items that end a connection and give it back to the device.
const END: u64 = 0;
const DESTRUCTION: u64 = 1;

/// The present time, as the protocol core counts it.
pub(crate) fn now() -> Time {
    Time::from_millis(now_ms())
}

/// The owner of an established connection.
pub(crate) trait Established: Sized + Send + Unpin + 'static {
    /// The connection's number.
    fn epoch(&self) -> Epoch;

    /// Brings the connection, and the memory of all its calls, out of the server's reach. Sleeps.
    /// A thread that this waits for must not wait for the send lock or the RPC client's queues.
    fn end(&mut self, machine: &Machine<Self>);

    /// Destroys what is left after [`Established::end`]. Sleeps, perhaps seconds.
    fn destroy(self);
}

/// Work that an event leaves to the caller.
#[must_use]
pub(crate) enum Todo {
    Nothing,
    /// Ask the peer of this connection for a sign of life.
    Probe(Epoch),
}

impl Todo {
    /// Only ticks and timeouts of calls produce a `Todo`; this was another event.
    pub(crate) fn expect_nothing(self) {}
}

/// See the module's documentation.
#[pin_data]
pub(crate) struct Machine<C: Established> {
    common: Arc<Common>,
    #[pin]
    mailbox: SpinLock<Mailbox>,
    /// Wakes the worker when an event is in the mailbox.
    #[pin]
    arrived: CondVar,
    /// The connection, until its end. The ending thread holds the lock, so that another thread that
    /// wants the end waits until it is done.
    #[pin]
    owner: Mutex<Option<C>>,
    #[pin]
    end: Work<Machine<C>, END>,
    /// A connection that has ended. Locked while it is destroyed.
    #[pin]
    ended: Mutex<Option<C>>,
    #[pin]
    destruction: Work<Machine<C>, DESTRUCTION>,
}

impl_has_work! {
    impl{C: Established} HasWork<Self, END> for Machine<C> { self.end }
}

impl_has_work! {
    impl{C: Established} HasWork<Self, DESTRUCTION> for Machine<C> { self.destruction }
}

impl<C: Established> Machine<C> {
    /// Makes a machine without a connection. Sleeps.
    pub(crate) fn new(common: Arc<Common>, config: Config) -> Result<Arc<Self>> {
        let conn = Conn::new(config, u64::from(random()));
        Arc::pin_init(
            pin_init!(Self {
                common,
                mailbox <- new_spinlock!(Mailbox::new(conn), "Machine::mailbox"),
                arrived <- new_condvar!("Machine::arrived"),
                owner <- new_mutex!(None, "Machine::owner"),
                end <- new_work!("Machine::end"),
                ended <- new_mutex!(None, "Machine::ended"),
                destruction <- new_work!("Machine::destruction"),
            }),
            GFP_KERNEL,
        )
    }

    /// Hands an event to the machine: through the worker's mailbox while there is a worker,
    /// otherwise directly. In the latter case it also carries out the actions. Does not sleep.
    pub(crate) fn react(self: &Arc<Self>, xprt: &Xprt<Rdma>, event: Event) -> Todo {
        let handed_in = self.mailbox.lock().deliver(event, now());
        match handed_in {
            Some(actions) => self.carry_out(xprt, actions),
            None => {
                self.arrived.notify_all();
                Todo::Nothing
            }
        }
    }

    /// Carries out the machine's actions while there is no worker.
    fn carry_out(self: &Arc<Self>, xprt: &Xprt<Rdma>, actions: Actions) -> Todo {
        let mut todo = Todo::Nothing;
        for action in actions.into_iter().flatten() {
            match action {
                Action::Disconnect { epoch, cause, .. } => self.order_end(xprt, epoch, cause),
                Action::Keepalive { epoch } => todo = Todo::Probe(epoch),
                // The other actions belong to attempts, which have a worker.
                _ => {}
            }
        }
        todo
    }

    /// Orders both halves of the connection's end. Does not sleep.
    pub(crate) fn order_end(self: &Arc<Self>, xprt: &Xprt<Rdma>, epoch: Epoch, cause: Cause) {
        trace::disconnected(xprt.id(), epoch.raw(), cause.name());
        // With the lock held: the order is not needed if the connection was closed since, and no
        // other connection is made before the order is given.
        let mailbox = self.mailbox.lock();
        if mailbox.conn.is_ending(epoch) {
            xprt.force_disconnect();
            // An error means that it is queued and has not begun yet.
            let ends = self.common.ends().queue();
            let _ = ends.enqueue::<Arc<Self>, END>(self.clone());
        }
    }

    /// Takes over the connection that was made.
    pub(crate) fn own(&self, connection: C) {
        let old = self.owner.lock().replace(connection);
        // `old` is empty: an older connection ended before this attempt began.
        drop(old);
    }

    /// Ends the connection if `is_meant` says so, or waits until another thread has ended it. Also
    /// waits until the connection before it is destroyed. Sleeps.
    pub(crate) fn end(self: &Arc<Self>, is_meant: impl FnOnce(Epoch) -> bool) {
        let mut owner = self.owner.lock();
        if let Some(mut connection) = owner.take_if(|connection| is_meant(connection.epoch())) {
            connection.end(self);
            self.destroy_ended();
            *self.ended.lock() = Some(connection);
            // An error means that it is queued and has not begun yet.
            let ends = self.common.ends().queue();
            let _ = ends.enqueue::<Arc<Self>, DESTRUCTION>(self.clone());
        }
    }

    /// Destroys what is left of a connection, or waits until another thread has done so. Sleeps,
    /// perhaps seconds.
    pub(crate) fn destroy_ended(&self) {
        let mut ended = self.ended.lock();
        if let Some(connection) = ended.take() {
            connection.destroy();
        }
    }

    /// Reports an event while this thread closes the connection. If the machine wants an end, that
    /// is under way already; so this orders none.
    pub(crate) fn close(&self, xprt: &Xprt<Rdma>, event: Event) {
        self.handle(event);
        while let Some(action) = self.poll_action() {
            if let Action::Disconnect { epoch, cause, .. } = action {
                trace::disconnected(xprt.id(), epoch.raw(), cause.name());
            }
        }
    }

    /// Sets what is known of the server's version.
    pub(crate) fn learn_version(&self, known: Known) {
        self.mailbox.lock().conn.learn_version(known);
    }

    /// Begins an attempt over this rail: from now on events wait for the worker.
    pub(crate) fn begin(&self, timeout: Millis, trial: bool, facts: RailFacts) {
        let mut mailbox = self.mailbox.lock();
        mailbox.worker_started();
        mailbox.conn.take_rail_facts(facts);
        drop(mailbox);
        let timeout = Some(timeout);
        self.handle(Event::Start { timeout, trial });
    }

    /// Ends the attempt's mailbox: from now on events go to the machine directly, and those that
    /// are left go first.
    pub(crate) fn leave(self: &Arc<Self>, xprt: &Xprt<Rdma>) -> Todo {
        let left = self.mailbox.lock().worker_left(now());
        self.carry_out(xprt, left)
    }

    /// Returns the next action for the worker.
    pub(crate) fn poll_action(&self) -> Option<Action> {
        self.mailbox.lock().conn.poll_action()
    }

    /// Hands an event to the machine. Only for the worker, and for the thread that ends a
    /// connection.
    pub(crate) fn handle(&self, event: Event) {
        self.mailbox.lock().conn.handle(event, now());
    }

    /// Waits for the next event of an attempt, at most until its deadline.
    pub(crate) fn next_event(&self, xprt: &Xprt<Rdma>) -> Event {
        let mut mailbox = self.mailbox.lock();
        loop {
            if let Some(event) = mailbox.next_event() {
                return event;
            }
            let left = match mailbox.conn.deadline() {
                Some(deadline) => deadline.since(now()).get(),
                // Every step of an attempt has a deadline; if it had none, look again soon.
                None => 1000,
            };
            if left == 0 {
                return tick();
            }
            // No event reports that the transport's last user has gone, so this looks from time to
            // time.
            if xprt.is_dying() {
                return Event::Close(Cause::Shutdown);
            }
            let left = u32::try_from(left).unwrap_or(u32::MAX).min(LOOK_MS);
            let span = Jiffies::from_ms(left).count().max(1);
            // Kernel threads get no signals; however the wait ends, the loop looks again.
            let _ = self.arrived.wait_interruptible_timeout(&mut mailbox, span);
        }
    }

    /// Returns when the machine wants a tick.
    pub(crate) fn until_tick(&self) -> Option<Millis> {
        let deadline = self.with_conn(Conn::deadline)?;
        Some(deadline.since(now()))
    }

    /// Attempts and the pauses between them get no longer than this. Must not sleep.
    pub(crate) fn lower_timeouts(&self, connect: Jiffies, reconnect: Jiffies) {
        let ms = |time: Jiffies| Millis::new(time.as_ms().into());
        let mut mailbox = self.mailbox.lock();
        mailbox.conn.limit_timeouts(ms(connect), ms(reconnect));
    }

    /// Calls a function with the machine.
    pub(crate) fn with_conn<R>(&self, f: impl FnOnce(&Conn) -> R) -> R {
        f(&self.mailbox.lock().conn)
    }
}

fn tick() -> Event {
    Event::Tick(Activity {
        last_rx: now(),
        used: now(),
        busy: true,
    })
}

impl<C: Established> WorkItem<END> for Machine<C> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        // By now the end that was ordered may be done, and another connection made.
        this.end(|epoch| this.with_conn(|conn| conn.is_ending(epoch)));
    }
}

impl<C: Established> WorkItem<DESTRUCTION> for Machine<C> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        this.destroy_ended();
    }
}
