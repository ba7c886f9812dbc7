// SPDX-License-Identifier: GPL-2.0

//! Credits of a client's Calls (RFC 8166 3.3.1): grants that grow with use, and Receives for them.
//!
//! A client may have as many Calls in flight as the last answer granted. Each of them is either in
//! process here or needs a posted Receive. So no answer grants more than the Receives that are
//! posted and the Calls that are in process, less the Receives that Replies to our own Calls need.

use crate::wire::header::Credits;

/// The bounds of a client's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantBounds {
    /// The first grant, and that of an idle client; at least one.
    pub least: u32,
    /// The largest grant.
    pub most: u32,
    /// Receives for Replies to our own Calls, which are never granted.
    pub reserved: u32,
    /// Number of Calls above every grant that are tolerated.
    pub spare: u32,
}

/// The right to give one answer. It belongs to a Call that is in process.
#[derive(Debug)]
#[must_use = "a Call without an answer costs the client a credit"]
pub struct Ticket(());

/// What one answer grants. It cannot be made or copied elsewhere, so it belongs to one answer.
#[derive(Debug)]
#[must_use = "a ticket was given for it"]
pub struct Granted(Credits);

impl Granted {
    /// The credit word of the answer.
    #[inline]
    pub const fn credits(&self) -> Credits {
        self.0
    }
}

/// An answer that has its grant and waits for room in the send queue. It is returned with
/// [`Grant::sent`].
#[derive(Debug)]
#[must_use = "an answer that is not given back counts against the client for ever"]
pub struct Unsent(u32);

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overdrawn {
    /// The client has more Calls in flight than any grant allows that it may know of.
    Overrun,
    /// No Receive is posted for the client's next Call, so nothing can be granted.
    Starved,
    /// Half of the grant is lost to Calls that the RPC layer dropped.
    Lost,
}

/// The credits of one connection.
#[derive(Debug)]
pub struct Grant {
    bounds: GrantBounds,
    /// The grant that the policy wants to give.
    target: u32,
    /// The grant of the last answer.
    granted: u32,
    /// The largest grant that the client may still go by.
    believed: u32,
    /// Calls that may come before the client knows of a smaller grant.
    late: u32,
    /// Number of credits that the client asks for.
    requested: u32,
    /// Receives that are posted.
    posted: u32,
    in_process: u32,
    /// Answers that wait for room in the send queue.
    unsent: u32,
    /// The number of the first of them, modulo 2^32.
    next: u32,
    /// Calls that never get an answer.
    lost: u32,
}

impl Grant {
    /// The credits of a new connection, before a Receive is posted.
    ///
    /// A client may have one Call in flight before the first answer (RFC 8166 3.3.3).
    pub fn new(bounds: GrantBounds) -> Self {
        let least = bounds.least.max(1);
        Self {
            bounds: GrantBounds {
                least,
                most: bounds.most.max(least),
                ..bounds
            },
            target: least,
            granted: 1,
            believed: 1,
            late: 0,
            requested: u32::MAX,
            posted: 0,
            in_process: 0,
            unsent: 0,
            next: 0,
            lost: 0,
        }
    }

    /// How many Receives to post now, so that the next answer can grant what the policy wants.
    /// Post them, then say so with [`posted`](Self::posted), then answer.
    #[inline]
    pub const fn wanted(&self) -> u32 {
        // The place of the Call that is answered next becomes free.
        let leaves = if self.in_process > 0 { 1 } else { 0 };
        let reserved = self.bounds.reserved;
        let all = self.needed().saturating_add(reserved);
        let all = all.saturating_add(leaves).saturating_sub(self.backed());
        // Calls that an earlier, larger grant allowed may still come.
        let late = self.late.saturating_add(reserved);
        let late = late.saturating_sub(self.posted);
        if late > all {
            late
        } else {
            all
        }
    }

    /// Receives were posted.
    #[inline]
    pub fn posted(&mut self, receives: u32) {
        self.posted = self.posted.saturating_add(receives);
    }

    /// Records that a Receive completed, with any message.
    #[inline]
    pub fn received(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Records a message that needs an answer. `requested` is the credit word of a Call, and `None`
    /// for a message that is refused unread.
    ///
    /// # Errors
    ///
    /// [`Overdrawn::Overrun`] ends the connection.
    pub fn begin(&mut self, requested: Option<Credits>) -> Result<Ticket, Overdrawn> {
        if let Some(Credits(requested)) = requested {
            // A request is only a wish: zero is read as one, and our own bound is the maximum.
            self.requested = requested.max(1);
        }
        // The client cannot have seen an answer that waits, so it counts that Call, too.
        if self.in_process.saturating_add(self.unsent) >= self.most() {
            return Err(Overdrawn::Overrun);
        }
        self.in_process = self.in_process.saturating_add(1);
        if self.late > 0 {
            self.late = self.late.saturating_sub(1);
            if self.late == 0 {
                self.believed = self.granted;
            }
        }
        if self.in_process >= self.target {
            // The client uses all credits that it can get.
            self.target = self.target.saturating_mul(2).min(self.bounds.most);
        }
        Ok(Ticket(()))
    }

    /// Takes a ticket for a Reply, and says what that grants. The Receive for the client's next
    /// Call is posted before. Answers are posted in the order in which they took their grants, for
    /// a client believes the last one that it sees.
    ///
    /// # Errors
    ///
    /// [`Overdrawn::Starved`] ends the connection: a grant of zero is forbidden.
    pub fn answer(&mut self, ticket: Ticket) -> Result<Granted, Overdrawn> {
        self.end(ticket);
        let backed = self.backed().saturating_sub(self.bounds.reserved);
        let grant = self.goal().min(backed);
        if grant == 0 {
            return Err(Overdrawn::Starved);
        }
        if grant < self.granted {
            // The client may still send Calls that earlier grants allowed, but none of these after
            // it saw this answer. The Calls in process and this one do not count among them.
            let known = self.in_process.saturating_add(1);
            self.late = self.believed.saturating_sub(known);
        }
        if grant >= self.believed || self.late == 0 {
            self.believed = grant;
            self.late = 0;
        }
        self.granted = grant;
        Ok(Granted(Credits(grant)))
    }

    /// Takes a ticket for an error, which repeats the last grant: the client need not take a grant
    /// from an error. The Receive for the client's next Call is posted before.
    ///
    /// # Errors
    ///
    /// [`Overdrawn::Starved`] ends the connection.
    pub fn refuse(&mut self, ticket: Ticket) -> Result<Granted, Overdrawn> {
        self.end(ticket);
        let backed = self.backed().saturating_sub(self.bounds.reserved);
        if backed < self.granted {
            return Err(Overdrawn::Starved);
        }
        Ok(Granted(Credits(self.granted)))
    }

    /// Records that the last answer finds no room in the send queue. Until it is posted its Call
    /// counts against the client. So a client that takes no answers is overrun, and at most
    /// [`GrantBounds::most`] and [`GrantBounds::spare`] answers wait.
    #[inline]
    pub fn wait(&mut self) -> Unsent {
        let number = self.next.wrapping_add(self.unsent);
        self.unsent = self.unsent.saturating_add(1);
        Unsent(number)
    }

    /// Returns whether a waiting answer may be posted: those that took their grants before it have
    /// been. Threads that keep their answers may overtake each other.
    #[inline]
    pub const fn may_send(&self, Unsent(number): &Unsent) -> bool {
        *number == self.next
    }

    /// Records that a waiting answer was posted, which was the next.
    #[inline]
    pub fn sent(&mut self, Unsent(number): Unsent) {
        self.unsent = self.unsent.saturating_sub(1);
        self.next = number.wrapping_add(1);
    }

    /// True if answers wait. A new one waits behind them.
    #[inline]
    pub const fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Records that the RPC layer dropped a Call for good. The client waits for ever, and its
    /// credit is lost.
    ///
    /// # Errors
    ///
    /// [`Overdrawn::Lost`] ends the connection, so that the client sends its Calls again.
    pub fn drop_unanswered(&mut self, ticket: Ticket) -> Result<(), Overdrawn> {
        self.end(ticket);
        self.lost = self.lost.saturating_add(1);
        if self.lost.saturating_mul(2) >= self.granted {
            return Err(Overdrawn::Lost);
        }
        Ok(())
    }

    /// Records that the connection was idle for a while: the next answers grant half as much.
    /// Receives that are posted stay; those that complete are not posted again.
    pub fn rest(&mut self) {
        self.target = (self.target / 2).max(self.bounds.least);
    }

    /// The grant of the last answer; one before the first.
    #[inline]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// How many Calls have no answer yet.
    #[inline]
    pub const fn in_process(&self) -> u32 {
        self.in_process
    }

    /// Calls without an answer that the client may have, including those that are tolerated.
    const fn most(&self) -> u32 {
        self.believed.saturating_add(self.bounds.spare)
    }

    /// Takes back a ticket: its Call is not in process any more.
    fn end(&mut self, Ticket(()): Ticket) {
        self.in_process = self.in_process.saturating_sub(1);
    }

    /// What the policy wants to grant, and the client asks for.
    const fn goal(&self) -> u32 {
        if self.target < self.requested {
            self.target
        } else {
            self.requested
        }
    }

    /// The number that Receives must back: the goal, and the grant that an error repeats.
    const fn needed(&self) -> u32 {
        let goal = self.goal();
        if goal > self.granted {
            goal
        } else {
            self.granted
        }
    }

    /// Calls that have a place: they are in process, or a Receive waits for them.
    const fn backed(&self) -> u32 {
        self.posted.saturating_add(self.in_process)
    }
}
