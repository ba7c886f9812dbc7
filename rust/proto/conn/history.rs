// SPDX-License-Identifier: GPL-2.0

//! The memory of attempts that failed and of connections that ended.

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

/// One failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub reason: ConnectError,
    /// The errno of the step that this host refused; 0 for any other reason.
    pub errno: i32,
    /// When it failed.
    pub at: Time,
    /// How long it took, without the back-off before it.
    pub lasted: Millis,
}

/// One finished connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnect {
    /// Which connection.
    pub epoch: Epoch,
    /// Why it ended.
    pub cause: Cause,
    /// When it ended.
    pub at: Time,
    /// How long it was established.
    pub lasted: Millis,
    /// Whether at least one reply arrived on it.
    pub useful: bool,
    /// How long a probe had been unanswered; nothing if none was under way.
    pub unanswered: Millis,
    /// The connection manager's event of the end, if it came before we disconnected.
    pub cm: Option<CmEvent>,
    /// The device's report.
    pub seen: Seen,
}

/// By then an adapter that can be reached has answered a probe, whatever its host does.
const UNANSWERED: Millis = Millis::from_secs(1);

impl Disconnect {
    /// Whether the rail of the connection is to blame: because of the cause or of the device's
    /// report, or because a probe was unanswered. The unanswered probe is the only sign if no
    /// packet reaches the peer and the peer closes the connection first.
    pub fn blames_rail(&self) -> bool {
        let mut statuses = self.seen.statuses();
        let was_silent = self.unanswered >= UNANSWERED && !self.cause.is_clean();
        self.cause.blames_rail()
            || was_silent
            || statuses.any(|status| status == WcStatus::RetryExceeded)
    }

    /// Whether the rail of the connection may be to blame, though nothing says so, if calls were in
    /// flight. Where nothing gets through to the peer, but something does from there, the peer's
    /// device may be the first to give up; what we hear then is its disconnect request, or only
    /// that work requests were flushed.
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

/// How many finished connections are remembered.
pub const HISTORY: usize = 8;

/// The last [`HISTORY`] finished connections.
#[derive(Clone, Debug, Default)]
pub struct History {
    ring: [Option<Disconnect>; HISTORY],
}

impl History {
    /// Remembers `disconnect`; forgets the oldest one if there is no room.
    pub(super) fn push(&mut self, disconnect: Disconnect) {
        self.ring.rotate_right(1);
        let [newest, ..] = &mut self.ring;
        *newest = Some(disconnect);
    }

    /// Returns the newest entry, if it is of this connection.
    pub(super) fn newest(&mut self, epoch: Epoch) -> Option<&mut Disconnect> {
        let [newest, ..] = &mut self.ring;
        newest.as_mut().filter(|newest| newest.epoch == epoch)
    }

    /// The remembered connections, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Disconnect> {
        self.ring.iter().flatten()
    }
}
