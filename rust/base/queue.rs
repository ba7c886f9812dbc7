// SPDX-License-Identifier: GPL-2.0

//! A work queue of our own ([`WorkQueue`]).

use core::ptr::NonNull;
use kernel::{
    container_of,
    prelude::*,
    sync::Arc,
    workqueue::{
        HasDelayedWork,
        Queue,
        Work,
        WorkItem, //
    },
};
use xprtrdma_bindings as bindings;

/// An unbound work queue with a rescuer, so that it makes progress under memory reclaim.
/// Administrators find it in sysfs.
///
/// Dropping it waits for the work on it; so code that runs there is never unloaded under it.
///
/// # Invariants
///
/// The queue is valid until `drop`.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::queue::WorkQueue;
/// let queue = WorkQueue::new(c"example")?;
/// queue.queue().try_spawn(GFP_KERNEL, || pr_info!("at work\n"))?;
/// // Waits for the work.
/// drop(queue);
/// # Ok::<(), Error>(())
/// ```
pub struct WorkQueue(NonNull<kernel::bindings::workqueue_struct>);

// SAFETY: Work queues have no thread affinity.
unsafe impl Send for WorkQueue {}
// SAFETY: Queueing is safe from several threads.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Creates a queue. May sleep.
    pub fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a C string; the callee copies it.
        let wq = unsafe { bindings::xprtrdma_alloc_workqueue(name.as_char_ptr()) };
        // INVARIANT: Created just now.
        Ok(Self(NonNull::new(wq).ok_or(ENOMEM)?))
    }

    /// Waits until all work that is on the queue now has ended. Sleeps.
    pub fn flush(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { kernel::bindings::__flush_workqueue(self.0.as_ptr()) }
    }

    /// The queue, for enqueueing.
    pub fn queue(&self) -> &Queue {
        // SAFETY: Valid by the type invariant for as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariant and not used again.
        unsafe { kernel::bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// Removes a delayed work item from its queue, or waits for its end if it runs. During the wait the
/// item cannot queue itself again. Sleeps.
pub fn cancel_delayed_sync<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    let raw = Arc::as_ptr(item);
    // SAFETY: `raw` points to a valid item.
    let work = unsafe { Work::<T, ID>::raw_get(T::raw_get_work(raw.cast_mut())) };
    // SAFETY: By the contract of `HasDelayedWork` the work is part of a delayed work.
    let delayed = unsafe { container_of!(work, kernel::bindings::delayed_work, work) };
    // SAFETY: An initialised delayed work, kept by `item`; this may sleep.
    if unsafe { kernel::bindings::cancel_delayed_work_sync(delayed) } {
        // SAFETY: The queue held one reference for the work that will not run now.
        drop(unsafe { Arc::from_raw(raw) });
    }
}
