// SPDX-License-Identifier: GPL-2.0

//! What the log tells of a server that stays away: the first failure, then ever less.

use super::cause::ConnectError;
use crate::time::{
    Millis,
    Time, //
};

/// For so long after the first line there is no other, unless the reason changes; doubled each time.
const FIRST_PAUSE: Millis = Millis::from_secs(60);

/// The longest pause between two lines.
const LONGEST_PAUSE: Millis = Millis::from_secs(3600);

/// Attempts in a row without an answer after which the device is under suspicion.
///
/// One lasts a minute in which the request is sent a dozen times.
const SILENT_ATTEMPTS: u32 = 2;

/// What to tell of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Write a line.
    pub tell: bool,
    /// Attempts that failed since there was a connection, with this one.
    pub attempts: u32,
    /// Since the first of them began.
    pub since: Millis,
    /// Say that the device may be the reason.
    pub suspect_device: bool,
}

/// The attempts that failed in a row, and what of them was told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outage {
    attempts: u32,
    begin: Time,
    /// The end of the pause, and its length.
    next: Time,
    pause: Millis,
    /// The reasons that were told in this pause, a bit each.
    told: u32,
    /// Attempts in a row that got no answer over a port that is active.
    silent: u32,
    suspected: bool,
}

impl Outage {
    /// Nothing has failed.
    pub const fn new() -> Self {
        Self {
            attempts: 0,
            begin: Time::from_millis(0),
            next: Time::from_millis(0),
            pause: Millis::new(0),
            told: 0,
            silent: 0,
            suspected: false,
        }
    }

    /// An attempt failed at `now` after it had `lasted` so long. `port_active`: the device believes that its
    /// port works. `may_tell` is asked when there is news, which keeps if it says no.
    pub fn failed(
        &mut self,
        reason: ConnectError,
        lasted: Millis,
        port_active: bool,
        now: Time,
        may_tell: impl FnOnce() -> bool,
    ) -> Report {
        if self.attempts == 0 {
            self.begin = Time::from_millis(now.as_millis().saturating_sub(lasted.get()));
        }
        self.attempts = self.attempts.saturating_add(1);
        self.silent = match reason {
            ConnectError::Unanswered if port_active => self.silent.saturating_add(1),
            _ => 0,
        };
        let suspect_device = self.silent >= SILENT_ATTEMPTS && !self.suspected;
        self.suspected |= suspect_device;
        Report {
            tell: self.tell(reason, now, may_tell),
            attempts: self.attempts,
            since: now.since(self.begin),
            suspect_device,
        }
    }

    /// There is a connection: the attempts that failed before it, and the time since the first of them
    /// began.
    pub fn ended(&mut self, now: Time) -> (u32, Millis) {
        let found = (self.attempts, now.since(self.begin));
        *self = Self::new();
        found
    }

    fn tell(&mut self, reason: ConnectError, now: Time, may_tell: impl FnOnce() -> bool) -> bool {
        // CAST: Reasons are few and carry nothing, so each is a small number.
        let bit = 1u32.wrapping_shl(reason as u32);
        let in_pause = self.told != 0 && now < self.next;
        if in_pause && self.told & bit != 0 || !may_tell() {
            return false;
        }
        if in_pause {
            self.told |= bit;
            return true;
        }
        self.told = bit;
        let twice = Millis::new(self.pause.get().saturating_mul(2));
        self.pause = twice.clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.next = now.after(self.pause);
        true
    }
}
