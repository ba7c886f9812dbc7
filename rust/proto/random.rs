// SPDX-License-Identifier: GPL-2.0

//! Random numbers for jitter ([`Random`]).

use crate::time::Millis;

/// The SplitMix64 generator. It suffices for jitter, but its numbers are predictable.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Makes a generator; `seed` should differ from host to host.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `end`, or zero if `end` is zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// Returns a span between half of `ceiling` and `ceiling`, both included.
    pub(crate) fn upper_half(&mut self, ceiling: Millis) -> Millis {
        let half = ceiling.get() >> 1;
        let spread = ceiling.get().saturating_sub(half).saturating_add(1);
        Millis::new(half.saturating_add(self.below(spread)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
