// SPDX-License-Identifier: GPL-2.0

//! The state machine of a transport's connections ([`Machine`]): the protocol core's state machine
//! behind a lock.
//!
//! One worker makes a connection: the worker performs the actions of the state machine and waits
//! for events of the connection manager. While this worker runs, all events go to the mailbox of
//! the worker. At other times, a thread that has an event reports the event directly to the state
//! machine ([`Machine::react`]).
//!
//! The end of a connection has two halves:
//!
//! 1. [`Machine::end`] revokes the server's access to the connection and to the memory of all its
//!    calls. This needs no lock of the RPC client. So any task may wait for the first half,
//!    whatever locks the task holds.
//! 2. The RPC client drops its references to the connection, so that nothing of it remains for the
//!    next connection. This needs the send lock.
//!
//! When the state machine wants to end the connection, it requests both halves. For the first half
//! it queues a work item, and for the second half it calls [`Xprt::force_disconnect`]. If the work
//! item has not run when the second half begins, the second half does the work of the first half,
//! too.
//!
//! After the first half, the server can access nothing of the connection. A device may take seconds
//! to destroy the remaining objects of the connection. A call that can be sent over another rail
//! does not wait until these objects are destroyed, because a separate work item destroys them
//! ([`Machine::destroy_ended`]).
//!
//! The only item of the driver that this module needs is the marker type [`Rdma`]. The module
//! returns work for other modules as [`Todo`], and the other modules implement the end of a
//! connection through [`Established`].

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

/// Interval, in milliseconds, at which a waiting worker checks whether the transport still exists.
const LOOK_MS: u32 = 250;

/// Numbers that identify two work items: the first ends a connection, and the second destroys the
/// remaining objects of an ended connection.
const END: u64 = 0;
const DESTRUCTION: u64 = 1;

/// Returns the present time, in the protocol core's type.
pub(crate) fn now() -> Time {
    Time::from_millis(now_ms())
}

/// The owner of an established connection.
pub(crate) trait Established: Sized + Send + Unpin + 'static {
    /// Returns the connection's number.
    fn epoch(&self) -> Epoch;

    /// Revokes the server's access to the connection and to the memory of all its calls. May sleep.
    /// This function must not wait for a thread that waits for the send lock or the RPC client's
    /// queues.
    fn end(&mut self, machine: &Machine<Self>);

    /// Destroys the remaining objects of the connection after [`Established::end`]. May sleep
    /// for seconds.
    fn destroy(self);
}

/// Work that the state machine leaves to the thread that reported an event.
#[must_use]
pub(crate) enum Todo {
    Nothing,
    /// The thread must send a keepalive probe on this connection.
    Probe(Epoch),
}

impl Todo {
    /// Does nothing. The caller must know that this value is [`Todo::Nothing`]. Only three events
    /// leave work to the caller: a tick, the timeout of a call, and the connection manager's event
    /// `Unreachable`.
    pub(crate) fn expect_nothing(self) {}
}

/// The state machine of a transport's connections; see the module's documentation.
#[pin_data]
pub(crate) struct Machine<C: Established> {
    common: Arc<Common>,
    #[pin]
    mailbox: SpinLock<Mailbox>,
    /// Wakes the worker when an event is in the mailbox.
    #[pin]
    arrived: CondVar,
    /// The established connection, until it ends. The thread that ends it holds this lock, so
    /// another thread that wants to end the connection waits until the connection has ended.
    #[pin]
    owner: Mutex<Option<C>>,
    #[pin]
    end: Work<Machine<C>, END>,
    /// A connection that has ended. The lock is held while the connection is destroyed.
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
    /// Makes a state machine without a connection. May sleep.
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

    /// Reports an event to the state machine. Does not sleep.
    ///
    /// While a worker runs, the event only goes to the worker's mailbox. At other times this
    /// function handles the event, and carries out the resulting actions.
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

    /// Carries out the actions of the state machine while no worker runs.
    fn carry_out(self: &Arc<Self>, xprt: &Xprt<Rdma>, actions: Actions) -> Todo {
        let mut todo = Todo::Nothing;
        for action in actions.into_iter().flatten() {
            match action {
                Action::Disconnect { epoch, cause, .. } => self.order_end(xprt, epoch, cause),
                Action::Keepalive { epoch } => todo = Todo::Probe(epoch),
                // All other actions belong to connection attempts. The worker carries out the
                // actions of an attempt, so this function never receives them.
                _ => {}
            }
        }
        todo
    }

    /// Requests both halves of the end of a connection (see the module's documentation): queues a
    /// work item that calls [`Machine::end`], and asks the RPC client to disconnect. Does not
    /// sleep.
    pub(crate) fn order_end(self: &Arc<Self>, xprt: &Xprt<Rdma>, epoch: Epoch, cause: Cause) {
        trace::disconnected(xprt.id(), epoch.raw(), cause.name());
        // The lock is held from the check until both requests are made. Otherwise another thread
        // could close the connection after the check. The requests could then end the next
        // connection.
        let mailbox = self.mailbox.lock();
        if mailbox.conn.is_ending(epoch) {
            xprt.force_disconnect();
            // If queueing fails, the work item is already queued and has not started.
            let ends = self.common.ends().queue();
            let _ = ends.enqueue::<Arc<Self>, END>(self.clone());
        }
    }

    /// Stores the owner of the connection that was just made.
    pub(crate) fn own(&self, connection: C) {
        let old = self.owner.lock().replace(connection);
        // `old` is empty, because any older connection ended before this attempt began.
        drop(old);
    }

    /// Ends the connection if `is_meant` returns true for the connection's number. If another
    /// thread is ending the connection, waits until the connection has ended. If objects of an
    /// earlier connection remain, destroys them as well. May sleep.
    pub(crate) fn end(self: &Arc<Self>, is_meant: impl FnOnce(Epoch) -> bool) {
        let mut owner = self.owner.lock();
        if let Some(mut connection) = owner.take_if(|connection| is_meant(connection.epoch())) {
            connection.end(self);
            self.destroy_ended();
            *self.ended.lock() = Some(connection);
            // If queueing fails, the work item is already queued and has not started.
            let ends = self.common.ends().queue();
            let _ = ends.enqueue::<Arc<Self>, DESTRUCTION>(self.clone());
        }
    }

    /// Destroys the remaining objects of an ended connection, or waits until another thread has
    /// destroyed them. May sleep for seconds.
    pub(crate) fn destroy_ended(&self) {
        let mut ended = self.ended.lock();
        if let Some(connection) = ended.take() {
            connection.destroy();
        }
    }

    /// Reports an event while this thread closes the connection. If the state machine requests the
    /// end of the connection, no work is queued, because this thread is already ending the
    /// connection.
    pub(crate) fn close(&self, xprt: &Xprt<Rdma>, event: Event) {
        self.handle(event);
        while let Some(action) = self.poll_action() {
            if let Action::Disconnect { epoch, cause, .. } = action {
                trace::disconnected(xprt.id(), epoch.raw(), cause.name());
            }
        }
    }

    /// Tells the state machine what is known about the server's support for version 2.
    pub(crate) fn learn_version(&self, known: Known) {
        self.mailbox.lock().conn.learn_version(known);
    }

    /// Begins a connection attempt over the network path that `facts` describe. From now on, events
    /// go to the worker's mailbox.
    pub(crate) fn begin(&self, timeout: Millis, trial: bool, facts: RailFacts) {
        let mut mailbox = self.mailbox.lock();
        mailbox.worker_started();
        mailbox.conn.take_rail_facts(facts);
        drop(mailbox);
        let timeout = Some(timeout);
        self.handle(Event::Start { timeout, trial });
    }

    /// Closes the mailbox, because the worker ends. From now on, events go directly to the state
    /// machine. Events that are still in the mailbox are handled first.
    pub(crate) fn leave(self: &Arc<Self>, xprt: &Xprt<Rdma>) -> Todo {
        let left = self.mailbox.lock().worker_left(now());
        self.carry_out(xprt, left)
    }

    /// Returns the next action for the worker.
    pub(crate) fn poll_action(&self) -> Option<Action> {
        self.mailbox.lock().conn.poll_action()
    }

    /// Reports an event directly to the state machine. Only the worker and the thread that ends a
    /// connection may call this function.
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
                // Every step of an attempt has a deadline, so this case should not occur. If it
                // did, this thread would check for events again within a second.
                None => 1000,
            };
            if left == 0 {
                return tick();
            }
            // No event reports that the last user of the transport has gone, so this thread checks
            // periodically.
            if xprt.is_dying() {
                return Event::Close(Cause::Shutdown);
            }
            let left = u32::try_from(left).unwrap_or(u32::MAX).min(LOOK_MS);
            let span = Jiffies::from_ms(left).count().max(1);
            // No signal ends this wait, because kernel threads receive no signals. The result does
            // not matter, because the loop checks all conditions again.
            let _ = self.arrived.wait_interruptible_timeout(&mut mailbox, span);
        }
    }

    /// Returns the time until the state machine needs its next tick; `None` if it needs no tick.
    pub(crate) fn until_tick(&self) -> Option<Millis> {
        let deadline = self.with_conn(Conn::deadline)?;
        Some(deadline.since(now()))
    }

    /// Limits the timeout of connection attempts to `connect`, and the pauses between attempts to
    /// `reconnect`. Must not sleep.
    pub(crate) fn lower_timeouts(&self, connect: Jiffies, reconnect: Jiffies) {
        let ms = |time: Jiffies| Millis::new(time.as_ms().into());
        let mut mailbox = self.mailbox.lock();
        mailbox.conn.limit_timeouts(ms(connect), ms(reconnect));
    }

    /// Calls `f` with the state machine of the protocol core, while the lock of the state machine
    /// is held.
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
        // By now the connection may have ended, and another connection may exist. The new
        // connection must not be ended.
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
