// SPDX-License-Identifier: GPL-2.0

//! The module's own work queues ([`WorkQueue`]), and delayed work items ([`KeepsQueue`]).
//!
//! The timer of a delayed work item uses the work queue when it expires, and the end of a queue
//! does not wait for timers. So only an item that keeps its queue can be delayed.

use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    alloc::{
        AllocError,
        Flags, //
    },
    container_of,
    prelude::*,
    sync::Arc,
    time::Jiffies,
    workqueue::{
        HasDelayedWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    },
};
use xprtrdma_bindings as bindings;

/// An unbound work queue with a rescuer, so that it makes progress while the kernel reclaims
/// memory. The queue is visible in sysfs.
///
/// Dropping the queue waits until all its work has ended, so the code of a work item is never
/// unloaded while it runs. A work item must not drop the queue on which it runs.
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

    /// Returns the queue, for queueing work without a delay.
    pub fn queue(&self) -> &PromptQueue {
        // SAFETY: By the type invariant the queue is valid as long as `self`.
        PromptQueue::of(unsafe { Queue::from_raw(self.0.as_ptr()) })
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid. It is not used again.
        unsafe { kernel::bindings::destroy_workqueue(self.0.as_ptr()) }
    }
}

/// A work queue that accepts only work without a delay.
#[repr(transparent)]
pub struct PromptQueue(Queue);

impl PromptQueue {
    /// Restricts a queue to work without a delay.
    #[inline]
    pub fn of(queue: &Queue) -> &Self {
        // CAST: The type is transparent.
        // SAFETY: The pointer comes from a reference with the same lifetime.
        unsafe { &*ptr::from_ref(queue).cast() }
    }

    /// Returns the pointer for C code.
    #[inline]
    pub fn as_raw(&self) -> *mut bindings::workqueue_struct {
        // CAST: A `Queue` is a transparent `workqueue_struct`.
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Queues a work item. Fails if the item is already queued.
    pub fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.0.enqueue(item)
    }

    /// Queues a work item that calls the closure.
    pub fn try_spawn<T: 'static + Send + FnOnce()>(
        &self,
        flags: Flags,
        func: T,
    ) -> Result<(), AllocError> {
        self.0.try_spawn(flags, func)
    }
}

/// An object with delayed work items that keeps the work queue on which they run.
///
/// # Examples
///
/// ```
/// # use kernel::{impl_has_delayed_work, new_delayed_work, prelude::*, sync::Arc};
/// # use kernel::workqueue::{DelayedWork, WorkItem};
/// # use xprtrdma_base::queue::{enqueue_delayed, KeepsQueue, WorkQueue};
/// #[pin_data]
/// struct Reminder {
///     queue: Arc<WorkQueue>,
///     #[pin]
///     work: DelayedWork<Self>,
/// }
///
/// impl_has_delayed_work! {
///     impl HasDelayedWork<Self> for Reminder { self.work }
/// }
///
/// impl KeepsQueue for Reminder {
///     fn work_queue(&self) -> &WorkQueue {
///         &self.queue
///     }
/// }
///
/// impl WorkItem for Reminder {
///     type Pointer = Arc<Self>;
///
///     fn run(_: Arc<Self>) {
///         pr_info!("it is time\n");
///     }
/// }
///
/// /// Logs a message after 1000 jiffies. `queue` must exist until then.
/// fn remind(queue: Arc<WorkQueue>) -> Result {
///     let work = new_delayed_work!("Reminder::work");
///     let item = Arc::pin_init(pin_init!(Reminder { queue, work <- work }), GFP_KERNEL)?;
///     enqueue_delayed(item, 1000).map_err(|_| EBUSY)
/// }
/// ```
pub trait KeepsQueue: Send + Sync + 'static {
    /// Returns the work queue. Other code must keep the queue, too, until the items have run: a
    /// work item must not drop the queue on which it runs.
    fn work_queue(&self) -> &WorkQueue;
}

/// Queues a delayed work item on the queue that it keeps. Returns the item if it is already queued,
/// or is being cancelled.
pub fn enqueue_delayed<T, const ID: u64>(item: Arc<T>, delay: Jiffies) -> Result<(), Arc<T>>
where
    T: KeepsQueue + WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    let raw = item.work_queue().0;
    // SAFETY: `item` keeps the queue: `work_queue` may borrow it as long as `item` is borrowed. The
    // kernel owns a reference to the item until the item runs, so no code drops or changes the item
    // before its timer has used the queue. The end of the queue waits until the item has run.
    let queue: &Queue = unsafe { Queue::from_raw(raw.as_ptr()) };
    queue.enqueue_delayed::<Arc<T>, ID>(item, delay)
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
