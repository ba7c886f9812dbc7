// SPDX-License-Identifier: GPL-2.0

//! The record of attempts that failed and of connections that ended.

use super::{
    cause::{
        Cause,
        ConnectError, //
    },
    event::{
        CmEvent,
        Epoch, //
    },
    failure_details::Seen, //
};
use crate::{
    time::{
        Millis,
        Time, //
    },
    wc::WcStatus, //
};

/// A failed attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why the attempt failed.
    pub reason: ConnectError,
    /// The errno of the step that failed on this host; 0 if the attempt failed for another reason.
    pub errno: i32,
    /// When the attempt failed.
    pub at: Time,
    /// How long the attempt took, without the back-off before the attempt.
    pub lasted: Millis,
}

/// A connection that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// The epoch that identifies the connection.
    pub epoch: Epoch,
    /// Why the connection ended.
    pub cause: Cause,
    /// When the connection ended.
    pub at: Time,
    /// How long the connection was established.
    pub lasted: Millis,
    /// Whether at least one reply arrived on the connection.
    pub useful: bool,
    /// How long the keepalive probe had been unanswered; zero if no probe was in flight.
    pub unanswered: Millis,
    /// The connection manager's first event about the end of the connection, if that event came
    /// before the driver disconnected.
    pub cm: Option<CmEvent>,
    /// What the device reported about the end of the connection.
    pub seen: Seen,
}

/// A reachable adapter answers a keepalive probe within this time, even if its host is busy.
const UNANSWERED: Millis = Millis::from_secs(1);

impl Disconnect {
    /// Returns whether the connection ended because of its rail. Each of three signs is sufficient:
    /// the cause of the end, the device's report, or an unanswered probe. If no packet reaches the
    /// peer and the peer closes the connection first, the unanswered probe is the only sign.
    pub fn blames_rail(&self) -> bool {
        let mut statuses = self.seen.statuses();
        let was_silent = self.unanswered >= UNANSWERED && !self.cause.is_clean();
        self.cause.blames_rail()
            || was_silent
            || statuses.any(|status| status == WcStatus::RetryExceeded)
    }

    /// Returns whether the rail may be at fault although no report blames it. The caller must
    /// ignore the result unless calls were in flight.
    ///
    /// Example: the peer's packets reach this host, but this host's packets do not reach the peer.
    /// If the peer's device gives up first, this host sees only the peer's disconnect request, or
    /// flushed work requests.
    pub fn doubts_rail(&self) -> bool {
        let says_nothing = |status| matches!(status, WcStatus::Flushed | WcStatus::Other);
        let is_unexplained = match self.cause {
            Cause::PeerClosed => true,
            Cause::Completion(status) => says_nothing(status),
            _ => false,
        };
        is_unexplained && !self.seen.repeated && self.seen.statuses().all(says_nothing)
    }
}

/// Number of finished connections that are remembered.
pub const HISTORY: usize = 8;

/// The last [`HISTORY`] finished connections.
#[derive(Clone, Debug, Default)]
pub struct History {
    ring: [Option<Disconnect>; HISTORY],
}

impl History {
    /// Remembers `disconnect`; forgets the oldest finished connection if the history is full.
    pub(super) fn push(&mut self, disconnect: Disconnect) {
        self.ring.rotate_right(1);
        let [newest, ..] = &mut self.ring;
        *newest = Some(disconnect);
    }

    /// Returns the newest entry, if it belongs to the connection of `epoch`.
    pub(super) fn newest(&mut self, epoch: Epoch) -> Option<&mut Disconnect> {
        let [newest, ..] = &mut self.ring;
        newest.as_mut().filter(|newest| newest.epoch == epoch)
    }

    /// Returns the remembered connections, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Disconnect> {
        self.ring.iter().flatten()
    }
}
