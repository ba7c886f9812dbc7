// SPDX-License-Identifier: GPL-2.0

//! Credits for a client's Calls (RFC 8166 3.3.1): grants that grow with use, and the Receives that
//! back them.
//!
//! A client may have as many Calls in flight as the last response (a Reply or an error) granted.
//! Each of these Calls is either in process here or needs a posted Receive. So no Reply grants more
//! than the number of posted Receives plus the number of Calls in process, minus the Receives that
//! Replies to the server's own (backchannel) Calls need. An error repeats the last grant.

use crate::wire::header::Credits;

/// The grant grows when as many Calls are in process as it allows. It also grows if, between two
/// calls of [`Grant::pause`], the client makes at least this number of Calls per credit of the
/// grant. This rule is for distant clients. Such a client may use all its credits, but most of its
/// Calls or Replies are on the way, and few Calls are in process.
const BUSY: u32 = 8;
/// The client is idle after this number of consecutive quiet intervals. An interval between two
/// calls of [`Grant::pause`] is quiet if no Call arrives in it, and if at its end no Call is in
/// process and all responses are sent.
const QUIET: u32 = 2;

/// Limits for a client's grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantBounds {
    /// The first grant, and the grant to which an idle client falls back. Zero counts as one.
    pub least: u32,
    /// The maximum grant.
    pub most: u32,
    /// Number of Receives for Replies to the server's own (backchannel) Calls. These Receives are
    /// never granted to the client.
    pub reserved: u32,
    /// Number of Calls that the server tolerates in addition to the granted credits.
    pub spare: u32,
}

/// The right to send one response (a Reply or an error). It belongs to a Call that is in process.
#[derive(Debug)]
#[must_use = "a Call without an answer costs the client a credit"]
pub struct Ticket(());

/// The credits that one response grants. Only [`Grant`] creates this object, and it cannot be
/// copied, so it can be used for one response only.
#[derive(Debug)]
#[must_use = "a ticket was given for it"]
pub struct Granted(Credits);

impl Granted {
    /// Returns the value for the credit field of the response.
    #[inline]
    pub const fn credits(&self) -> Credits {
        self.0
    }
}

/// A response that has taken its grant and waits for space in the send queue. The driver passes it
/// to [`Grant::sent`] when the response is posted.
#[derive(Debug)]
#[must_use = "an answer that is not given back counts against the client for ever"]
pub struct Unsent(u32);

/// The reason for which the server closes a connection. All of these reasons concern credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overdrawn {
    /// The client has more Calls in flight than the largest grant that it may still rely on, plus
    /// [`GrantBounds::spare`].
    Overrun,
    /// Too few Receives are posted: a Reply would have to grant zero credits.
    Starved,
    /// The RPC layer dropped too many Calls. The dropped Calls hold at least half of the credits of
    /// the last grant, or all credits that the next Reply could grant.
    Lost,
}

/// The credit state of one connection.
#[derive(Debug)]
pub struct Grant {
    bounds: GrantBounds,
    /// The grant that the policy aims for.
    target: u32,
    /// Number of Calls since the last call of [`Grant::pause`]. If [`Grant::begin`] has raised
    /// `target` since then, the count begins with the Call that raised it.
    recent: u32,
    /// Number of consecutive quiet intervals, see [`QUIET`].
    quiet: u32,
    /// Credits that the last response granted.
    granted: u32,
    /// The largest grant that the client may still rely on.
    believed: u32,
    /// Number of Calls that may still arrive because the client sends them before it learns of a
    /// smaller grant.
    late: u32,
    /// Number of credits that the client requests.
    requested: u32,
    /// Number of posted Receives. The driver reports some Receives long after it posted them. If
    /// the client sends more Calls than it has credits for, such a Receive may complete before it
    /// is reported. So the number may be negative.
    posted: i32,
    in_process: u32,
    /// Number of responses that wait for space in the send queue.
    unsent: u32,
    /// Sequence number of the response that may be posted next, modulo 2^32.
    next: u32,
    /// Number of Calls that the RPC layer dropped: they never get a response, so the client does
    /// not get their credits back.
    lost: u32,
}

impl Grant {
    /// Creates the credit state of a new connection, before a Receive is posted.
    ///
    /// A client may have one Call in flight before the first response (RFC 8166 3.3.3).
    pub fn new(bounds: GrantBounds) -> Self {
        let least = bounds.least.max(1);
        Self {
            bounds: GrantBounds {
                least,
                most: bounds.most.max(least),
                ..bounds
            },
            target: least,
            recent: 0,
            quiet: 0,
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

    /// Records that this number of Receives was posted.
    #[inline]
    pub fn posted(&mut self, receives: u32) {
        self.posted = self.posted.saturating_add_unsigned(receives);
    }

    /// Records that a Receive completed with a message that needs a response. The Receives of all
    /// other messages stay counted as posted. These messages are Replies to Calls of the server,
    /// and dropped messages. They are handled immediately, and then their Receives are posted
    /// again.
    #[inline]
    pub fn received(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Records a message that needs a response. For a Call, `requested` is the credit field. For a
    /// message that `sort` refuses, `requested` is `None`, because the credit field of such a
    /// message is ignored.
    ///
    /// # Errors
    ///
    /// Returns [`Overdrawn::Overrun`] if the client has too many Calls in flight. The caller must
    /// then close the connection.
    #[inline]
    pub fn begin(&mut self, requested: Option<Credits>) -> Result<Ticket, Overdrawn> {
        if let Some(Credits(requested)) = requested {
            // The number of requested credits is only a hint. Zero counts as one, and
            // [`GrantBounds::most`] limits the grant.
            self.requested = requested.max(1);
        }
        // The client cannot have seen a response that is not sent yet, so the Call of each waiting
        // response still counts as in flight.
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
        self.recent = self.recent.saturating_add(1);
        if self.in_process >= self.target || self.recent >= self.target.saturating_mul(BUSY) {
            // Either as many Calls are in process as the policy wants to grant, or the client has
            // made many Calls recently (see `BUSY`). So the policy doubles the grant that it aims
            // for.
            self.target = self.target.saturating_mul(2).min(self.bounds.most);
            self.recent = 1;
        }
        Ok(Ticket(()))
    }

    /// Returns how many Receives the connection needs for the grant that the policy aims for. This
    /// is the sum of three numbers:
    ///
    /// - the grant itself, which includes the Receives that Calls in process use;
    /// - [`GrantBounds::reserved`], for Replies to the server's own Calls;
    /// - [`GrantBounds::spare`], for the Receives of Calls that were answered a moment ago.
    #[inline]
    pub const fn receives(&self) -> u32 {
        let extra = self.bounds.reserved.saturating_add(self.bounds.spare);
        self.target.saturating_add(extra)
    }

    /// Sets the count of recent Calls to zero. The driver must call this method every few seconds.
    /// A large count makes the grant grow. If the count were never set to zero, it would become
    /// large even for a client that makes few Calls.
    ///
    /// If the client is idle, also halves the grant that the policy aims for. But the grant never
    /// falls below [`GrantBounds::least`], and never so far that dropped Calls would hold half of
    /// its credits. The Receives that the smaller grant does not need stay posted. A client with
    /// Calls in process or unsent responses is not idle: perhaps it sends no Call because it has
    /// used all its credits.
    pub fn pause(&mut self) {
        self.quiet = match (self.recent, self.in_process, self.unsent) {
            (0, 0, 0) => self.quiet.saturating_add(1),
            _ => 0,
        };
        self.recent = 0;
        if self.quiet >= QUIET {
            let least = self.lost.saturating_mul(2).saturating_add(1);
            let least = least.max(self.bounds.least).min(self.target);
            self.target = (self.target / 2).max(least);
        }
    }

    /// Exchanges the ticket of a Call for the credits that its Reply grants. The Receive for the
    /// client's next Call must already be posted. Responses must be posted in the order in which
    /// their tickets were exchanged, because a client relies on the grant that it received last.
    ///
    /// # Errors
    ///
    /// Returns [`Overdrawn::Starved`] if the grant would be zero, which is forbidden. Returns
    /// [`Overdrawn::Lost`] if the dropped Calls hold all credits of the grant. The caller must then
    /// close the connection.
    #[inline]
    pub fn answer(&mut self, ticket: Ticket) -> Result<Granted, Overdrawn> {
        self.end(ticket);
        let backed = self.backed().saturating_sub(self.bounds.reserved);
        let grant = self.goal().min(backed);
        if grant <= self.lost {
            return Err(Self::useless(grant));
        }
        if grant < self.granted {
            // Until the client sees this smaller grant, it may use an earlier, larger grant. Some
            // of the Calls that the larger grant allows have already arrived: the Calls in process,
            // and the Call that gets this Reply. The other Calls may still arrive.
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

    /// Exchanges the ticket of a Call for the credits in its error message. An error grants the
    /// same credits as the last response, because the client may ignore the credits in an error. So
    /// an error can be sent even if few Receives are posted: the error does not raise the grant,
    /// and the Receives of answered Calls are posted again soon.
    pub fn refuse(&mut self, ticket: Ticket) -> Granted {
        self.end(ticket);
        Granted(Credits(self.granted))
    }

    /// Records that the newest response (the last that took a grant) must wait, because the send
    /// queue is full. Until that response is posted, its Call counts as in flight. So a client that
    /// does not receive its responses exceeds its grant, and is disconnected. At most
    /// [`GrantBounds::most`] plus [`GrantBounds::spare`] responses wait.
    #[inline]
    pub fn wait(&mut self) -> Unsent {
        let number = self.next.wrapping_add(self.unsent);
        self.unsent = self.unsent.saturating_add(1);
        Unsent(number)
    }

    /// Returns true if this waiting response may be posted, because all responses with earlier
    /// grants have been posted. The check is needed: the threads that store waiting responses may
    /// overtake each other, so the stored responses may be in another order than the grants.
    #[inline]
    pub const fn may_send(&self, Unsent(number): &Unsent) -> bool {
        *number == self.next
    }

    /// Records that a waiting response was posted. The response must be the one for which
    /// [`may_send`](Self::may_send) returns true.
    #[inline]
    pub fn sent(&mut self, Unsent(number): Unsent) {
        self.unsent = self.unsent.saturating_sub(1);
        self.next = number.wrapping_add(1);
    }

    /// Returns true if responses wait for space in the send queue. A new response must then wait,
    /// too, and is posted after those responses.
    #[inline]
    pub const fn has_unsent(&self) -> bool {
        self.unsent > 0
    }

    /// Records that the RPC layer dropped a Call and will never reply to it. The client waits in
    /// vain, and the credit of the Call is lost until the connection closes.
    ///
    /// # Errors
    ///
    /// Returns [`Overdrawn::Lost`] if half of the grant or more is lost. The caller must then close
    /// the connection, so that the client sends its Calls again.
    pub fn drop_unanswered(&mut self, ticket: Ticket) -> Result<(), Overdrawn> {
        self.end(ticket);
        self.lost = self.lost.saturating_add(1);
        if self.lost.saturating_mul(2) >= self.granted {
            return Err(Overdrawn::Lost);
        }
        Ok(())
    }

    /// Returns the grant of the last response. Before the first response, returns 1.
    #[inline]
    pub const fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns how many Calls are in process: they have no response yet, and were not dropped.
    #[inline]
    pub const fn in_process(&self) -> u32 {
        self.in_process
    }

    /// Returns how many Calls without a response the client may have, including the tolerated
    /// excess.
    #[inline]
    const fn most(&self) -> u32 {
        self.believed.saturating_add(self.bounds.spare)
    }

    /// Returns why the connection must end if a Reply could grant only `grant` credits.
    #[cold]
    fn useless(grant: u32) -> Overdrawn {
        match grant {
            0 => Overdrawn::Starved,
            _ => Overdrawn::Lost,
        }
    }

    /// Takes back a ticket, because its Call is no longer in process.
    #[inline]
    fn end(&mut self, Ticket(()): Ticket) {
        self.in_process = self.in_process.saturating_sub(1);
    }

    /// Returns the grant that the policy aims for, or the client's request if that is smaller.
    #[inline]
    const fn goal(&self) -> u32 {
        if self.target < self.requested {
            self.target
        } else {
            self.requested
        }
    }

    /// Returns how many Calls the server can hold: those in process, and one for each posted
    /// Receive.
    #[inline]
    const fn backed(&self) -> u32 {
        self.in_process.saturating_add_signed(self.posted)
    }
}
