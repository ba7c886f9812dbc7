// SPDX-License-Identifier: GPL-2.0

//! Registered memory for the data of RDMA Reads, on iWARP devices ([`Sinks`]).
//!
//! On iWARP an RDMA Read contains a steering tag, which identifies the memory for the data. The
//! peer sends the data to this tag as if it sent an RDMA Write (RFC 5040, section 4.4). So the
//! memory must be registered for remote writing, and the peer may write to the memory until the tag
//! is invalidated. A transfer into such memory first registers the memory, and then reads into it.
//! The last Read into each region invalidates the region. The pages are returned only when it is
//! proven that the regions were invalidated.
//!
//! The Read invalidates the region itself (`IB_WR_RDMA_READ_WITH_INV`). A local invalidation after
//! the Read might not wait for the data: for an invalidation with the fence flag, cxgb4 sets
//! `FW_RI_LOCAL_FENCE_FLAG`, and with this flag the invalidation does not wait for Reads. All
//! drivers for iWARP support `IB_WR_RDMA_READ_WITH_INV` (`rdma_cap_read_inv()`):
//!
//! * **siw** (tested), **cxgb4**, **irdma**, **qedr** (their source was read): they invalidate the
//!   key of the Read's only element.
//! * **erdma** (its source was read): it invalidates `ex.invalidate_rkey`.
//!
//! The data of Reads arrive in the order of the Reads, so one invalidation is enough for several
//! Reads into one region.

use crate::{
    mr::{
        Access,
        ExposedMr,
        IdleMr,
        LocalInvalidation,
        MapError, //
    },
    pages::Pages,
    pd::Pd,
    stretch::Stretch, //
};
use core::sync::atomic::{
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::{
    new_spinlock,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use xprtrdma_base::{
    buffer::PageArray,
    compat,
    lend::{
        Lender,
        Loan,
        Piece, //
    }, //
};
use xprtrdma_bindings as bindings;

/// The regions of one connection for the data of its Reads.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{pages::Pages, pd::Pd, sink::Sinks, stretch::Stretch};
/// # use xprtrdma_rdma::transfer::{Blank, Transfer};
/// fn example(pd: &Arc<Pd>, pages: Pages, whole: Stretch) -> Result<Option<Pages>> {
///     // Four regions of 256 pages each.
///     let sinks = Arc::new(Sinks::new(pd, 256, 4)?, GFP_KERNEL)?;
///     let blank = Blank::new(pd)?;
///     let transfer = blank.fill_sink(&sinks, pages, core::iter::once(whole))?;
///     // It is posted, and comes back when it has completed.
///     let (pages, _blank) = Transfer::end(transfer);
///     pr_info!("{} regions were registered\n", sinks.registered());
///     // The connection has ended.
///     sinks.close();
///     Ok(pages)
/// }
/// ```
pub struct Sinks {
    /// The regions that no transfer uses. The list does not grow beyond its capacity. The capacity
    /// is zero after [`Sinks::close`].
    idle: Pin<KBox<SpinLock<KVec<IdleMr>>>>,
    /// Number of pages of each region.
    pages: u32,
    pd: Arc<Pd>,
    // The two counters are for statistics, and order no other memory accesses.
    registered: AtomicUsize,
    invalidated: AtomicUsize,
}

impl Sinks {
    /// Makes the object for regions of `pages` pages each. A region is allocated when a transfer
    /// needs one. At most `count` idle regions are kept. Returns `EINVAL` if `pages` is zero.
    /// Returns `EOPNOTSUPP` if the device is not an iWARP device: other devices may have no RDMA
    /// Read that invalidates a region. May sleep.
    pub fn new(pd: &Arc<Pd>, pages: u32, count: usize) -> Result<Self> {
        if pages == 0 {
            return Err(EINVAL);
        }
        if !pd.is_iwarp() {
            return Err(compat::not_supported());
        }
        let idle = KVec::with_capacity(count, GFP_KERNEL)?;
        Ok(Self {
            idle: KBox::pin_init(new_spinlock!(idle, "Sinks::idle"), GFP_KERNEL)?,
            pages,
            pd: pd.clone(),
            registered: AtomicUsize::new(0),
            invalidated: AtomicUsize::new(0),
        })
    }

    /// Returns how many regions were registered for posted RDMA Reads.
    pub fn registered(&self) -> usize {
        self.registered.load(Relaxed)
    }

    /// Returns how many regions became idle again because RDMA Reads had invalidated them.
    pub fn invalidated(&self) -> usize {
        self.invalidated.load(Relaxed)
    }

    /// Deregisters all idle regions. Regions that are put back later are not kept. May sleep.
    pub fn close(&self) {
        let idle = core::mem::take(&mut *self.idle.lock());
        // The regions are dropped after the lock is released, because a deregistration may sleep.
        drop(idle);
    }

    /// Returns an idle region, or allocates one if all are in use. May sleep.
    fn take(&self) -> Result<IdleMr> {
        let found = self.idle.lock().pop();
        match found {
            Some(region) => Ok(region),
            None => IdleMr::alloc(&self.pd, self.pages, false),
        }
    }

    /// Keeps a region, or deregisters it if enough idle regions are kept already. May sleep.
    fn put(&self, region: IdleMr) {
        let pushed = self.idle.lock().push_within_capacity(region);
        // The region is dropped after the lock is released, because a deregistration may sleep.
        drop(pushed);
    }

    /// Returns the number of bytes of each region.
    fn span(&self) -> usize {
        // NO-OVERFLOW: A list with an entry for each page was allocated.
        (self.pages as usize).wrapping_mul(PAGE_SIZE)
    }
}

/// A reference to pages that are lent to a region. Several regions may hold references to the same
/// pages. The pages are available again only when all these regions have returned their references.
struct Lent(Arc<Pages>);

impl Lender for Lent {}

// SAFETY: The object holds a reference to the pages. Their bytes are only accessed through a `&mut
// Pages`, which cannot exist before all `Lent` objects of the pages are dropped.
unsafe impl Loan for Lent {
    type Lender = Self;

    fn len(&self) -> usize {
        PageArray::len(&*self.0)
    }

    fn pieces(&self, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
        let (first, len) = (start % PAGE_SIZE, self.len().saturating_sub(start));
        if let [page, more @ ..] = self.0.raw_from(start / PAGE_SIZE) {
            if len != 0 {
                take(Piece {
                    page: *page,
                    more,
                    first,
                    len,
                });
            }
        }
    }

    fn into_lender(self) -> Self {
        self
    }
}

/// A region of a [`Sink`].
struct Region {
    mr: ExposedMr<Lent>,
    /// Number of the region. The offset of the region from the start of the pages, in bytes, is
    /// this number times [`Sinks::span`].
    number: usize,
    /// Index of the last work request that reads into the region.
    last: usize,
}

/// The memory into which a transfer reads, and the regions that cover this memory.
///
/// # Invariants
///
/// If `has_completed` is true, all `regions` were registered and then invalidated by Reads, and
/// these Reads have completed. All these invalidations have the sequence number `seq`.
pub(crate) struct Sink {
    /// The regions of this memory. The list contains only regions that at least one Read needs.
    regions: KVec<Region>,
    pages: Arc<Pages>,
    sinks: Arc<Sinks>,
    /// The sequence number of the invalidations by the Reads of this object. All of these
    /// invalidations have the same number. Each send queue has its own sequence.
    seq: u64,
    has_completed: bool,
}

impl Sink {
    /// Makes the object for these pages. No regions are mapped yet. May sleep.
    pub(crate) fn new(sinks: &Arc<Sinks>, pages: Pages) -> Result<Self> {
        // INVARIANT: There are no regions, and nothing has completed.
        Ok(Self {
            regions: KVec::new(),
            pages: Arc::new(pages, GFP_KERNEL)?,
            sinks: sinks.clone(),
            seq: 0,
            has_completed: false,
        })
    }

    /// Returns the protection domain of the regions.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.sinks.pd
    }

    /// Returns the number of bytes in the pages.
    pub(crate) fn len(&self) -> usize {
        PageArray::len(&*self.pages)
    }

    /// Returns the number of regions, each of which needs a work request.
    pub(crate) fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Maps the regions that `stretches` need, and makes the Reads, each with one element. The
    /// elements are in the order of the Reads. Returns `EINVAL` if the stretches are not inside the
    /// pages, and `EIO` if the device or its IOMMU refuses to map them. May sleep.
    pub(crate) fn make(
        &mut self,
        wrs: &mut KVec<bindings::ib_rdma_wr>,
        sges: &mut KVec<bindings::ib_sge>,
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result {
        for stretch in stretches {
            let (mut at, mut left) = (stretch.at as usize, stretch.len as usize);
            let mut offset = stretch.offset;
            if at.checked_add(left).is_none_or(|end| end > self.len()) {
                return Err(EINVAL);
            }
            while left != 0 {
                let sge = self.element(at, left, wrs.len())?;
                let mut wr = bindings::ib_rdma_wr {
                    remote_addr: offset,
                    rkey: stretch.handle,
                    ..Default::default()
                };
                wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_READ;
                wr.wr.num_sge = 1;
                // NO-OVERFLOW: An element has at most `left` bytes, and the next `left` bytes are
                // inside the pages.
                at = at.wrapping_add(sge.length as usize);
                left = left.wrapping_sub(sge.length as usize);
                // The peer refuses an address that wraps around.
                offset = offset.wrapping_add(u64::from(sge.length));
                sges.push(sge, GFP_KERNEL)?;
                wrs.push(wr, GFP_KERNEL)?;
            }
        }
        for region in &self.regions {
            let last = wrs.get_mut(region.last).ok_or(EINVAL)?;
            last.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_READ_WITH_INV;
            // CAST: All members of the union are 32-bit numbers.
            last.wr.ex.bindgen_union_field = region.mr.window().handle;
        }
        Ok(())
    }

    /// Returns a scatter/gather element for the work request number `index`. The element begins at
    /// the offset `at`, has at most `left` bytes, and is inside one region.
    fn element(&mut self, at: usize, left: usize, index: usize) -> Result<bindings::ib_sge> {
        let span = self.sinks.span();
        let number = at.checked_div(span).ok_or(EINVAL)?;
        let known = self.regions.iter().position(|of| of.number == number);
        let place = match known {
            Some(place) => place,
            None => self.map(number)?,
        };
        let region = self.regions.get_mut(place).ok_or(EINVAL)?;
        region.last = index;
        let window = region.mr.window();
        // NO-OVERFLOW: The product is at most `at`, because `number` is the quotient of `at` and
        // `span`.
        let skipped = at.wrapping_sub(number.wrapping_mul(span));
        // If the device could map only a part of the region, the byte at `at` may be outside the
        // mapped part.
        let room = (window.length as usize).checked_sub(skipped);
        let room = room.filter(|&room| room != 0).ok_or(EIO)?;
        Ok(bindings::ib_sge {
            // NO-OVERFLOW: The region begins at an address below 2^63.
            addr: window.offset.wrapping_add(skipped as u64),
            // CAST: `room` is at most the length of the region, which is a `u32`.
            length: left.min(room) as u32,
            // On iWARP the same steering tag is the key for local and for remote accesses.
            lkey: window.handle,
        })
    }

    /// Maps the region `number` (see [`Region::number`]), and appends it to `regions`. Returns its
    /// index in `regions`.
    fn map(&mut self, number: usize) -> Result<usize> {
        let place = self.regions.len();
        self.regions.reserve(1, GFP_KERNEL)?;
        // NO-OVERFLOW: The product is at most the offset of a byte in the pages.
        let start = number.wrapping_mul(self.sinks.span());
        let lent = Lent(self.pages.clone());
        let mr = match self.sinks.take()?.map(lent, start, Access::RemoteWrite) {
            Ok(mr) => mr,
            Err(MapError { mr, error, .. }) => {
                self.sinks.put(mr);
                return Err(error);
            }
        };
        let region = Region {
            mr,
            number,
            last: 0,
        };
        self.regions.push(region, GFP_KERNEL)?;
        Ok(place)
    }

    /// Returns true if the regions may be registered on a queue pair in the protection domain `pd`.
    pub(crate) fn may_be_posted(&self, pd: &Arc<Pd>) -> bool {
        self.regions.iter().all(|of| of.mr.may_be_posted(pd))
    }

    /// Links the registrations of the regions in front of `next`, which is the first Read. All
    /// registrations use the completion entry `cqe`. Returns the first registration. Before the
    /// call, `seq` is the sequence number of the last invalidation on the send queue. This function
    /// adds one to `seq`. All invalidations by these Reads have the new sequence number.
    pub(crate) fn link(
        &mut self,
        seq: &mut u64,
        cqe: *mut bindings::ib_cqe,
        mut next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let before = *seq;
        // NO-OVERFLOW: The number of work requests in the life of a connection is below 2^64.
        *seq = before.wrapping_add(1);
        self.seq = *seq;
        for Region { mr, .. } in self.regions.iter_mut().rev() {
            next = mr.reg_wr(before, cqe, next);
            mr.invalidated_by_read(*seq);
        }
        self.sinks.registered.fetch_add(self.regions(), Relaxed);
        next
    }

    /// Records that the Reads, which were posted after the registrations, have completed.
    pub(crate) fn completed(&mut self) {
        // INVARIANT: `make` has chosen the last Read of each region as the one that invalidates the
        // region. All Reads have completed, so all regions have been invalidated.
        self.has_completed = true;
    }

    /// Ends the use of the regions. Returns the pages in two cases: the Reads were not posted, or
    /// the Reads have invalidated the regions. In any other case, the pages and the regions are
    /// kept until the queue pair is drained. May sleep.
    pub(crate) fn end(self) -> Option<Pages> {
        let Self {
            regions,
            pages,
            sinks,
            seq,
            has_completed,
        } = self;
        let proof = has_completed.then(|| LocalInvalidation {
            seq,
            pd: sinks.pd.number(),
        });
        for Region { mr, .. } in regions {
            let idle = match &proof {
                Some(proof) => mr.locally_invalidated(proof),
                None => mr.unposted(),
            };
            if let Ok((idle, lent)) = idle {
                drop(lent);
                sinks.put(idle);
                sinks.invalidated.fetch_add(proof.is_some().into(), Relaxed);
            }
        }
        Arc::into_unique_or_drop(pages).map(Pages::from_unique)
    }
}
