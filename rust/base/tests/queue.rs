// SPDX-License-Identifier: GPL-2.0

//! Tests of work queues.

use super::{
    allocations::each_allocation,
    ensure::Test,
    later::Later, //
};
use crate::queue::{
    cancel_delayed_sync,
    enqueue_delayed,
    KeepsQueue,
    WorkQueue, //
};
use kernel::{
    impl_has_delayed_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};

/// A work item that counts how many times it ran.
#[pin_data]
struct Counter {
    #[pin]
    work: DelayedWork<Self>,
    queue: Arc<WorkQueue>,
    runs: Atomic<u32>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Counter { self.work }
}

impl KeepsQueue for Counter {
    fn work_queue(&self) -> &WorkQueue {
        &self.queue
    }
}

impl WorkItem for Counter {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.runs.fetch_add(1, Relaxed);
    }
}

fn counter() -> Result<Arc<Counter>> {
    let queue = Arc::new(WorkQueue::new(c"kunit")?, GFP_KERNEL)?;
    Arc::pin_init(
        pin_init!(Counter {
            work <- new_delayed_work!("Counter::work"),
            queue,
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
        let item = counter()?;
        // Cancelling an item that is not queued does nothing.
        cancel_delayed_sync(&item);
        for _ in 0..3 {
            enqueue_delayed(item.clone(), 100_000).map_err(|_| EBUSY)?;
            // Cancelling a queued item returns the queue's reference. If this reference leaked,
            // kmemleak would report the item.
            cancel_delayed_sync(&item);
        }
        ensure_eq!(item.runs.load(Relaxed), 0);
        enqueue_delayed(item.clone(), 0).map_err(|_| EBUSY)?;
        item.queue.flush();
        ensure_eq!(item.runs.load(Relaxed), 1);
        // Cancelling an item that has already run does nothing.
        cancel_delayed_sync(&item);
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
