// SPDX-License-Identifier: GPL-2.0

//! The place of a connection on a rail ([`Seat`]), how it comes to it ([`Choice`]), and how a rail
//! looks from outside ([`View`]).

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
    /// It is about to move there, and counts there already.
    pub(super) to: Option<u8>,
    /// Since when there is a connection that is looked after.
    pub(super) carries: Option<Time>,
    /// The attempt is given up before the connection manager repeats the request.
    pub(super) hasty: bool,
    /// The attempt was given up so.
    pub(super) in_vain: bool,
    /// It is not moved to make the numbers even before.
    pub(super) rests: Time,
    /// It was to move, and calls did not end: it is not asked to again before, unless it is idle.
    pub(super) stays: Time,
    /// How often that was so.
    pub(super) stayed: u32,
    /// Since when it has been seen to wait for a reply, with nothing received.
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

/// What came of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probed {
    /// A connection was made.
    Connected,
    /// None was.
    Failed,
    /// It was called off, which says nothing of the rail.
    NotTried,
}

/// How a connection moves to another rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// At once: its rail is dead, so nothing is worth waiting for.
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

/// How a rail stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing shows that it does not work.
    Live,
    /// It works again, and has not been live for the hold-down.
    Returning,
    /// A connection over it ended, and nothing says why, an attempt was refused or not answered at
    /// once, or nothing comes from the server: it is being tried.
    Doubted,
    /// It does not work.
    Dead,
    /// It is no longer in the tables.
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
    /// Since when it has been live or dead.
    pub since: Time,
    /// Connections and attempts on it.
    pub load: u32,
}
