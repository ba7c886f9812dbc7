// SPDX-License-Identifier: GPL-2.0

//! The [`Mailbox`], which stores events for the thread that establishes a connection.

use super::{
    action::Action,
    api::Conn,
    event::Event,
    queue::Queue, //
};
use crate::time::Time;

/// Maximum number of events that can wait for the worker. An attempt to connect causes fewer events
/// than this number, so it is safe to drop an event that does not fit.
const ROOM: usize = 16;

/// Maximum number of actions that one call of a [`Mailbox`] method returns.
const ACTIONS: usize = 4;

/// The actions to perform, in this order.
pub type Actions = [Option<Action>; ACTIONS];

/// The connection's state machine, and the mailbox of the worker that establishes a connection.
///
/// One lock of the driver protects both. While a worker runs, events wait for the worker. While no
/// worker runs, the state machine handles each event immediately, and the sender of the event takes
/// the resulting actions before it releases the lock. So no worker can start in between, and no
/// other thread takes the actions of a worker.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The state machine. Only the worker and the task that closes a connection use this field
    /// directly, and they never run at the same time.
    pub conn: Conn,
    /// Whether a worker runs. If so, events wait for the worker.
    worker_active: bool,
    mail: Queue<Event, ROOM>,
}

impl Mailbox {
    /// Returns a mailbox without a worker.
    pub const fn new(conn: Conn) -> Self {
        Self {
            conn,
            worker_active: false,
            mail: Queue::new(),
        }
    }

    /// Starts a worker. From now on events are stored until the worker takes them.
    pub fn worker_started(&mut self) {
        self.worker_active = true;
    }

    /// Returns the next event that waits for the worker.
    pub fn next_event(&mut self) -> Option<Event> {
        self.mail.pop()
    }

    /// Ends the worker. The state machine handles the remaining events before any other event.
    /// Returns the actions to perform.
    pub fn worker_left(&mut self, now: Time) -> Actions {
        self.worker_active = false;
        while let Some(event) = self.mail.pop() {
            self.conn.handle(event, now);
        }
        self.actions()
    }

    /// Delivers an event, from any context. Returns the actions to perform, or `None` if the event
    /// waits for the worker. In that case the caller must wake the worker.
    pub fn deliver(&mut self, event: Event, now: Time) -> Option<Actions> {
        if self.worker_active {
            // If the queue is full the event can be dropped; see `ROOM`.
            self.mail
                .offer_instead(event, |queued| event.replaces(queued));
            return None;
        }
        self.conn.handle(event, now);
        Some(self.actions())
    }

    fn actions(&mut self) -> Actions {
        [(); ACTIONS].map(|()| self.conn.poll_action())
    }
}
