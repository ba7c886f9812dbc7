// SPDX-License-Identifier: GPL-2.0

//! Whether a call polls for its own reply ([`Polling`]).

use kernel::sync::atomic::Atomic;
use xprtrdma_rdma::{
    access_once::AccessOnce, //
    cq::PollOutcome,
};

/// After a call that polled was interrupted by another, this many calls sleep.
const COOLDOWN: u32 = 16;

/// How the next calls of a connection wait.
enum Mode {
    /// A call that is the only one in flight polls for its reply.
    Poll,
    /// The next calls, this many, sleep.
    Cooldown(u32),
}

/// A [`Mode`] that threads share. `Relaxed`: nothing is ordered by it.
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

    /// Polls for the only call in flight, unless it is too early to poll again.
    #[inline]
    pub(super) fn busy_poll(&self, poll: impl FnOnce() -> PollOutcome) {
        match self.mode() {
            Mode::Poll => {
                if poll() == PollOutcome::Stopped {
                    self.set(Mode::Cooldown(COOLDOWN));
                }
            }
            // It does not matter whether another thread counts the same call.
            Mode::Cooldown(calls) => self.set(Mode::Cooldown(calls - 1)),
        }
    }
}
