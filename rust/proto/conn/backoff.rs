// SPDX-License-Identifier: GPL-2.0

//! When the next connection attempt may start.

use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};

/// Limits of the reconnect delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffConfig {
    /// Upper limit of the delay after the first failure. The limit doubles with each further
    /// failure.
    pub first: Millis,
    /// Upper limit of every delay.
    pub max: Millis,
}

impl Default for BackoffConfig {
    /// The first delay is at most half a second. This maximum doubles up to thirty seconds.
    fn default() -> Self {
        Self {
            first: Millis::new(500),
            max: Millis::from_secs(30),
        }
    }
}

/// The limit that [`Backoff::bound`] sets stays the same for this number of failures in a row. It
/// doubles with each further failure.
const BOUNDED: u32 = 16;

/// Time over which the reconnects of many clients are spread if no back-off is due.
pub(super) const SPREAD: Millis = Millis::new(250);

/// Exponential back-off with jitter.
///
/// The delay doubles with every failure in a row. Each delay is a random time in the upper half of
/// its range, so that the clients of a restarted server do not all reconnect at the same time. Only
/// a reply resets the delay. So the delay keeps growing if the peer accepts and then drops every
/// connection (MAL-152).
#[derive(Clone, Debug)]
pub struct Backoff {
    config: BackoffConfig,
    /// A limit in addition to those in `config`; see [`Backoff::bound`].
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

    /// Records that a healthy connection was closed: the next attempt may start immediately. The
    /// failures stay counted, because closing an unused connection proves nothing.
    pub fn closed_cleanly(&mut self, now: Time) {
        self.not_before = now;
    }

    /// Sets a random delay below `SPREAD` for the next attempt, so that the clients of a server do
    /// not all reconnect at the same moment.
    pub fn spread(&mut self, now: Time) {
        self.not_before = now.after(Millis::new(self.random.below(SPREAD.get())));
    }

    /// Sets a delay between half of `SPREAD` and `SPREAD` for the next attempt.
    pub fn pause(&mut self, now: Time) {
        self.not_before = now.after(self.random.upper_half(SPREAD));
    }

    /// Records a reply: the next failure counts as the first.
    #[inline]
    pub fn useful(&mut self) {
        self.failures = 0;
    }

    /// Lowers the upper limit of the delay to `max`. A `max` above the present limit changes
    /// nothing. `max` may come from the server, so the limit is never lowered below the first
    /// delay.
    pub fn limit(&mut self, max: Millis) {
        self.config.max = self.config.max.min(max.max(self.config.first));
    }

    /// Sets or removes an additional upper limit for delays that begin after this call.
    pub fn bound(&mut self, bound: Option<Millis>) {
        self.bound = bound;
    }

    /// Returns the earliest start of the next attempt.
    #[inline]
    pub const fn not_before(&self) -> Time {
        self.not_before
    }

    /// Returns the number of failures in a row since the last reply.
    #[inline]
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Returns the upper limit of the delay after the next failure.
    fn ceiling(&self) -> Millis {
        let delay = doubled(self.config.first, self.failures);
        let bound = self.bound.unwrap_or(self.config.max);
        // If the peer stays unreachable for long, attempts become rarer.
        let bound = doubled(bound, self.failures.saturating_sub(BOUNDED));
        delay.min(bound).min(self.config.max)
    }
}

/// Returns `delay` multiplied by two to the power of `times`.
fn doubled(delay: Millis, times: u32) -> Millis {
    // A shift by 20 bits already turns one millisecond into a quarter of an hour, so no larger
    // shift is needed.
    let factor = 1u64.checked_shl(times.min(20)).unwrap_or(u64::MAX);
    Millis::new(delay.get().saturating_mul(factor))
}
