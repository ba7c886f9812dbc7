// SPDX-License-Identifier: GPL-2.0

//! The states of a transport.

use super::{
    action::Phase,
    attempt::{
        Attempt,
        Stage, //
    },
    cause::ConnectError,
    established::Up, //
};
use crate::time::Millis;

/// The state of a transport.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// There is no connection, and none is wanted.
    Down,
    /// The next attempt waits for the end of the back-off. The attempt may take at most `timeout`.
    Waiting { timeout: Millis },
    /// An attempt is being made.
    Attempt(Attempt),
    /// The transport is connected.
    Up(Up),
    /// The objects of an attempt or a connection are being released.
    Closing {
        /// Whether the driver has taken the tear-down action. The driver answers this action with
        /// `TornDown`.
        told: bool,
        then: Then,
    },
    /// The transport was shut down for good.
    Stopped,
}

/// What the state machine does after the driver has released the objects of the attempt or
/// connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Then {
    /// Does nothing. The RPC layer requests the next connection when it needs one.
    Rest,
    /// Reports the failure of the attempt.
    Fail(ConnectError),
    /// Makes a connection attempt that lasts at most this long.
    Restart(Millis),
}

impl State {
    /// Returns the closing state in which the driver has not taken the teardown action yet.
    pub(super) const fn closing(then: Then) -> Self {
        Self::Closing { told: false, then }
    }

    /// Records that the driver has taken the teardown action.
    pub(super) fn told(&mut self) {
        if let Self::Closing { told, .. } = self {
            *told = true;
        }
    }

    /// Returns the state, for logs and debugfs.
    pub(super) const fn phase(&self) -> Phase {
        match self {
            Self::Down => Phase::Down,
            Self::Waiting { .. } => Phase::Waiting,
            Self::Attempt(attempt) => attempt.stage().phase(),
            Self::Up(_) => Phase::Up,
            Self::Closing { .. } => Phase::Closing,
            Self::Stopped => Phase::Stopped,
        }
    }

    /// Returns the established connection, if there is one.
    pub(super) fn up(&mut self) -> Option<&mut Up> {
        match self {
            Self::Up(up) => Some(up),
            _ => None,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self, Self::Up(_))
    }

    #[inline]
    pub(super) const fn is_closing(&self) -> bool {
        matches!(self, Self::Closing { .. })
    }

    /// Returns whether an attempt is in this step.
    pub(super) fn is_in(&self, stage: Stage) -> bool {
        matches!(self, Self::Attempt(attempt) if attempt.stage() == stage)
    }
}
