// SPDX-License-Identifier: GPL-2.0

//! Decides whether a call polls for its own reply ([`Polling`]).

use kernel::sync::atomic::Atomic;
use xprtrdma_rdma::{
    access_once::AccessOnce, //
    cq::PollOutcome,
};

/// If a new call interrupts a call that polls for its reply, this number of later calls sleep
/// instead of polling.
const COOLDOWN: u32 = 16;

/// How the next calls on a connection wait for their replies.
enum Mode {
    /// If only a single call is in flight, this call polls for its reply.
    Poll,
    /// Number of further calls that sleep instead of polling.
    Cooldown(u32),
}

/// An atomic [`Mode`]. Its accesses are `Relaxed`, because no other memory access depends on their
/// order.
pub(super) struct Polling(Atomic<u32>);

impl Polling {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    #[inline]
    fn mode(&self) -> Mode {
        match self.0.read_once() {
            0 => Mode::Poll,
            calls => Mode::Cooldown(calls),
        }
    }

    #[inline]
    fn set(&self, mode: Mode) {
        self.0.write_once(match mode {
            Mode::Poll => 0,
            Mode::Cooldown(calls) => calls,
        });
    }

    /// Polls for the reply to the only call in flight if the mode is `Mode::Poll`. If the mode is
    /// `Mode::Cooldown`, does not poll, and counts this call as a call that sleeps.
    #[inline]
    pub(super) fn busy_poll(&self, poll: impl FnOnce() -> PollOutcome) {
        match self.mode() {
            Mode::Poll => {
                if poll() == PollOutcome::Stopped {
                    self.set(Mode::Cooldown(COOLDOWN));
                }
            }
            // Two threads may store the same number here. This does no harm, because the number of
            // calls that sleep need not be exact.
            Mode::Cooldown(calls) => self.set(Mode::Cooldown(calls - 1)),
        }
    }
}
