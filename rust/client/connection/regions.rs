// SPDX-License-Identifier: GPL-2.0

//! One pool of memory regions of a connection ([`RegionPool`]).
//!
//! The send path only takes regions from the pool and never waits for memory. A work item fills the
//! pool: with a few regions when the connection is made, with more whenever the pool runs low, up
//! to a limit. Regions that were not needed for a while are deregistered.
//!
//! When a reply arrives, the reply handler decides what happens to the regions of the call. It
//! makes the decision under the lock of the slot's request:
//!
//! - Usually the regions stay with the call's slot, so that the slot's next call takes nothing from
//!   the pool.
//! - If a sender waits for regions, the regions return to the pool.
//!
//! A sender that lacks regions first announces that it waits, and then searches every slot
//! ([`collect_idle`](crate::rpc::map::collect_idle)). So the search finds the regions that slots
//! kept before the announcement. The regions of calls that are answered later return to the pool.

use super::Services;
use crate::driver::Rdma;
use kernel::{
    impl_has_work, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use xprtrdma_proto::{
    Counter, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    mr::{
        Access,
        IdleMr, //
    },
    new_spinlock,
    pd::Pd,
    spin::SpinLock, //
};
use xprtrdma_sunrpc::{
    util::{
        Jiffies,
        NoFs, //
    },
    xprt::BackRef, //
};

/// Time in milliseconds after which a region that was not needed is deregistered.
const TRIM_MS: u32 = 30_000;

/// Number of regions that are created together with a connection. It is also the minimum number
/// that a refill adds, and the number that an idle pool keeps.
pub(super) const FIRST: usize = 8;

struct Inner {
    free: KVec<IdleMr>,
    /// Minimum number of free regions since the last [`RegionPool::trim`].
    least: usize,
    made: usize,
    closed: bool,
    /// Number of regions that a sender waits for; zero if no sender waits.
    wanted: usize,
    /// Whether the last attempt to make more regions failed.
    short: bool,
}

/// The reason why a call gets no regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Other calls use all regions. Senders are woken when enough regions have been returned or
    /// made.
    Wait,
    /// There is no memory for more regions: the caller should retry later.
    NoMemory,
    /// There are free regions, but the call's memory could not be mapped for the device. A retry
    /// may succeed, or may fail every time.
    Unmapped,
}

/// One pool of regions; see the module's documentation.
#[pin_data]
pub(crate) struct RegionPool {
    pd: Arc<Pd>,
    pages: u32,
    gaps: bool,
    access: Access,
    /// Number of regions that this pool starts with: see [`FIRST`].
    first: usize,
    bound: usize,
    xprt: BackRef<Rdma>,
    services: Services,
    /// Time (in jiffies) at which unneeded regions were last deregistered.
    trimmed: Atomic<usize>,
    /// Whether a sender waits for regions. Changes together with `Inner::wanted`, under the lock of
    /// `inner`. `Relaxed` is enough: a sender sets this flag, and then searches each slot under the
    /// lock of the slot's request. The reply handler reads this flag under the same lock. So the
    /// reply handler sees the flag, or the sender finds the region that the slot has kept.
    scarce: Atomic<bool>,
    #[pin]
    inner: SpinLock<Inner>,
    #[pin]
    refill: Work<RegionPool>,
}

impl_has_work! {
    impl HasWork<Self> for RegionPool { self.refill }
}

impl RegionPool {
    /// Creates a pool of `first` regions, which grows to at most `bound` regions. `pages`, `gaps`
    /// and `access` are the properties of each region. May sleep.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        (pages, gaps, access): (u32, bool, Access),
        (first, bound): (usize, usize),
        xprt: &BackRef<Rdma>,
        services: &Services,
    ) -> Result<Arc<Self>> {
        let pool = Arc::pin_init(
            pin_init!(Self {
                pd: pd.clone(),
                pages,
                gaps,
                access,
                first,
                bound,
                xprt: xprt.clone(),
                services: services.clone(),
                trimmed: Atomic::new(Jiffies::now().count()),
                scarce: Atomic::new(false),
                inner <- new_spinlock!(Inner {
                    free: KVec::new(),
                    least: 0,
                    made: 0,
                    closed: false,
                    wanted: 0,
                    short: false,
                }, "RegionPool::inner"),
                refill <- new_work!("RegionPool::refill"),
            }),
            GFP_KERNEL,
        )?;
        pool.grow(first)?;
        Ok(pool)
    }

    /// Returns the maximum number of pages in one region.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns whether a region can map memory that has gaps.
    pub(crate) fn gaps(&self) -> bool {
        self.gaps
    }

    /// Moves exactly `count` regions into `out`. After an error no region was moved.
    pub(crate) fn take(
        self: &Arc<Self>,
        count: usize,
        out: &mut KVec<IdleMr>,
    ) -> Result<(), Shortage> {
        let (result, low) = {
            let mut inner = self.inner.lock();
            let result = if inner.free.len() >= count {
                for _ in 0..count {
                    if let Some(mr) = inner.free.pop() {
                        // Adding the region cannot fail, because the caller has reserved the
                        // capacity.
                        let _ = out.push_within_capacity(mr);
                    }
                }
                Ok(())
            } else if core::mem::replace(&mut inner.short, false) {
                Err(Shortage::NoMemory)
            } else {
                self.want(&mut inner, count);
                Err(Shortage::Wait)
            };
            inner.least = inner.least.min(inner.free.len());
            let low = inner.free.len() < self.first / 2 || result.is_err();
            (result, low && inner.made < self.bound)
        };
        if low {
            self.refill();
        }
        result
    }

    /// Returns true if a call should try to take `count` regions now, for one of two reasons:
    ///
    /// - Enough regions are free.
    /// - There is no memory for more regions. [`RegionPool::take`] then reports the error.
    ///
    /// If this function returns false, the senders are woken as soon as it would return true.
    pub(crate) fn has(self: &Arc<Self>, count: usize) -> bool {
        let more = {
            let mut inner = self.inner.lock();
            if inner.free.len() >= count || inner.short {
                return true;
            }
            self.want(&mut inner, count);
            inner.made < self.bound
        };
        if more {
            self.refill();
        }
        false
    }

    /// Queues the work item that makes more regions. If queueing fails, the item is already queued.
    fn refill(self: &Arc<Self>) {
        let _ = self.services.common().queue().queue().enqueue(self.clone());
    }

    fn want(&self, inner: &mut Inner, count: usize) {
        inner.wanted = inner.wanted.max(count);
        self.scarce.store(true, Relaxed);
    }

    /// Records that no sender waits for regions any more. Returns whether a sender waited until
    /// now.
    fn satisfy(&self, inner: &mut Inner) -> bool {
        self.scarce.store(false, Relaxed);
        core::mem::replace(&mut inner.wanted, 0) != 0
    }

    /// Returns whether a sender waits for regions. If so, no request may keep a region. The caller
    /// holds the lock of the request that would keep the region.
    #[inline]
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce.read_once()
    }

    /// Returns a region to the pool. Does not sleep.
    pub(crate) fn put(&self, mr: IdleMr) {
        let (left, wake) = {
            let mut inner = self.inner.lock();
            // The list has capacity for every region that was made. A closed pool accepts a region
            // too, because the sender that returns it must not sleep, and deregistration would
            // sleep.
            let left = inner.free.push_within_capacity(mr).err().map(|e| e.0);
            let enough = inner.wanted != 0 && inner.free.len() >= inner.wanted;
            (left, enough && self.satisfy(&mut inner))
        };
        drop(left);
        if wake {
            self.xprt.wake_senders();
        }
    }

    /// Returns whether it is time to deregister unneeded regions. Returns true once in each period.
    pub(crate) fn is_time_to_trim(&self) -> bool {
        let due = Jiffies::since(self.trimmed.load(Relaxed)).as_ms() >= TRIM_MS;
        if due {
            self.trimmed.store(Jiffies::now().count(), Relaxed);
        }
        due
    }

    /// Deregisters the regions that were not needed since the last call of this function and that
    /// no posted work request uses. May sleep.
    ///
    /// Returns whether a later call may find more regions to deregister.
    pub(crate) fn trim(&self) -> bool {
        let spare = {
            let inner = self.inner.lock();
            inner.least.min(inner.made.saturating_sub(self.first))
        };
        for _ in 0..spare {
            let spared = {
                let mut inner = self.inner.lock();
                // Regions are taken from the end of the list, so the first region has been unused
                // for the longest time. The regions of a closed pool stay, because they are
                // deregistered only after the queue pair is destroyed.
                let spared = match inner.free.first() {
                    Some(mr) if !inner.closed && mr.is_retired() => inner.free.remove(0).ok(),
                    _ => None,
                };
                if spared.is_some() {
                    inner.made -= 1;
                }
                spared
            };
            drop(spared);
        }
        let mut inner = self.inner.lock();
        inner.least = inner.free.len();
        inner.made > self.first
    }

    /// Stops the pool from making more regions.
    pub(crate) fn stop(&self) {
        self.inner.lock().closed = true;
    }

    /// Deregisters all free regions, and makes no more regions from now on. A region that is
    /// returned later is deregistered when the pool is dropped. May sleep.
    pub(crate) fn close(&self) {
        self.stop();
        loop {
            // The list keeps its capacity for regions that are returned later.
            let free = self.inner.lock().free.pop();
            if free.is_none() {
                return;
            }
        }
    }

    /// Returns the number of existing regions and the number of free regions, for statistics. Both
    /// numbers are zero for a closed pool.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        if inner.closed {
            return (0, 0);
        }
        (inner.made, inner.free.len())
    }

    /// Makes `count` more regions, within the pool's limit. Only one thread at a time makes
    /// regions.
    fn grow(&self, count: usize) -> Result {
        let room = self.inner.lock().made.saturating_add(count).min(self.bound);
        // The longer list is allocated in one piece. It is allocated before the lock is taken,
        // because the allocation may sleep.
        let mut list = KVec::with_capacity(room, GFP_KERNEL)?;
        {
            let mut inner = self.inner.lock();
            if inner.free.capacity() < room && !inner.closed {
                while let Some(mr) = inner.free.pop() {
                    // Adding the region cannot fail, because the new list has more capacity than
                    // the old list.
                    let _ = list.push_within_capacity(mr);
                }
                core::mem::swap(&mut inner.free, &mut list);
            }
        }
        drop(list);
        loop {
            {
                let inner = self.inner.lock();
                if inner.closed || inner.made >= room {
                    return Ok(());
                }
            }
            let mr = IdleMr::alloc(&self.pd, self.pages, self.gaps)?.meant_for(self.access);
            self.inner.lock().made += 1;
            self.services.counters().count(Counter::MrsAllocated);
            self.put(mr);
        }
    }
}

impl WorkItem for RegionPool {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        // If the pool has fewer regions than there are calls, a refill makes the missing regions.
        // Otherwise regions are short only because some calls need several regions. In this case
        // the pool grows by only a quarter, because unneeded regions cost memory and time. In both
        // cases a refill makes at least the regions that a waiting sender lacks, because the sender
        // is woken only when it can take all its regions.
        let calls = this.xprt.slots_in_use();
        let count = {
            let inner = this.inner.lock();
            let lacking = inner.wanted.saturating_sub(inner.free.len());
            let more = match calls.saturating_sub(inner.made) {
                0 => inner.made / 4,
                missing => missing,
            };
            more.max(lacking).max(this.first)
        };
        if this.grow(count).is_err() {
            let wake = {
                let mut inner = this.inner.lock();
                inner.short = true;
                this.satisfy(&mut inner)
            };
            if wake {
                this.xprt.wake_senders();
            }
        }
    }
}
