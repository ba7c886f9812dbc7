// SPDX-License-Identifier: GPL-2.0

//! Makes a listener follow its address to another device.
//!
//! When the hardware address of the listener's IP address changes, ib_core moves the GIDs of the IP
//! address to another device. A work item does this, either before or after the connection manager
//! reports the change. If the listener listens again too early, it does not find the other device.
//! So it listens again several times.

use core::sync::atomic::{
    fence,
    AtomicBool,
    AtomicU32,
    Ordering::{
        Relaxed,
        SeqCst, //
    }, //
};
use kernel::{
    impl_has_delayed_work,
    new_delayed_work,
    prelude::*,
    sync::Arc,
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};
use xprtrdma_svc::{
    bell::Bell,
    util::{
        cancel_delayed_sync,
        enqueue_delayed,
        Jiffies,
        KeepsQueue,
        WorkQueue, //
    }, //
};

/// Number of times that a listener listens again after its address has moved.
const TIMES: u32 = 4;
/// Pause between two attempts to listen again, in milliseconds.
const PAUSE_MS: u32 = 1500;

const AGAIN: u64 = 0;

/// Decides when a listener must listen again. At that time the follower rings the listener's bell.
/// The bell wakes a thread of the RPC server, and the thread makes the listener listen again.
#[pin_data]
pub(crate) struct Follower {
    bell: Bell,
    queue: Arc<WorkQueue>,
    /// How many more times the listener must listen again.
    left: AtomicU32,
    /// Whether the listener must listen again now.
    due: AtomicBool,
    #[pin]
    again: DelayedWork<Follower, AGAIN>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, AGAIN> for Follower { self.again }
}

impl KeepsQueue for Follower {
    fn work_queue(&self) -> &WorkQueue {
        &self.queue
    }
}

impl Follower {
    /// Creates the follower of a listener. May sleep.
    pub(crate) fn new(bell: Bell, queue: Arc<WorkQueue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                bell,
                queue,
                left: AtomicU32::new(0),
                due: AtomicBool::new(false),
                again <- new_delayed_work!("Follower::again"),
            }),
            GFP_KERNEL,
        )
    }

    /// Records that the hardware address has changed. Does not sleep.
    pub(crate) fn moved(&self) {
        self.left.store(TIMES, Relaxed);
        self.ring();
    }

    fn ring(&self) {
        self.due.store(true, Relaxed);
        // ORDERING: Pairs with the fence in `is_due`: the thread that the bell wakes sees that
        // `due` is set.
        fence(SeqCst);
        self.bell.ring();
    }

    /// Returns whether the listener must listen again now. If true, the caller must make the
    /// listener listen again, and then call [`Follower::listened`].
    pub(crate) fn is_due(&self) -> bool {
        // ORDERING: Pairs with the fence in `ring`. The caller has cleared the flag that `bell`
        // sets. This fence orders that clearing before the read of `due`.
        fence(SeqCst);
        self.due.swap(false, Relaxed)
    }

    /// Records that the listener has listened again, or has tried to. Returns whether the listener
    /// will have to listen once more later. Must not be called after [`Follower::stop`]. Does not
    /// sleep.
    pub(crate) fn listened(self: &Arc<Self>) -> bool {
        let decrease = |left: u32| Some(left.saturating_sub(1));
        let before = self.left.fetch_update(Relaxed, Relaxed, decrease);
        if before.unwrap_or(0) <= 1 {
            return false;
        }
        let delay = Jiffies::from_ms(PAUSE_MS).count();
        // Queueing fails only if the work item is already queued.
        let _ = enqueue_delayed::<Self, AGAIN>(self.clone(), delay);
        true
    }

    /// Stops the follower of a listener that no thread uses any more. Afterwards the follower's
    /// work item does not run. May sleep.
    pub(crate) fn stop(self: &Arc<Self>) {
        cancel_delayed_sync::<Self, AGAIN>(self);
    }
}

impl WorkItem<AGAIN> for Follower {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.ring();
    }
}
