// SPDX-License-Identifier: GPL-2.0

//! The limit on connection attempts that start without a pause after a failed attempt ([`Haste`]).
//! The attempts may use one rail or several rails.

use super::cause::ConnectError;
use crate::rail::MAX_RAILS;

/// Maximum number of connection attempts without a pause between them. This number allows a few
/// attempts over each rail.
const AT_ONCE: usize = 4 * MAX_RAILS;

/// Maximum number of attempts without a pause between them, if they fail because the peer still
/// holds an older connection. Each attempt makes the peer drop one old connection. If a device was
/// removed and created again, the peer may still hold every connection that the device had before.
const STALE_AT_ONCE: usize = 8;

/// Counts the attempts that have failed in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Haste {
    failed: usize,
    stale: usize,
}

impl Haste {
    /// Records a failed attempt. Returns whether the next attempt may follow without a pause.
    pub fn may_follow(&mut self, reason: ConnectError) -> bool {
        self.failed = self.failed.saturating_add(1);
        if reason == ConnectError::Stale {
            self.stale = self.stale.saturating_add(1);
        }
        self.failed < AT_ONCE && self.stale <= STALE_AT_ONCE
    }
}
