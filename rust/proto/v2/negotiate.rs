// SPDX-License-Identifier: GPL-2.0

//! Which protocol version a connection speaks.
//!
//! Version 2 is an expired draft without deployed servers, so it is off by default (V2-31). When it
//! is on, every new connection begins with one small version 2 call, the *probe*. The probe is
//! alone on the wire and at most 1024 bytes long (V2-04, V2-05). Its answer decides:
//!
//! | Answer                           | Prefer version 2             | Version 2 only    |
//! |----------------------------------|------------------------------|-------------------|
//! | non-error reply                  | version 2                    | version 2         |
//! | ERR_VERS, range contains 1       | version 1, same connection   | no common version |
//! | ERR_VERS, range without 1        | no common version            | no common version |
//! | another error                    | new connection, version 1    | no common version |
//! | none in time, or connection lost | new connection, version 1    | new connection    |
//!
//! The refused version is never sent again on that connection (V2-30, MAL-162). A peer that says it
//! lacks version 2 is believed until its last transport goes away (V2-12). One that was silent,
//! that ended the connection, or that answered with something else gets version 1 next, and is
//! probed again after [`DOUBT`] (V2-08, V2-09). Reasons of our own, such as a device that was
//! removed, say nothing about the peer (V2-31). An agreement is forgotten with the connection. The
//! probe is no RPC of the application, so no RPC sees any of this (V2-35).

use crate::{
    time::{
        Millis,
        Time, //
    },
    wire::{
        header::Version,
        inbound::RemoteErrorKind,
        threshold::MIN_THRESHOLD_V2, //
    }, //
};

/// How long a peer that did not answer the probe is treated as one without version 2 (V2-31).
pub const DOUBT: Millis = Millis::from_secs(600);

/// The administrator's choice (V2-31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionPolicy {
    /// Never send anything but version 1.
    #[default]
    V1Only,
    /// Probe for version 2 and fall back to version 1.
    PreferV2,
    /// Use version 2 or nothing.
    V2Only,
}

/// What answered the probe. Only messages with the probe's xid count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A version 2 reply that is not an error (V2-06).
    Reply,
    /// An error message; ERR_VERS counts whatever `rdma_vers` it carries (V2-07, V2-32).
    Error(RemoteErrorKind),
}

/// The side that ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The peer, or its silence.
    Peer,
    /// This side: we, our device, or our part of the network.
    Us,
}

/// The knowledge about the peer's version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// It did not answer the probe as a peer with version 2 does, at this time.
    Doubtful(Time),
    /// It says that it lacks version 2.
    Lacking,
}

impl Known {
    /// Returns this value as a word, for transports that share it; zero is [`Known::Nothing`].
    pub const fn to_word(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Lacking => 1,
            Self::Doubtful(since) => since.as_millis().saturating_add(2),
        }
    }

    /// Returns the value of a word that [`Known::to_word`] has made.
    pub const fn from_word(word: u64) -> Self {
        match word {
            0 => Self::Nothing,
            1 => Self::Lacking,
            since => Self::Doubtful(Time::from_millis(since.saturating_sub(2))),
        }
    }
}

/// What follows for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send the probe and nothing else until it is answered.
    Probe,
    /// Speak this version for the rest of the connection (V2-12).
    ///
    /// After a fall-back to version 1 only one call may be in flight until its reply has reported a
    /// grant (V2-05, V1-014): the error carried none.
    Use(Version),
    /// Give this connection up and connect again; the next attempt goes by what was remembered.
    Reconnect,
    /// There is no common version (MAL-161).
    Unsupported,
    /// No negotiation is under way; nothing changes.
    Ignored,
}

/// The negotiation of one transport: the policy, and the knowledge about the peer.
#[derive(Clone, Debug)]
pub struct Negotiator {
    policy: VersionPolicy,
    /// The probe was sent and has no answer yet.
    probing: bool,
    known: Known,
}

impl Negotiator {
    /// Makes the state in which nothing is known of the peer.
    pub const fn new(policy: VersionPolicy) -> Self {
        Self {
            policy,
            probing: false,
            known: Known::Nothing,
        }
    }

    /// Sets what the transports of the server know together, before an attempt.
    pub fn learn(&mut self, known: Known) {
        self.known = known;
    }

    /// Records a new connection: [`Outcome::Probe`] or [`Outcome::Use`].
    pub fn begin(&mut self, now: Time) -> Outcome {
        let probe = match self.policy {
            VersionPolicy::V1Only => false,
            VersionPolicy::PreferV2 => !self.peer_lacks_v2(now),
            VersionPolicy::V2Only => true,
        };
        if probe {
            self.probing = true;
            Outcome::Probe
        } else {
            self.agree(Version::V1)
        }
    }

    /// Records the answer to the probe. A reply in version 1 is no answer: it is dropped before
    /// (MAL-163), and the probe's timer ends the wait.
    pub fn answer(&mut self, answer: ProbeAnswer, now: Time) -> Outcome {
        if !self.probing {
            return Outcome::Ignored;
        }
        match answer {
            ProbeAnswer::Reply => {
                self.known = Known::Nothing;
                self.agree(Version::V2)
            }
            ProbeAnswer::Error(kind) => {
                self.known = match kind {
                    RemoteErrorKind::Version { low, high } if offers(low, high, 2) => {
                        Known::Doubtful(now)
                    }
                    RemoteErrorKind::Version { low, high } if offers(low, high, 1) => {
                        Known::Lacking
                    }
                    // The peer has neither version, so version 1 would not help.
                    RemoteErrorKind::Version { .. } => Known::Nothing,
                    _ => Known::Doubtful(now),
                };
                self.refused(kind)
            }
        }
    }

    /// Records that the probe was not answered in time (V2-09, MAL-165).
    pub fn timed_out(&mut self, now: Time) -> Outcome {
        if !self.probing {
            return Outcome::Ignored;
        }
        self.known = Known::Doubtful(now);
        self.stop(Outcome::Reconnect)
    }

    /// Records the end of the connection. If the peer ended it before it answered the probe, the
    /// next connection has version 1 (V2-08, V2-09). An agreement is forgotten, a refusal is not
    /// (V2-12, MAL-164).
    pub fn lost(&mut self, by: EndedBy, now: Time) {
        if self.probing && by == EndedBy::Peer {
            self.known = Known::Doubtful(now);
        }
        self.probing = false;
    }

    /// Records that the peer agreed to version 2, and then refused it to a call before it answered
    /// any: the next connection has version 1.
    pub fn went_back_on_it(&mut self, now: Time) {
        self.known = Known::Doubtful(now);
    }

    /// Whether the peer lacks version 2, or has to be treated so for the time being.
    pub fn peer_lacks_v2(&self, now: Time) -> bool {
        match self.known {
            Known::Nothing => false,
            Known::Doubtful(since) => now.since(since) < DOUBT,
            Known::Lacking => true,
        }
    }

    /// What is known of the peer.
    pub const fn known(&self) -> Known {
        self.known
    }

    fn refused(&mut self, kind: RemoteErrorKind) -> Outcome {
        if self.policy != VersionPolicy::PreferV2 {
            return self.stop(Outcome::Unsupported);
        }
        match kind {
            RemoteErrorKind::Version { low, high } if offers(low, high, 1) => {
                self.agree(Version::V1)
            }
            RemoteErrorKind::Version { .. } => self.stop(Outcome::Unsupported),
            RemoteErrorKind::Chunk | RemoteErrorKind::InvalOption => self.stop(Outcome::Reconnect),
        }
    }

    fn agree(&mut self, version: Version) -> Outcome {
        self.probing = false;
        Outcome::Use(version)
    }

    fn stop(&mut self, outcome: Outcome) -> Outcome {
        self.probing = false;
        outcome
    }
}

/// Whether a version is in the range that a peer names.
///
/// Once version 2 was refused, version 1 is all that is left (V2-30). That the range contains
/// version 2 as well makes no difference for this connection (MAL-162), but then the refusal is no
/// reason never to ask again.
const fn offers(low: u32, high: u32, version: u32) -> bool {
    low <= version && version <= high
}

/// How large a Receive must be, in bytes, so that the peer may settle on any version (V2-10, X-17).
///
/// Receives are posted before the negotiation begins, so with version 2 possible they must hold
/// what a version 2 peer may send without asking.
#[inline]
pub fn receive_size(policy: VersionPolicy, own_receive: u32) -> u32 {
    match policy {
        VersionPolicy::V1Only => own_receive,
        VersionPolicy::PreferV2 | VersionPolicy::V2Only => own_receive.max(MIN_THRESHOLD_V2),
    }
}
