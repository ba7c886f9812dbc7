// SPDX-License-Identifier: GPL-2.0

//! Tests of the wait for the last holder of an object.

use super::{
    ensure::Test,
    wait::wait_until, //
};
use crate::{
    holders::Holders,
    queue::WorkQueue,
    time::{
        now_ms,
        Jiffies, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc, //
    },
};

/// An object that has holders.
struct Held {
    holders: Holders,
    /// Whether the owner has seen that no holder is left.
    over: Atomic<bool>,
}

impl Held {
    fn new(holders: usize) -> Result<Arc<Self>> {
        let held = Self {
            holders: Holders::new(),
            over: Atomic::new(false),
        };
        for _ in 0..holders {
            held.holders.add();
        }
        Ok(Arc::new(held, GFP_KERNEL)?)
    }

    fn remove(&self) {
        // SAFETY: Each test adds every holder that it removes.
        unsafe { Holders::remove(&self.holders) }
    }

    /// Starts a work item that waits until the object has no holder, and then sets `over`.
    fn end_on(held: &Arc<Self>, queue: &WorkQueue) -> Result {
        let held = held.clone();
        queue.queue().try_spawn(GFP_KERNEL, move || {
            held.holders.wait();
            held.over.store(true, Release);
        })?;
        Ok(())
    }
}

#[kunit_tests(xprtrdma_holders)]
mod suite {
    use super::*;

    #[test]
    fn nobody_is_waited_for_who_is_gone() -> Test {
        let held = Held::new(2)?;
        held.remove();
        ensure!(!held.holders.is_none());
        held.remove();
        ensure!(held.holders.is_none());
        held.holders.wait();
        ensure!(!held.holders.is_awaited());
        Ok(())
    }

    #[test]
    fn many_holders_are_not_taken_for_none() -> Test {
        let holders = Holders::new();
        // Safe code can forget its holders, so it can add this number of holders in seconds.
        holders.add_many(1 << 30);
        ensure!(!holders.is_none());
        ensure!(!holders.is_awaited());
        Ok(())
    }

    #[test]
    fn the_last_holder_ends_the_wait() -> Test {
        let queue = WorkQueue::new(c"kunit-holders")?;
        // The test has two rounds, because the owner must be able to wait again after the first
        // wait.
        let held = Held::new(0)?;
        for _ in 0..2 {
            held.over.store(false, Release);
            held.holders.add();
            held.holders.add();
            Held::end_on(&held, &queue)?;
            wait_until(|| held.holders.is_awaited())?;
            // While the owner waits, a holder may add another holder.
            held.holders.add();
            held.remove();
            held.remove();
            ensure!(!held.holders.is_none());
            ensure!(!held.over.load(Acquire));
            held.remove();
            wait_until(|| held.over.load(Acquire))?;
            ensure!(held.holders.is_none());
            ensure!(!held.holders.is_awaited());
        }
        Ok(())
    }

    #[test]
    fn a_wait_for_a_while_ends_with_it_or_with_the_last_holder() -> Test {
        let queue = WorkQueue::new(c"kunit-holders")?;
        let held = Held::new(1)?;
        let start = now_ms();
        held.holders.wait_at_most(Jiffies::from_ms(50));
        ensure!(now_ms() - start >= 40);
        ensure!(!held.holders.is_none());
        ensure!(!held.holders.is_awaited());
        let other = held.clone();
        queue.queue().try_spawn(GFP_KERNEL, move || {
            // The time limit of this wait exceeds the duration of the whole test, so only a holder
            // that leaves can end the wait.
            other.holders.wait_at_most(Jiffies::from_ms(600_000));
            other.over.store(true, Release);
        })?;
        wait_until(|| held.holders.is_awaited())?;
        held.remove();
        wait_until(|| held.over.load(Acquire))?;
        ensure!(held.holders.is_none());
        ensure!(!held.holders.is_awaited());
        Ok(())
    }

    #[test]
    fn no_wake_up_is_lost_in_either_order() -> Test {
        let queue = WorkQueue::new(c"kunit-holders")?;
        for round in 0..300 {
            let held = Held::new(1)?;
            Held::end_on(&held, &queue)?;
            // Depending on the round, the holders leave before the work item starts to wait, at the
            // same time, or afterwards.
            if round % 3 == 0 {
                wait_until(|| held.holders.is_awaited())?;
            }
            for _ in 0..round % 50 {
                core::hint::spin_loop();
            }
            held.remove();
            wait_until(|| held.over.load(Acquire))?;
        }
        Ok(())
    }
}
