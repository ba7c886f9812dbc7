// SPDX-License-Identifier: GPL-2.0

//! The states of a server connection, from the accept to the disconnect.
//!
//! ```text
//! Accepting --established or first message--> Up --cause--> Ended
//!     \------------------- cause or deadline ---------------/
//! ```
//!
//! The driver reports each event with the time, and performs the returned [`Act`]. The driver calls
//! [`tick`](Life::tick) at least every [`Patience::tick`].

use crate::{
    rpc::limit::{
        DiscardLimit,
        Reaction, //
    },
    served::cause::Cause,
    time::{
        Millis,
        Time, //
    },
    v2::refusals::{
        Flood,
        Refusals, //
    }, //
};

/// The time limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Maximum time from the accept to the client's confirmation.
    pub confirm: Millis,
    /// Time from the last sign of life of the client to a probe.
    pub silence: Millis,
    /// Maximum time from a probe to the completion of the probe.
    pub answer: Millis,
    /// Maximum time without a completion on a busy send queue. A client that sends Calls is alive,
    /// but can still block the queue by not answering RDMA Reads or by posting no Receives.
    pub transfer: Millis,
    /// Maximum time from the post to the completion of a signalled work request. The limit applies
    /// only if the connection holds memory during all of this time, and other Calls wait for
    /// memory. The measurement is coarse: a work request may take up to twice the limit.
    pub drain: Millis,
    /// Maximum normal time from one tick to the next, with a reserve for a busy host. If more time
    /// passes, this host was suspended or stalled. In this case the deadlines are postponed by the
    /// additional time.
    pub tick: Millis,
    /// Number of malformed messages after which the connection is closed; see [`DiscardLimit`].
    pub malformed: u32,
}

/// The state of the send queue at a tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Whether work requests are posted and not completed.
    pub under_way: bool,
    /// Number of signalled work requests that are posted and not completed, probes included.
    pub signalled: u32,
    /// Number of signalled work requests that have completed so far, probes included.
    pub completed: u32,
    /// Whether this connection holds memory ([`holds_memory`]), and some Call has waited for memory
    /// since the last tick. The Call may belong to another connection.
    pub is_in_the_way: bool,
}

/// Maximum number of RDMA transfers whose memory does not matter. Each transfer of a small result
/// holds a few pages, which no limit counts.
const FEW_TRANSFERS: u32 = 16;

/// Returns whether a connection holds memory that others may need. `counted` is the number of its
/// pages that count towards the limits of the server. `transfers` is the number of its RDMA Reads
/// and Writes that have not completed, of counted and of other Calls.
#[inline]
pub const fn holds_memory(counted: u32, transfers: u32) -> bool {
    counted != 0 || transfers > FEW_TRANSFERS
}

impl Progress {
    /// Returns whether the connection is busy. A busy connection must not be closed to make space
    /// for another connection. The connection is busy if Calls are without a response
    /// (`has_calls`), or if the RDMA Writes of a response have not completed. These Writes are
    /// signalled.
    ///
    /// A connection with a probe in flight counts as busy, too. This does not last: the probe
    /// completes, or the connection ends.
    #[inline]
    pub const fn is_busy(&self, has_calls: bool) -> bool {
        has_calls || self.signalled != 0
    }
}

/// The next action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// No action is required.
    Nothing,
    /// The connection is up: pass the messages that have arrived so far to the RPC layer.
    Begin,
    /// Post a request to which the client's adapter responds.
    Probe,
    /// Disconnect and log the reason. Returned only once for a connection.
    End(Cause),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The accept was sent; the client has not confirmed the connection.
    Accepting,
    Up {
        /// Whether a probe was posted and has not completed.
        probing: bool,
    },
    Ended,
}

/// The state of one connection.
#[derive(Debug)]
pub struct Life {
    patience: Patience,
    state: State,
    iwarp: bool,
    /// Time of the last sign of life of the client, or of the last change of state.
    since: Time,
    ticked: Time,
    /// Time at which the send queue last had a completion or was empty.
    moved: Time,
    /// Number of signalled work requests that had completed when the send queue last had a
    /// completion.
    completed: u32,
    /// Time at which `mark` was last set.
    marked: Time,
    /// Number of signalled work requests that had completed or were in flight at the time `marked`.
    mark: u32,
    /// Whether the client has sent a message.
    spoken: bool,
    malformed: DiscardLimit,
    options: Refusals,
}

impl Life {
    /// Creates the state of a connection that the driver accepts now. On iWARP the passive side
    /// must send nothing before the first message of the client arrives (RFC 5044, section 7.1).
    pub fn accepting(patience: Patience, iwarp: bool, now: Time) -> Self {
        Self {
            state: State::Accepting,
            iwarp,
            since: now,
            ticked: now,
            moved: now,
            completed: 0,
            marked: now,
            mark: 0,
            spoken: false,
            malformed: DiscardLimit::new(patience.malformed, now),
            options: Refusals::default(),
            patience,
        }
    }

    /// Records the connection manager's report that the client has confirmed the connection.
    pub fn established(&mut self, now: Time) -> Act {
        match self.state {
            State::Accepting => self.up(now),
            State::Up { .. } | State::Ended => Act::Nothing,
        }
    }

    /// Records that a message arrived. The driver keeps messages until it gets [`Act::Begin`]. A
    /// message may arrive before the connection manager reports the client's confirmation. Such a
    /// message confirms the connection.
    pub fn message(&mut self, now: Time) -> Act {
        if self.state == State::Ended {
            return Act::Nothing;
        }
        self.spoken = true;
        match self.state {
            State::Accepting => self.up(now),
            _ => self.alive(now),
        }
    }

    /// Records a sign of life of the client.
    fn alive(&mut self, now: Time) -> Act {
        if let State::Up { probing } = &mut self.state {
            *probing = false;
            self.since = now;
        }
        Act::Nothing
    }

    /// Records that a malformed message was dropped or refused.
    pub fn malformed(&mut self) -> Act {
        match self.malformed.discard(None) {
            Reaction::Ignore => Act::Nothing,
            Reaction::Reconnect | Reaction::FailCall => self.end(Cause::Malformed),
        }
    }

    /// Records that an option is refused. A client may request any option, so the request does not
    /// count as malformed. But the number of refusals whose Send has not completed is limited.
    pub fn refuse_option(&mut self) -> Act {
        match self.options.begin() {
            Ok(()) => Act::Nothing,
            Err(Flood) => self.end(Cause::Options),
        }
    }

    /// Records that the client's adapter has received the refusal of an option.
    #[inline]
    pub fn option_refused(&mut self) {
        self.options.end();
    }

    /// Closes the connection for this cause, unless it is closed already.
    pub fn end(&mut self, cause: Cause) -> Act {
        if self.state == State::Ended {
            return Act::Nothing;
        }
        self.state = State::Ended;
        Act::End(cause)
    }

    /// Checks the deadlines of the connection.
    pub fn tick(&mut self, now: Time) -> Act {
        self.malformed.tick(now);
        self.forgive(now);
        let waited = now.since(self.since);
        match self.state {
            State::Accepting if waited >= self.patience.confirm => self.end(Cause::HalfOpen),
            State::Up { probing: false } if waited >= self.patience.silence => {
                if !self.may_send() {
                    // On iWARP the client has to send the first message, and has sent none.
                    return self.end(Cause::HalfOpen);
                }
                self.state = State::Up { probing: true };
                self.since = now;
                Act::Probe
            }
            State::Up { probing: true } if waited >= self.patience.answer => {
                self.end(Cause::Silent)
            }
            State::Accepting | State::Up { .. } | State::Ended => Act::Nothing,
        }
    }

    /// Checks the progress of the send queue; the driver calls this after [`tick`](Self::tick).
    /// Returns [`Act::Probe`] if no completion came for half of [`Patience::transfer`]. A probe is
    /// needed because the posted work requests may be unsignalled. If the probe completes, all work
    /// requests before it have completed.
    ///
    /// A completion is a sign of life, because the client's adapter acknowledged the completed
    /// request. So even a client whose adapter acknowledges a request only now and then keeps its
    /// connection. But if other Calls need the memory that this connection holds, the limit
    /// [`Patience::drain`] also applies to such a client.
    pub fn send_queue(&mut self, now: Time, queue: Progress) -> Act {
        let has_moved = queue.completed != self.completed;
        if has_moved {
            self.completed = queue.completed;
            self.alive(now);
        }
        // `completed` and `mark` wrap around. If `completed` has not reached `mark`, the wrapping
        // subtraction returns a large number.
        let is_past_mark = queue.completed.wrapping_sub(self.mark) <= u32::MAX / 2;
        if is_past_mark || !queue.under_way || !queue.is_in_the_way {
            self.mark = queue.completed.wrapping_add(queue.signalled);
            self.marked = now;
        } else if now.since(self.marked) >= self.patience.drain {
            return self.end(Cause::Stalled);
        }
        if !queue.under_way || has_moved {
            self.moved = now;
            return Act::Nothing;
        }
        let waited = now.since(self.moved).get();
        let most = self.patience.transfer.get();
        if waited >= most {
            self.end(Cause::Stalled)
        } else if waited >= most / 2 && self.may_send() {
            Act::Probe
        } else {
            Act::Nothing
        }
    }

    /// Returns true if messages, RDMA Reads and RDMA Writes may be posted.
    #[inline]
    pub fn may_send(&self) -> bool {
        match self.state {
            State::Up { .. } => self.spoken || !self.iwarp,
            State::Accepting | State::Ended => false,
        }
    }

    fn up(&mut self, now: Time) -> Act {
        self.state = State::Up { probing: false };
        self.since = now;
        Act::Begin
    }

    /// Postpones the deadlines by the time in which this host was suspended or stalled, because
    /// this host could not receive messages from the client during that time.
    fn forgive(&mut self, now: Time) {
        let gap = now.since(self.ticked).get();
        let lost = gap.saturating_sub(self.patience.tick.get());
        self.since = self.since.after(Millis::new(lost)).min(now);
        self.moved = self.moved.after(Millis::new(lost)).min(now);
        self.marked = self.marked.after(Millis::new(lost)).min(now);
        self.ticked = now;
    }
}
