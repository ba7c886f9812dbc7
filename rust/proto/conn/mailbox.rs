// SPDX-License-Identifier: GPL-2.0

//! Where events are handed in, whoever drives the machine ([`Mailbox`]).

use super::{
    action::Action,
    drive::Conn,
    event::Event,
    queue::Queue, //
};
use crate::time::Time;

/// Events that can wait for the worker. What does not fit is of no use: an attempt has fewer.
const ROOM: usize = 16;

/// More actions than one event can cause, or what a worker leaves.
const ACTIONS: usize = 4;

/// What is to be done, in this order.
pub type Actions = [Option<Action>; ACTIONS];

/// The connection machine and the mailbox of the worker that makes an attempt.
///
/// Both are behind the driver's one lock. So whoever has an event either leaves it to the worker, or
/// hands it to the machine and takes what that asks for before a worker can come: nobody takes away
/// what the worker is to do.
#[derive(Clone, Debug)]
pub struct Mailbox {
    /// The machine: for the worker, and for whoever closes a connection, which is never at the same time.
    pub conn: Conn,
    /// Whether there is a worker.
    worker_active: bool,
    mail: Queue<Event, ROOM>,
}

impl Mailbox {
    /// Without a worker.
    pub const fn new(conn: Conn) -> Self {
        Self {
            conn,
            worker_active: false,
            mail: Queue::new(),
        }
    }

    /// A worker comes: from now on events wait for it.
    pub fn worker_started(&mut self) {
        self.worker_active = true;
    }

    /// The next event that waits for the worker.
    pub fn next_event(&mut self) -> Option<Event> {
        self.mail.pop()
    }

    /// The worker goes: the machine gets the events that are left, before any other.
    pub fn worker_left(&mut self, now: Time) -> Actions {
        self.worker_active = false;
        while let Some(event) = self.mail.pop() {
            self.conn.handle(event, now);
        }
        self.actions()
    }

    /// Hands an event in, from anywhere. `None`: it waits for the worker, who has to be woken.
    pub fn deliver(&mut self, event: Event, now: Time) -> Option<Actions> {
        if self.worker_active {
            // What finds no room is no news, see `ROOM`.
            self.mail.offer(event);
            return None;
        }
        self.conn.handle(event, now);
        Some(self.actions())
    }

    fn actions(&mut self) -> Actions {
        [(); ACTIONS].map(|()| self.conn.poll_action())
    }
}
