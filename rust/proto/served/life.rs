// SPDX-License-Identifier: GPL-2.0

//! The life of a served connection, from the accept to the end.
//!
//! ```text
//! Accepting --established or first message--> Up --cause--> Ended
//!     \------------------- cause or deadline ---------------/
//! ```
//!
//! The driver reports what happens with the time and gets an [`Act`]. It calls
//! [`tick`](Life::tick) at least as often as it says.

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
    /// From the accept to the client's confirmation.
    pub confirm: Millis,
    /// From the last sign of life to a probe.
    pub silence: Millis,
    /// From a probe to its completion.
    pub answer: Millis,
    /// For the oldest work request on the send queue to complete. Such are RDMA Reads that the
    /// client does not answer, and messages for which it posts no Receive: it may be alive, and
    /// send Calls.
    pub transfer: Millis,
    /// From one tick to the next, with room for a busy host.
    pub tick: Millis,
    /// Malformed messages after which the connection ends, see [`DiscardLimit`].
    pub malformed: u32,
}

/// The driver's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    Nothing,
    /// Pass the messages that came before to the RPC layer, once: the connection is up.
    Begin,
    /// Send a message that the client's adapter answers.
    Probe,
    /// End the connection and log the reason. Returned once.
    End(Cause),
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The accept was sent.
    Accepting,
    Up {
        /// A probe was posted and has not completed.
        probing: bool,
    },
    Ended,
}

/// The life of one connection.
#[derive(Debug)]
pub struct Life {
    patience: Patience,
    state: State,
    iwarp: bool,
    /// When the client was last heard, or the state began.
    since: Time,
    ticked: Time,
    /// When the send queue moved, or had nothing to do.
    moved: Time,
    /// How many of its work requests had completed then.
    completed: u32,
    /// Whether the client has sent a message.
    spoken: bool,
    malformed: DiscardLimit,
    options: Refusals,
}

impl Life {
    /// The life of a connection whose accept is sent now. On iWARP the passive side waits for the
    /// first message of the client before it sends anything (RFC 5044 7.1).
    pub fn accepting(patience: Patience, iwarp: bool, now: Time) -> Self {
        Self {
            state: State::Accepting,
            iwarp,
            since: now,
            ticked: now,
            moved: now,
            completed: 0,
            spoken: false,
            malformed: DiscardLimit::new(patience.malformed, now),
            options: Refusals::default(),
            patience,
        }
    }

    /// Records that the client has confirmed the connection, as the connection manager reports.
    pub fn established(&mut self, now: Time) -> Act {
        match self.state {
            State::Accepting => self.up(now),
            State::Up { .. } | State::Ended => Act::Nothing,
        }
    }

    /// Records a message. Until [`Act::Begin`] the driver keeps it: the client may send before the
    /// connection manager reports its confirmation, and then this message confirms the connection.
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

    /// Records a sign of life.
    fn alive(&mut self, now: Time) -> Act {
        if let State::Up { probing } = &mut self.state {
            *probing = false;
            self.since = now;
        }
        Act::Nothing
    }

    /// Records a message that was dropped or refused because it is malformed.
    pub fn malformed(&mut self) -> Act {
        match self.malformed.discard(None) {
            Reaction::Ignore => Act::Nothing,
            Reaction::Reconnect | Reaction::FailCall => self.end(Cause::Malformed),
        }
    }

    /// Records that an option is refused. A client may ask for any, so that is not malformed; but
    /// few such answers are on their way at a time.
    pub fn refuse_option(&mut self) -> Act {
        match self.options.begin() {
            Ok(()) => Act::Nothing,
            Err(Flood) => self.end(Cause::Options),
        }
    }

    /// Records that the client's adapter has the refusal of an option.
    #[inline]
    pub fn option_refused(&mut self) {
        self.options.end();
    }

    /// Ends the connection for this cause.
    pub fn end(&mut self, cause: Cause) -> Act {
        if self.state == State::Ended {
            return Act::Nothing;
        }
        self.state = State::Ended;
        Act::End(cause)
    }

    /// Time passed.
    pub fn tick(&mut self, now: Time) -> Act {
        self.malformed.tick(now);
        self.forgive(now);
        let waited = now.since(self.since);
        match self.state {
            State::Accepting if waited >= self.patience.confirm => self.end(Cause::HalfOpen),
            State::Up { probing: false } if waited >= self.patience.silence => {
                if !self.may_send() {
                    // On iWARP the client's first message confirms the connection.
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

    /// Looks at the send queue, after [`tick`](Self::tick): whether work requests are under way,
    /// and how many signalled ones have completed up to now, probes included. [`Act::Probe`] is for
    /// a queue whose work requests are not signalled: the probe's completion speaks for them.
    ///
    /// What has completed was answered by the client's adapter, so it is a sign of life.
    pub fn send_queue(&mut self, now: Time, under_way: bool, completed: u32) -> Act {
        let has_moved = completed != self.completed;
        if has_moved {
            self.completed = completed;
            self.alive(now);
        }
        if !under_way || has_moved {
            self.moved = now;
            return Act::Nothing;
        }
        let waited = now.since(self.moved).get();
        let most = self.patience.transfer.get();
        if waited >= most {
            self.end(Cause::Transfer)
        } else if waited >= most / 2 && self.may_send() {
            Act::Probe
        } else {
            Act::Nothing
        }
    }

    /// True if a message may be sent, or anything else to the client.
    #[inline]
    pub fn may_send(&self) -> bool {
        match self.state {
            State::Up { .. } => self.spoken || !self.iwarp,
            State::Accepting | State::Ended => false,
        }
    }

    /// True if the RPC layer may have messages of the client.
    #[inline]
    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }

    fn up(&mut self, now: Time) -> Act {
        self.state = State::Up { probing: false };
        self.since = now;
        Act::Begin
    }

    /// Time in which this host stood still does not count, as the client could not be heard in it.
    fn forgive(&mut self, now: Time) {
        let gap = now.since(self.ticked).get();
        let lost = gap.saturating_sub(self.patience.tick.get());
        self.since = self.since.after(Millis::new(lost)).min(now);
        self.moved = self.moved.after(Millis::new(lost)).min(now);
        self.ticked = now;
    }
}
