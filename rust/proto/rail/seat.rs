// SPDX-License-Identifier: GPL-2.0

//! The use of a rail by a connection ([`Seat`]), the choice of a rail for an attempt ([`Choice`]),
//! and the state of a rail for debugfs ([`View`]).

use super::place::Rail;
use crate::time::{
    Millis,
    Time, //
};

/// The use of a rail by one connection, from the attempt to the end of the connection. The driver
/// must release it with [`Rails::leave`](super::Rails::leave) or
/// [`Rails::take`](super::Rails::take).
#[derive(Debug)]
#[must_use]
pub struct Seat {
    pub(super) on: u8,
    /// The rail to which the connection is about to move. The connection is already counted on that
    /// rail.
    pub(super) to: Option<u8>,
    /// Time of the first check whether the connection must move to another rail. The connection was
    /// made at this time or earlier.
    pub(super) carries: Option<Time>,
    /// Whether the time limit of the attempt is short: the attempt ends before the connection
    /// manager repeats the connection request.
    pub(super) hasty: bool,
    /// Whether the attempt was given up before the connection manager repeated the connection
    /// request.
    pub(super) in_vain: bool,
    /// Before this time the connection does not leave a live rail.
    pub(super) rests: Time,
    /// Before this time the connection leaves a live rail only while the connection is idle. The
    /// reason is that an earlier move was given up, because the connection's calls took too long.
    pub(super) stays: Time,
    /// Number of times that the connection gave up a move to another rail, because its calls took
    /// too long.
    pub(super) stayed: u32,
    /// Time since which calls have been in flight on this connection and no message has arrived.
    pub(super) waits: Option<Time>,
}

impl Seat {
    pub(super) const fn new(on: u8) -> Self {
        Self {
            on,
            to: None,
            carries: None,
            hasty: false,
            in_vain: false,
            rests: Time::from_millis(0),
            stays: Time::from_millis(0),
            stayed: 0,
            waits: None,
        }
    }
}

/// A probe that is in flight on a rail. The driver must report the outcome of the probe with
/// [`Rails::probed`](super::Rails::probed).
#[derive(Debug)]
#[must_use]
pub struct Probe {
    pub(super) on: u8,
    pub(super) begun: Time,
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// The probe established a connection.
    Connected,
    /// The probe established no connection.
    Failed,
    /// The probe was cancelled, or this host lacked a resource for it. This outcome says nothing
    /// about the rail.
    NotTried,
}

/// How a connection moves to another rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The connection moves without waiting for its calls, because its rail does not work.
    Flee,
    /// The connection moves when no call is in flight on it, so that no call is sent twice.
    Shift,
}

/// The rail that an attempt uses, and the pause and the time limit of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The rail.
    pub rail: Rail,
    /// Whether the attempt starts without a pause. This is true if the last attempt or connection
    /// failed because of its rail, and the new rail is trusted.
    pub at_once: bool,
    /// Maximum duration of the attempt; `None` if there is only one rail.
    pub limit: Option<Millis>,
}

/// The state of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The rail works, as far as is known.
    Live,
    /// The rail works again, but has not worked for the whole hold-down time.
    Returning,
    /// The rail may be dead and is being probed. There are three possible reasons: a connection
    /// over the rail ended without a known reason; an attempt over the rail was refused or not
    /// answered in time; the server is silent.
    Doubted,
    /// The rail does not work.
    Dead,
    /// The rail is no longer in the administrator's tables.
    Gone,
}

impl Standing {
    /// Returns a short name for debugfs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Returning => "returning",
            Self::Doubted => "doubted",
            Self::Dead => "dead",
            Self::Gone => "gone",
        }
    }
}

/// The state of a rail, for debugfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The rail.
    pub rail: Rail,
    /// Whether the rail works.
    pub standing: Standing,
    /// Time since which the rail is in its present state: live, suspected, doubted or dead.
    pub since: Time,
    /// Number of connections and attempts on the rail.
    pub load: u32,
}
