// SPDX-License-Identifier: GPL-2.0

//! Negotiation of the protocol version of a connection.
//!
//! Version 2 is an expired draft without deployed servers, so it is off by default (V2-31). When
//! version 2 is on, every new connection begins with one small version 2 call, the *probe*. The
//! probe is at most 1024 bytes long, and nothing else is sent until the server answers it (V2-04,
//! V2-05). The answer decides:
//!
//! | Answer                           | Prefer version 2             | Version 2 only    |
//! |----------------------------------|------------------------------|-------------------|
//! | non-error reply                  | version 2                    | version 2         |
//! | ERR_VERS, range contains 1       | version 1, same connection   | no common version |
//! | ERR_VERS, range without 1        | no common version            | no common version |
//! | another error                    | new connection, version 1    | no common version |
//! | none in time, or connection lost | new connection, version 1    | new connection    |
//!
//! A version that the peer refused is never sent again on that connection (V2-30, MAL-162). A peer
//! that reports that it lacks version 2 is not probed again until the last transport to that peer
//! is gone (V2-12). A peer that was silent, closed the connection, or sent another error gets
//! version 1 on the next connection, and is probed again after [`DOUBT`] (V2-08, V2-09). A
//! connection that is lost for a local reason, such as a removed device, says nothing about the
//! peer, and neither does a probe that the peer's adapter does not acknowledge (V2-31). An
//! agreement on version 2 ends with the connection. The probe is not an RPC of the upper layer, so
//! no RPC fails if the negotiation fails (V2-35).

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

/// Time for which a peer that did not answer the probe is treated as a peer without version 2
/// (V2-31).
pub const DOUBT: Millis = Millis::from_secs(600);

/// The protocol versions that the administrator allows (V2-31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionPolicy {
    /// Use version 1 only.
    #[default]
    V1Only,
    /// Probe for version 2 and fall back to version 1.
    PreferV2,
    /// Use version 2 only. If the peer does not support it, there is no connection.
    V2Only,
}

/// The type of message that answered the probe. Only messages with the probe's xid are answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeAnswer {
    /// A version 2 reply that is not an error (V2-06).
    Reply,
    /// An error message. ERR_VERS is accepted with any number in `rdma_vers` (V2-07, V2-32).
    Error(RemoteErrorKind),
}

/// The side that ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedBy {
    /// The peer closed the connection or did not respond.
    Peer,
    /// This host closed the connection, or its device or network failed.
    Us,
}

/// What is known about the peer's support of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing is known.
    Nothing,
    /// The peer did not answer the probe, or answered the probe with an error. The field is the
    /// time of this event.
    Doubtful(Time),
    /// The peer reported a range of versions without version 2.
    Lacking,
}

impl Known {
    /// Combines what two transports to the same peer know. A reported refusal counts more than a
    /// doubt, and a later doubt counts more than an earlier doubt. If one transport knows nothing,
    /// the result is what the other transport knows.
    pub fn together(self, other: Self) -> Self {
        match (self, other) {
            (Self::Lacking, _) | (_, Self::Lacking) => Self::Lacking,
            (Self::Doubtful(one), Self::Doubtful(two)) => Self::Doubtful(one.max(two)),
            (Self::Nothing, known) | (known, Self::Nothing) => known,
        }
    }
}

/// The driver's next action for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Send the probe, and send nothing else until the probe is answered.
    Probe,
    /// Use this version for the rest of the connection (V2-12).
    ///
    /// After a fall-back to version 1 only one call may be in flight until the first reply grants
    /// credits (V2-05, V1-014), because the error message granted none.
    Use(Version),
    /// Close this connection and connect again. [`Negotiator::begin`] then uses what was learned
    /// about the peer.
    Reconnect,
    /// The two ends have no common version (MAL-161).
    Unsupported,
    /// No negotiation is in progress, so nothing changes.
    Ignored,
}

/// The negotiation of one transport: the policy, and what is known about the peer.
#[derive(Clone, Debug)]
pub struct Negotiator {
    policy: VersionPolicy,
    /// Whether a probe was sent and has not been answered yet.
    probing: bool,
    known: Known,
}

impl Negotiator {
    /// Creates the state of a transport that knows nothing about the peer.
    pub const fn new(policy: VersionPolicy) -> Self {
        Self {
            policy,
            probing: false,
            known: Known::Nothing,
        }
    }

    /// Replaces what this transport knows about the peer by `known`, the knowledge that all
    /// transports to one server share. The driver calls this method before each connection attempt.
    /// After each attempt and after each connection, the driver adds what this transport knows to
    /// the shared knowledge. So what an earlier peer said does not count for another peer.
    pub fn learn(&mut self, known: Known) {
        self.known = known;
    }

    /// Records a new connection. Returns [`Outcome::Probe`] or [`Outcome::Use`].
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

    /// Records the answer to the probe. A reply in version 1 is no answer: the receive path drops
    /// such a reply (MAL-163), and the negotiation ends when the probe's timer expires.
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
                    // The peer supports neither version 1 nor version 2, so remembering its refusal
                    // would not help.
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

    /// Records the loss of the connection. If the peer closed the connection before it answered the
    /// probe, the next connection uses version 1 (V2-08, V2-09). The loss ends an agreement on
    /// version 2, but a refusal of version 2 is remembered (V2-12, MAL-164).
    pub fn lost(&mut self, by: EndedBy, now: Time) {
        if self.probing && by == EndedBy::Peer {
            self.known = Known::Doubtful(now);
        }
        self.probing = false;
    }

    /// Records that the peer agreed to version 2, but refused version 2 in its answer to the first
    /// call. The next connection uses version 1.
    pub fn went_back_on_it(&mut self, now: Time) {
        self.known = Known::Doubtful(now);
    }

    /// Returns true if the peer lacks version 2, or if the state has been [`Known::Doubtful`] for
    /// less than [`DOUBT`].
    pub fn peer_lacks_v2(&self, now: Time) -> bool {
        match self.known {
            Known::Nothing => false,
            Known::Doubtful(since) => now.since(since) < DOUBT,
            Known::Lacking => true,
        }
    }

    /// Returns what is known about the peer.
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

/// Returns true if a version is in the range that the peer's ERR_VERS reports.
///
/// A peer that refused version 2 may report a range that contains version 2 (MAL-162). Even so,
/// this connection can only use version 1 (V2-30). But the peer is probed again on a later
/// connection.
const fn offers(low: u32, high: u32, version: u32) -> bool {
    low <= version && version <= high
}

/// The default size in bytes of the longest inline message.
pub const DEFAULT_SIZE: u32 = 4096;

/// The default size in bytes of the longest inline message if version 2 is allowed. A READ or WRITE
/// of 4 KiB fits into one message of this size.
pub const DEFAULT_SIZE_V2: u32 = 8192;

/// Returns the size in bytes of the longest message that this host announces. Usually this is the
/// configured size `wanted`. But if `wanted` is the default and version 2 is allowed, this is the
/// larger default for version 2.
#[inline]
pub const fn announced_size(policy: VersionPolicy, wanted: u32) -> u32 {
    match policy {
        VersionPolicy::V1Only => wanted,
        VersionPolicy::PreferV2 | VersionPolicy::V2Only => match wanted {
            DEFAULT_SIZE => DEFAULT_SIZE_V2,
            _ => wanted,
        },
    }
}

/// Returns the size of a Receive buffer in bytes that suffices for every allowed version (V2-10,
///
///
/// Receives are posted before the negotiation begins. If version 2 is allowed, each Receive must
/// hold the largest message that a version 2 peer may send without negotiation.
#[inline]
pub fn receive_size(policy: VersionPolicy, own_receive: u32) -> u32 {
    match policy {
        VersionPolicy::V1Only => own_receive,
        VersionPolicy::PreferV2 | VersionPolicy::V2Only => own_receive.max(MIN_THRESHOLD_V2),
    }
}
