// SPDX-License-Identifier: GPL-2.0

//! Rate limit of the log messages about a server that cannot be reached ([`Outage`]).

use super::{
    cause::ConnectError,
    config::FIRST_REQUEST_TIMEOUT, //
};
use crate::time::{
    Millis,
    Time, //
};

/// Pause between the first log message and the second. A new failure reason is reported without a
/// pause. Each further pause is twice as long as the previous pause.
const FIRST_PAUSE: Millis = Millis::from_secs(60);

/// The longest pause between two log messages.
const LONGEST_PAUSE: Millis = Millis::from_secs(3600);

/// Number of unanswered attempts in a row after which the log names the device as a suspect. An
/// attempt counts only if it lasts for at least [`FIRST_REQUEST_TIMEOUT`], so that the connection
/// request is sent several times. The short attempts over several rails do not count: each of them
/// may use another device.
const SILENT_ATTEMPTS: u32 = 2;

/// What the log must say about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether to write a log message.
    pub tell: bool,
    /// Number of attempts that failed since the last connection, including the reported attempt.
    pub attempts: u32,
    /// Time since the start of the first attempt that failed after the last connection.
    pub since: Millis,
    /// Whether the log message must name the device as a possible reason.
    pub suspect_device: bool,
}

/// The attempts that failed in a row, and which of them were reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outage {
    attempts: u32,
    begin: Time,
    /// Time at which the pause between two log messages ends. `pause` is the length of this pause.
    next: Time,
    pause: Millis,
    /// The failure reasons that were reported in the current pause, one bit for each reason.
    told: u32,
    /// Number of long attempts in a row that got no answer although the local port was active.
    silent: u32,
    suspected: bool,
}

impl Outage {
    /// Returns the initial state: no attempt has failed.
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

    /// Records that an attempt failed at the time `now`.
    ///
    /// - `lasted` is the time since the start of the attempt.
    /// - `port_active` says that the device reports an active port.
    /// - `may_tell` is called when there is something to report. If it returns false, the report is
    ///   due at the next failure.
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
            ConnectError::Unanswered if port_active && lasted >= FIRST_REQUEST_TIMEOUT => {
                self.silent.saturating_add(1)
            }
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

    /// Records a new connection. Returns the number of attempts that failed before the connection,
    /// and the time since the first failed attempt began.
    pub fn ended(&mut self, now: Time) -> (u32, Millis) {
        let found = (self.attempts, now.since(self.begin));
        *self = Self::new();
        found
    }

    fn tell(&mut self, reason: ConnectError, now: Time, may_tell: impl FnOnce() -> bool) -> bool {
        // CAST: `ConnectError` has no fields and fewer than 32 variants, so the number is below 32.
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
