// SPDX-License-Identifier: GPL-2.0

//! The use of a rail by a connection ([`Seat`]), the choice of a rail for an attempt ([`Choice`]),
//! and the state of a rail as shown to an administrator ([`View`]).

use super::place::Rail;
use crate::time::{
    Millis,
    Time, //
};

/// The place of one connection, from its attempt to its end. It must be given back
/// ([`Rails::leave`](super::Rails::leave), [`Rails::take`](super::Rails::take)).
#[derive(Debug)]
#[must_use]
pub struct Seat {
    pub(super) on: u8,
    /// The rail to which it is about to move, and for which it counts already.
    pub(super) to: Option<u8>,
    /// The time since which the connection exists and is watched.
    pub(super) carries: Option<Time>,
    /// The attempt is given up before the connection manager repeats the request.
    pub(super) hasty: bool,
    /// True if the attempt was given up before the connection manager repeated the request.
    pub(super) in_vain: bool,
    /// Before this time the connection does not move to make the numbers equal.
    pub(super) rests: Time,
    /// Before this time the connection is not asked to move again, unless it is idle: it was to
    /// move, and its calls did not end.
    pub(super) stays: Time,
    /// Number of times that this has happened.
    pub(super) stayed: u32,
    /// The time since which it has been seen waiting for a reply without a message.
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

/// A probe of a rail, dead or doubted, that is under way. It must be given back
/// ([`Rails::probed`](super::Rails::probed)).
#[derive(Debug)]
#[must_use]
pub struct Probe {
    pub(super) on: u8,
    pub(super) begun: Time,
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// A connection was made.
    Connected,
    /// No connection was made.
    Failed,
    /// The probe was called off, which says nothing about the rail.
    NotTried,
}

/// How a connection moves to another rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// At once: its rail is dead, so waiting is useless.
    Flee,
    /// When nothing is in flight, so that no call is sent twice.
    Shift,
}

/// The rail that an attempt takes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Which.
    pub rail: Rail,
    /// No pause is due before the attempt: the last one, or the connection, failed for its rail,
    /// and nothing speaks against this one.
    pub at_once: bool,
    /// How long the attempt may take; `None` if this is the only rail.
    pub limit: Option<Millis>,
}

/// The state of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing shows that it does not work.
    Live,
    /// It works again, and has not been live for the hold-down.
    Returning,
    /// The rail is being tried, because a connection over it ended without a known reason, an
    /// attempt was refused or not answered at once, or no message comes from the server.
    Doubted,
    /// The rail does not work.
    Dead,
    /// The rail is no longer in the tables.
    Gone,
}

impl Standing {
    /// A short name for debugfs.
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

/// A rail as an administrator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Which.
    pub rail: Rail,
    /// How it stands.
    pub standing: Standing,
    /// The time since which it has been live or dead.
    pub since: Time,
    /// Connections and attempts on it.
    pub load: u32,
}
