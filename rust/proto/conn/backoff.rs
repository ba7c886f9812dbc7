// SPDX-License-Identifier: GPL-2.0

//! When the next connection attempt may start.

use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};

/// Bounds of the reconnect delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// Upper bound of the delay after the first failure; it doubles with each further failure.
    pub first: Millis,
    /// Upper bound of every delay.
    pub max: Millis,
}

impl Default for BackoffConfig {
    /// Half a second, doubling up to thirty seconds.
    fn default() -> Self {
        Self {
            first: Millis::new(500),
            max: Millis::from_secs(30),
        }
    }
}

/// Number of failures in a row after which a further bound of the delays also doubles with each
/// failure.
const BOUNDED: u32 = 16;

/// The span over which first attempts that need no pause are spread.
pub(super) const SPREAD: Millis = Millis::new(250);

/// Exponential back-off with jitter.
///
/// The delay doubles with every failure in a row. It is drawn from the upper half of its range, so
/// that the clients of a restarted server come back spread out. Only a reply resets it: the delay
/// keeps growing with a peer that accepts and then drops every connection (MAL-152).
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// A further bound of the delays to come.
    bound: Option<Millis>,
    failures: u32,
    not_before: Time,
    random: Random,
}

impl Backoff {
    /// Makes a back-off without a failure. `seed` decides the jitter and should differ from host to
    /// host.
    pub const fn new(config: BackoffConfig, seed: u64) -> Self {
        Self {
            config,
            bound: None,
            failures: 0,
            not_before: Time::from_millis(0),
            random: Random::new(seed),
        }
    }

    /// Records a failed attempt or a lost connection: the next attempt waits.
    pub fn failed(&mut self, now: Time) {
        let ceiling = self.ceiling();
        self.failures = self.failures.saturating_add(1);
        self.not_before = now.after(self.random.upper_half(ceiling));
    }

    /// Records that a healthy connection was closed: the next attempt may start at once. The
    /// failures stay counted, because closing an unused connection proves nothing.
    pub fn closed_cleanly(&mut self, now: Time) {
        self.not_before = now;
    }

    /// Starts the next attempt within `SPREAD`, at random, so that not all clients come at once.
    pub fn spread(&mut self, now: Time) {
        self.not_before = now.after(Millis::new(self.random.below(SPREAD.get())));
    }

    /// Starts the next attempt within `SPREAD`, but not at once.
    pub fn pause(&mut self, now: Time) {
        self.not_before = now.after(self.random.upper_half(SPREAD));
    }

    /// Records a reply: the next failure counts as the first.
    #[inline]
    pub fn useful(&mut self) {
        self.failures = 0;
    }

    /// Lowers the upper bound of the delay; a larger value than the present one changes nothing. It
    /// is never less than the first delay: the value may come from the server.
    pub fn limit(&mut self, max: Millis) {
        self.config.max = self.config.max.min(max.max(self.config.first));
    }

    /// Sets or removes a further bound of the delays that begin from now on.
    pub fn bound(&mut self, bound: Option<Millis>) {
        self.bound = bound;
    }

    /// The earliest start of the next attempt.
    #[inline]
    pub const fn not_before(&self) -> Time {
        self.not_before
    }

    /// Failures in a row since the last reply.
    #[inline]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// The upper bound of the delay the next failure brings.
    fn ceiling(&self) -> Millis {
        let delay = doubled(self.config.first, self.failures);
        let bound = self.bound.unwrap_or(self.config.max);
        // A peer that is away for long is asked less often.
        let bound = doubled(bound, self.failures.saturating_sub(BOUNDED));
        delay.min(bound).min(self.config.max)
    }
}

/// A delay doubled `times` times.
fn doubled(delay: Millis, times: u32) -> Millis {
    // A shift of 20 already turns one millisecond into a quarter of an hour.
    let factor = 1u64.checked_shl(times.min(20)).unwrap_or(u64::MAX);
    Millis::new(delay.get().saturating_mul(factor))
}
