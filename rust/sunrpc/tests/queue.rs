// SPDX-License-Identifier: GPL-2.0

//! The work queue.

use super::{
    allocations::each_allocation,
    ensure::Test, //
};
use crate::queue::{
    cancel_delayed_sync,
    WorkQueue, //
};
use kernel::{
    impl_has_delayed_work, impl_has_work, new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    workqueue::{
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};

/// Work that takes a moment and then drops something.
#[pin_data]
pub(super) struct Later<V: Send + Unpin + 'static> {
    #[pin]
    work: Work<Self>,
    #[pin]
    value: Mutex<Option<V>>,
    done: Atomic<bool>,
}

impl_has_work! {
    impl{V: Send + Unpin + 'static} HasWork<Self> for Later<V> { self.work }
}

impl<V: Send + Unpin + 'static> Later<V> {
    pub(super) fn new(value: V) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                work <- new_work!("Later::work"),
                value <- new_mutex!(Some(value), "Later::value"),
                done: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    pub(super) fn is_done(&self) -> bool {
        // ORDERING: Pairs with the release in `run`.
        self.done.load(Acquire)
    }
}

impl<V: Send + Unpin + 'static> WorkItem for Later<V> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // SAFETY: Work may sleep.
        unsafe { kernel::bindings::msleep(50) };
        this.done.store(true, Release);
        let value = this.value.lock().take();
        drop(value);
    }
}

/// Work that counts how often it ran.
#[pin_data]
struct Counter {
    #[pin]
    work: DelayedWork<Self>,
    runs: Atomic<u32>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Counter { self.work }
}

impl WorkItem for Counter {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.runs.fetch_add(1, Relaxed);
    }
}

fn counter() -> Result<Arc<Counter>> {
    Arc::pin_init(
        pin_init!(Counter {
            work <- new_delayed_work!("Counter::work"),
            runs: Atomic::new(0),
        }),
        GFP_KERNEL,
    )
}

#[kunit_tests(xprtrdma_queue)]
mod suite {
    use super::*;

    #[test]
    fn a_flush_waits_for_work() -> Test {
        let queue = WorkQueue::new(c"kunit")?;
        let work = Later::new(())?;
        queue.queue().enqueue(work.clone()).map_err(|_| EBUSY)?;
        queue.flush();
        ensure!(work.is_done());
        Ok(())
    }

    #[test]
    fn the_end_of_a_queue_waits_for_work() -> Test {
        let queue = WorkQueue::new(c"kunit")?;
        let work = Later::new(())?;
        queue.queue().enqueue(work.clone()).map_err(|_| EBUSY)?;
        drop(queue);
        ensure!(work.is_done());
        Ok(())
    }

    #[test]
    fn delayed_work_can_be_taken_back() -> Test {
        let queue = WorkQueue::new(c"kunit")?;
        let item = counter()?;
        // Not queued.
        cancel_delayed_sync(&item);
        for _ in 0..3 {
            queue
                .queue()
                .enqueue_delayed(item.clone(), 100_000)
                .map_err(|_| EBUSY)?;
            // Queued: its reference comes back. A leak is for kmemleak to find.
            cancel_delayed_sync(&item);
        }
        ensure_eq!(item.runs.load(Relaxed), 0);
        queue
            .queue()
            .enqueue_delayed(item.clone(), 0)
            .map_err(|_| EBUSY)?;
        queue.flush();
        ensure_eq!(item.runs.load(Relaxed), 1);
        // Done.
        cancel_delayed_sync(&item);
        drop(queue);
        Ok(())
    }

    #[test]
    fn a_queue_without_memory_leaves_nothing() -> Test {
        let errors = each_allocation(
            || Ok(()),
            |()| WorkQueue::new(c"kunit").map(drop),
            |()| Ok(()),
        )?;
        ensure_at_least!(errors, 1);
        Ok(())
    }
}
