// SPDX-License-Identifier: GPL-2.0

//! Periodic checks of connections. A check detects a client that is silent, that does not confirm
//! its connection, or that keeps the send queue from making progress. The ticker also retries calls
//! that wait for memory that other connections hold.

use crate::{
    count,
    events::Events,
    memory,
    sizes::{
        PATIENCE,
        RETRY_MS, //
    },
    turns::Wake, //
};
use core::sync::atomic::{
    AtomicU32,
    AtomicU64,
    Ordering::Relaxed, //
};
use kernel::{
    impl_has_delayed_work,
    new_delayed_work,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SpinLock, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    }, //
};
use xprtrdma_proto::{
    served::life::{
        Act,
        Life,
        Progress, //
    },
    time::Time, //
};
use xprtrdma_rdma::qp::{
    Qp,
    QpHandler, //
};
use xprtrdma_svc::util::{
    cancel_delayed_sync,
    enqueue_delayed,
    now_ms,
    Jiffies,
    KeepsQueue,
    WorkQueue, //
};

const TICK: u64 = 0;
const RETRY: u64 = 1;
const WAKE: u64 = 2;

/// A connection that a [`Ticker`] checks.
pub(crate) trait Tended: QpHandler {
    /// Checks the connection.
    fn tick(qp: ArcBorrow<'_, Qp<Self>>);

    /// Processes waiting calls, as far as memory and the send queue allow.
    fn go_on(qp: ArcBorrow<'_, Qp<Self>>);
}

/// Checks one connection periodically until [`Ticker::stop`] is called.
#[pin_data]
pub(crate) struct Ticker<H: Tended> {
    /// The queue pair of the connection; `None` before the start and after the stop.
    #[pin]
    target: SpinLock<Option<Arc<Qp<H>>>>,
    queue: Arc<WorkQueue>,
    #[pin]
    tick: DelayedWork<Ticker<H>, TICK>,
    #[pin]
    retry: DelayedWork<Ticker<H>, RETRY>,
    #[pin]
    wake: DelayedWork<Ticker<H>, WAKE>,
}

impl_has_delayed_work! {
    impl{H: Tended} HasDelayedWork<Self, TICK> for Ticker<H> { self.tick }
}

impl_has_delayed_work! {
    impl{H: Tended} HasDelayedWork<Self, RETRY> for Ticker<H> { self.retry }
}

impl_has_delayed_work! {
    impl{H: Tended} HasDelayedWork<Self, WAKE> for Ticker<H> { self.wake }
}

impl<H: Tended> KeepsQueue for Ticker<H> {
    fn work_queue(&self) -> &WorkQueue {
        &self.queue
    }
}

impl<H: Tended> Ticker<H> {
    /// Creates a ticker that runs on this work queue. The ticker does not run before
    /// [`Ticker::start`].
    pub(crate) fn new(queue: Arc<WorkQueue>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                target <- new_spinlock!(None, "Ticker::target"),
                queue,
                tick <- new_delayed_work!("Ticker::tick"),
                retry <- new_delayed_work!("Ticker::retry"),
                wake <- new_delayed_work!("Ticker::wake"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts the periodic checks of a connection.
    pub(crate) fn start(self: &Arc<Self>, qp: &Arc<Qp<H>>) {
        *self.target.lock() = Some(qp.clone());
        self.arm::<TICK>(PATIENCE.tick.get());
    }

    /// Stops the ticker. Afterwards no work item of the ticker runs. Idempotent. May sleep.
    pub(crate) fn stop(self: &Arc<Self>) {
        let qp = self.target.lock().take();
        cancel_delayed_sync::<Self, TICK>(self);
        cancel_delayed_sync::<Self, RETRY>(self);
        cancel_delayed_sync::<Self, WAKE>(self);
        drop(qp);
    }

    /// Requests a later retry of calls that wait for memory that other connections hold.
    pub(crate) fn retry(self: &Arc<Self>) {
        self.arm::<RETRY>(RETRY_MS);
    }

    fn arm<const ID: u64>(self: &Arc<Self>, ms: u64)
    where
        Self: WorkItem<ID, Pointer = Arc<Self>> + kernel::workqueue::HasDelayedWork<Self, ID>,
    {
        let target = self.target.lock();
        // The work item is queued with the lock held, so that the work item is not queued after
        // `stop` has returned.
        if target.is_some() {
            // CAST: `ms` is a few seconds.
            let delay = Jiffies::from_ms(ms as u32).count();
            // The call fails only if the work item is already queued.
            let _ = enqueue_delayed::<Self, ID>(self.clone(), delay);
        }
    }

    fn target(&self) -> Option<Arc<Qp<H>>> {
        self.target.lock().clone()
    }
}

impl<H: Tended> Wake for Ticker<H> {
    fn wake(self: Arc<Self>) {
        self.arm::<WAKE>(0);
    }
}

impl<H: Tended> WorkItem<TICK> for Ticker<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(qp) = this.target() {
            H::tick(qp.as_arc_borrow());
            this.arm::<TICK>(PATIENCE.tick.get());
        }
    }
}

impl<H: Tended> WorkItem<RETRY> for Ticker<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(qp) = this.target() {
            H::go_on(qp.as_arc_borrow());
        }
    }
}

impl<H: Tended> WorkItem<WAKE> for Ticker<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        if let Some(qp) = this.target() {
            H::go_on(qp.as_arc_borrow());
        }
    }
}

/// The data that completion handlers record for the periodic checks (ticks), and the state of these
/// checks.
pub(crate) struct Watch {
    /// Number of signalled work requests on the send queue that have completed.
    completed: AtomicU32,
    /// How many times a call of any connection had to wait for memory, counted up to the last tick.
    waits: AtomicU64,
    life: Pin<KBox<SpinLock<Life>>>,
}

impl Watch {
    /// Starts to watch a connection that is being accepted.
    pub(crate) fn new(iwarp: bool) -> Result<Self> {
        let life = Life::accepting(PATIENCE, iwarp, now());
        Ok(Self {
            completed: AtomicU32::new(0),
            waits: AtomicU64::new(memory::shortages()),
            life: KBox::pin_init(new_spinlock!(life, "Watch::life"), GFP_KERNEL)?,
        })
    }

    /// Records that a signalled work request has completed. Completion handlers call this method,
    /// one handler at a time.
    #[inline]
    pub(crate) fn completed(&self) {
        let completed = self.completed.load(Relaxed);
        self.completed.store(completed.wrapping_add(1), Relaxed);
    }

    /// Counts a malformed message. Too many malformed messages end the connection.
    pub(crate) fn malformed(&self, events: &Events) {
        count::MALFORMED.add();
        let act = self.life.lock().malformed();
        if let Act::End(cause) = act {
            events.end(cause);
        }
    }

    /// Counts a refused option of RPC-over-RDMA version two. Too many refused options end the
    /// connection.
    pub(crate) fn refuse_option(&self, events: &Events) {
        let act = self.life.lock().refuse_option();
        if let Act::End(cause) = act {
            events.end(cause);
        }
    }

    /// Records that the client's device has received the refusal of an option.
    pub(crate) fn option_refused(&self) {
        self.life.lock().option_refused();
    }

    /// Records that a periodic check (tick) takes place. Returns the required actions.
    ///
    /// - `in_flight` returns two counts of work requests that are in flight on the send queue: all
    ///   work requests, and the signalled ones.
    /// - `has_calls` says whether calls are without a response.
    /// - `holds_memory` says whether the connection holds memory that others may need.
    pub(crate) fn tick(
        &self,
        events: &Events,
        in_flight: impl FnOnce() -> (u32, u32),
        has_calls: bool,
        holds_memory: bool,
    ) -> [Act; 2] {
        let now = now();
        // A work request that completes after `completed` was read and before `in_flight` is called
        // is counted neither in `completed` nor in `signalled`.
        let completed = self.completed.load(Relaxed);
        let (send_wrs, signalled) = in_flight();
        let shortages = memory::shortages();
        let others_wait = self.waits.swap(shortages, Relaxed) != shortages;
        let progress = Progress {
            under_way: send_wrs != 0,
            signalled,
            completed,
            is_in_the_way: others_wait && holds_memory,
        };
        let heard = events.ending().ticked(progress.is_busy(has_calls));
        let mut life = self.life.lock();
        if events.is_established() {
            life.established(now);
        }
        if heard {
            life.message(now);
        }
        [life.tick(now), life.send_queue(now, progress)]
    }
}

fn now() -> Time {
    Time::from_millis(now_ms())
}
