// SPDX-License-Identifier: GPL-2.0

//! Drops connection requests that have ended before a thread of the RPC server has taken them.
//!
//! A connection request ends if its client gives it up, or if its device is being removed. The
//! removal waits until the request is dropped. All threads of the RPC server may be busy, so a work
//! item drops the request.

use kernel::{
    impl_has_delayed_work,
    new_delayed_work,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};
use xprtrdma_svc::util::{
    cancel_delayed_sync,
    enqueue_delayed,
    KeepsQueue,
    WorkQueue, //
};

const SWEEP: u64 = 0;

/// A listener whose ended connection requests a [`Sweeper`] drops.
pub(crate) trait Swept: Send + Sync {
    /// Drops the connection requests that have ended. May sleep.
    fn drop_ended(&self);
}

/// Drops the ended connection requests of one listener.
#[pin_data]
pub(crate) struct Sweeper {
    /// The listener; `None` before the start and after the stop.
    #[pin]
    target: SpinLock<Option<Arc<dyn Swept>>>,
    queue: Arc<WorkQueue>,
    #[pin]
    sweep: DelayedWork<Sweeper, SWEEP>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, SWEEP> for Sweeper { self.sweep }
}

impl KeepsQueue for Sweeper {
    fn work_queue(&self) -> &WorkQueue {
        &self.queue
    }
}

impl Sweeper {
    /// Creates a sweeper that runs on this work queue. The sweeper does not run before
    /// [`Sweeper::start`].
    pub(crate) fn new(queue: Arc<WorkQueue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                target <- new_spinlock!(None, "Sweeper::target"),
                queue,
                sweep <- new_delayed_work!("Sweeper::sweep"),
            }),
            GFP_KERNEL,
        )
    }

    /// Begins to drop the ended requests of a listener.
    pub(crate) fn start(self: &Arc<Self>, listener: Arc<dyn Swept>) {
        *self.target.lock() = Some(listener);
        self.sweep();
    }

    /// Requests that the ended requests are dropped soon. Does not sleep.
    pub(crate) fn sweep(self: &Arc<Self>) {
        let target = self.target.lock();
        // The work item is queued with the lock held, so that the work item is not queued after
        // `stop` has returned.
        if target.is_some() {
            // The call fails only if the work item is already queued.
            let _ = enqueue_delayed::<Self, SWEEP>(self.clone(), 0);
        }
    }

    /// Stops the sweeper. Afterwards its work item does not run. May sleep.
    pub(crate) fn stop(self: &Arc<Self>) {
        let listener = self.target.lock().take();
        cancel_delayed_sync::<Self, SWEEP>(self);
        drop(listener);
    }
}

impl WorkItem<SWEEP> for Sweeper {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let listener = this.target.lock().clone();
        if let Some(listener) = listener {
            listener.drop_ended();
        }
    }
}
