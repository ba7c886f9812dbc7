// SPDX-License-Identifier: GPL-2.0

//! The module's own work queues ([`WorkQueue`]).

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

/// An unbound work queue with a rescuer, so that it makes progress while the kernel reclaims
/// memory. The queue is visible in sysfs.
///
/// Dropping the queue waits until all its work has ended, so the code of a work item is never
/// unloaded while it runs.
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

// SAFETY: Any thread may use or destroy a work queue.
unsafe impl Send for WorkQueue {}
// SAFETY: Several threads may queue work at the same time.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Creates a queue. May sleep.
    pub fn new(name: &CStr) -> Result<Self> {
        // SAFETY: `name` is a C string; the callee copies it.
        let wq = unsafe { bindings::xprtrdma_alloc_workqueue(name.as_char_ptr()) };
        // INVARIANT: The queue has just been created.
        Ok(Self(NonNull::new(wq).ok_or(ENOMEM)?))
    }

    /// Waits until all work that is on the queue at the time of the call has ended. May sleep.
    pub fn flush(&self) {
        // SAFETY: By the type invariant the queue is valid.
        unsafe { kernel::bindings::__flush_workqueue(self.0.as_ptr()) }
    }

    /// Returns the queue, for queueing work.
    pub fn queue(&self) -> &Queue {
        // SAFETY: By the type invariant the queue is valid as long as `self`.
        unsafe { Queue::from_raw(self.0.as_ptr()) }
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid. It is not used again.
        unsafe { kernel::bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// Cancels a delayed work item. If the item is running, waits until the item has ended. During the
/// wait the item cannot queue itself again. May sleep.
pub fn cancel_delayed_sync<T, const ID: u64>(item: &Arc<T>)
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    let raw = Arc::as_ptr(item);
    // SAFETY: `raw` points to a valid item.
    let work = unsafe { Work::<T, ID>::raw_get(T::raw_get_work(raw.cast_mut())) };
    // SAFETY: By the contract of `HasDelayedWork` the work is part of a delayed work.
    let delayed = unsafe { container_of!(work, kernel::bindings::delayed_work, work) };
    // SAFETY: The delayed work is initialised, and `item` keeps it. The caller may sleep.
    if unsafe { kernel::bindings::cancel_delayed_work_sync(delayed) } {
        // SAFETY: The queue owned a reference for the cancelled work, which will not run.
        drop(unsafe { Arc::from_raw(raw) });
    }
}
