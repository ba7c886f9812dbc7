// SPDX-License-Identifier: GPL-2.0

//! Where a transport stands.

use super::{
    action::Phase,
    attempt::{
        Attempt,
        Stage, //
    },
    cause::ConnectError,
    up::Up, //
};
use crate::time::Millis;

/// The state of a transport.
#[derive(Clone, Debug)]
pub(super) enum State {
    /// No connection, and none is wanted.
    Down,
    /// An attempt of at most `timeout` waits for the back-off.
    Waiting { timeout: Millis },
    /// An attempt is being made.
    Attempt(Attempt),
    /// Connected.
    Up(Up),
    /// An attempt or a connection is being torn down.
    Closing {
        /// The driver has taken the action that it will answer with `TornDown`.
        told: bool,
        then: Then,
    },
    /// Shut down for good.
    Stopped,
}

/// What follows a tear-down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Then {
    /// Nothing: the RPC layer will ask again.
    Rest,
    /// Report the failed attempt.
    Fail(ConnectError),
    /// The RPC layer asked again: make an attempt of at most this length.
    Restart(Millis),
}

impl State {
    /// A tear-down whose action the driver has not taken yet.
    pub(super) const fn closing(then: Then) -> Self {
        Self::Closing { told: false, then }
    }

    /// The driver has taken the action of the tear-down.
    pub(super) fn told(&mut self) {
        if let Self::Closing { told, .. } = self {
            *told = true;
        }
    }

    /// The state, for logs and debugfs.
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

    /// The established connection, if there is one.
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

    /// Whether an attempt is in this step.
    pub(super) fn is_in(&self, stage: Stage) -> bool {
        matches!(self, Self::Attempt(attempt) if attempt.stage() == stage)
    }
}
