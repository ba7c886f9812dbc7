// SPDX-License-Identifier: GPL-2.0

//! Protection domain: [`Pd`] wraps `struct ib_pd`.

use crate::{
    cm::CmId,
    device::{
        is_distrusted,
        stops_in_error,
        Repetitions,
        Sendings, //
    }, //
};
use core::{
    ptr,
    ptr::NonNull, //
};
use kernel::{
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
};
use xprtrdma_base::NAME;
use xprtrdma_bindings as bindings;

/// A protection domain, which limits what the peer of one connection can access (V1-110).
///
/// On some devices the domain does not limit which regions the peer can *invalidate*. For example,
/// before an invalidation rxe does not check whether the region is in the domain of the queue pair.
/// So a peer that guesses the key of another connection's region can make that connection fail. The
/// peer gains no access to memory, because a proof of invalidation is valid only in its own domain.
///
/// # Invariants
///
/// `pd` is valid until `drop`. `id` keeps the device alive.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{cm::CmId, mr::IdleMr, pd::Pd};
/// fn regions(id: Arc<CmId>) -> Result<KVec<IdleMr>> {
///     let pd = Pd::alloc(id)?;
///     let mut regions = KVec::new();
///     for _ in 0..8 {
///         // A region keeps its domain.
///         regions.push(IdleMr::alloc(&pd, 257, false)?, GFP_KERNEL)?;
///     }
///     Ok(regions)
/// }
/// ```
pub struct Pd {
    pd: NonNull<bindings::ib_pd>,
    /// Maximum length in bytes of an entry in a scatter/gather list that is mapped for the device.
    /// It is a multiple of the page size, and at least one page.
    max_entry: u32,
    /// Whether memory that was mapped for the device must be unmapped. A device that accesses
    /// memory by the kernel's addresses needs no mappings.
    #[cfg(any(xprtrdma_server, xprtrdma_kunit))]
    needs_unmapping: bool,
    /// Whether the domain's queue pair is drained, so that it will never access a region again.
    drained: Atomic<bool>,
    /// Whether the device's reports of invalidations are trusted; the negation of
    /// [`is_distrusted`].
    believes: bool,
    /// The record of whether the device has executed a registration a second time
    /// ([`Repetitions`]). `None` if the device never does this.
    repetitions: Option<Repetitions>,
    /// Number of the last invalidation that is known to have completed. The device has finished all
    /// registrations that were posted before that invalidation. The first invalidation has the
    /// number 2.
    retired: Atomic<u64>,
    /// Whether a queue pair of the device no longer accesses memory after the queue pair has
    /// flushed a Receive ([`stops_in_error`]).
    stops: bool,
    /// The object that owns the `ib_pd`, if this object only shares the `ib_pd`.
    #[cfg(xprtrdma_rds)]
    base: Option<Arc<Pd>>,
    // The id keeps the device alive. This field is dropped only after the domain has been
    // deallocated.
    id: Arc<CmId>,
}

// SAFETY: Any thread may use an `ib_pd`.
unsafe impl Send for Pd {}
// SAFETY: Several threads may allocate objects in a domain at the same time.
unsafe impl Sync for Pd {}

/// A sequence number that is less than that of every invalidation on a domain's queue pair.
pub(crate) const FIRST_SEQ: u64 = 1;

impl Pd {
    /// Allocates a domain on the device of `id`, without a global rkey (V1-107). May sleep.
    pub fn alloc(id: Arc<CmId>) -> Result<Arc<Self>> {
        let dev = id.raw_device().ok_or(ENODEV)?;
        // SAFETY: The device exists as long as the id, to which the domain will hold a reference.
        let pd = unsafe { bindings::__ib_alloc_pd(dev.as_ptr(), 0, NAME.as_char_ptr()) };
        let pd = from_err_ptr(pd)?;
        // SAFETY: The device exists as long as the id.
        let max_entry = unsafe { bindings::xprtrdma_dma_max_entry(dev.as_ptr()) };
        // CAST: The size of a page is far below 2^32.
        let page = PAGE_SIZE as u32;
        // INVARIANT: `pd` was just allocated on the device of `id`.
        let pd = Self {
            pd: NonNull::new(pd).ok_or(ENOMEM)?,
            max_entry: (max_entry & !(page - 1)).max(page),
            #[cfg(any(xprtrdma_server, xprtrdma_kunit))]
            // SAFETY: The device exists as long as the id.
            needs_unmapping: unsafe { bindings::xprtrdma_dma_needs_unmapping(dev.as_ptr()) },
            drained: Atomic::new(false),
            // SAFETY: The device exists as long as the id.
            believes: unsafe { !is_distrusted(dev) },
            // SAFETY: The device exists as long as the id.
            repetitions: unsafe { Repetitions::of(dev) },
            retired: Atomic::new(FIRST_SEQ),
            // SAFETY: The device exists as long as the id.
            stops: unsafe { stops_in_error(dev) },
            #[cfg(xprtrdma_rds)]
            base: None,
            id,
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// Returns a second object for this domain, for the queue pair of `id`. Returns `ENODEV` if
    /// `id` is on another device.
    #[cfg(xprtrdma_rds)]
    pub fn share(self: &Arc<Self>, id: Arc<CmId>) -> Result<Arc<Self>> {
        if !self.is_on(&id) {
            return Err(ENODEV);
        }
        // INVARIANT: `base` keeps the domain allocated. `id` keeps the device alive, because both
        // ids are on the same device.
        let shared = Self {
            pd: self.pd,
            max_entry: self.max_entry,
            needs_unmapping: self.needs_unmapping,
            drained: Atomic::new(false),
            believes: self.believes,
            repetitions: self.repetitions,
            retired: Atomic::new(FIRST_SEQ),
            stops: self.stops,
            base: Some(self.clone()),
            id,
        };
        Ok(Arc::new(shared, GFP_KERNEL)?)
    }

    /// Returns true if an id is on the device of the domain.
    #[cfg(xprtrdma_rds)]
    pub fn is_on(&self, id: &CmId) -> bool {
        id.raw_device()
            .is_some_and(|device| device.as_ptr() == self.raw_device())
    }

    /// Returns the id whose device the domain is on.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns a number that is unique among all existing [`Pd`] objects, even among those that
    /// share an `ib_pd`. The number is not zero. A proof of invalidation contains this number.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Records that the domain's queue pair is drained.
    pub(crate) fn set_drained(&self) {
        // ORDERING: Pairs with the acquire in `is_drained`.
        self.drained.store(true, Release);
    }

    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        // ORDERING: Pairs with the release in `set_drained`.
        self.drained.load(Acquire)
    }

    /// Returns true if the device is trusted when it reports that a message invalidated a region.
    /// Only then can such a message prove the invalidation.
    pub fn believes_invalidations(&self) -> bool {
        self.believes
    }

    /// Returns true if the device may execute a registration more than once.
    #[inline]
    pub(crate) fn executes_again(&self) -> bool {
        self.repetitions.is_some()
    }

    /// Returns true if each later message in this domain needs a fence before its registrations.
    #[inline]
    pub fn fences(&self) -> bool {
        self.repetitions.is_some_and(|of| of.are_known())
    }

    /// Returns the device's counters of repeated and failed sends. A comparison with later values
    /// of the counters shows whether the device may have executed a registration a second time. May
    /// sleep.
    pub(crate) fn sendings(&self) -> Sendings {
        let Some((of, device)) = self.repetitions.zip(self.id.raw_device()) else {
            return Sendings::default();
        };
        // SAFETY: The id is valid by its type. It has a device, and the connection manager sets
        // `port_num` before it sets the device.
        let port = unsafe { (*self.id.as_raw()).port_num };
        of.sendings(device, port)
    }

    /// Records that the device has executed a registration a second time. Returns true if this was
    /// not recorded before.
    pub(crate) fn has_repeated(&self) -> bool {
        self.repetitions.is_some_and(|of| of.note())
    }

    /// Returns the number of the last invalidation that has completed. All work requests that were
    /// posted before that invalidation have completed too.
    pub(crate) fn retired(&self) -> u64 {
        // `Relaxed` is enough, because the invalidation completed after the device had finished all
        // earlier registrations.
        self.retired.load(Relaxed)
    }

    /// Records that the invalidation with the sequence number `seq` has completed.
    pub(crate) fn retire(&self, seq: u64) {
        self.retired.store(seq, Relaxed);
    }

    /// Returns true if work requests may complete before RDMA Reads that were posted earlier.
    #[cfg(xprtrdma_server)]
    pub(crate) fn overtakes(&self) -> bool {
        // SAFETY: The device exists as long as the domain.
        NonNull::new(self.raw_device()).is_some_and(|dev| unsafe { crate::device::overtakes(dev) })
    }

    /// Returns true if a queue pair of this domain no longer accesses memory after it has flushed a
    /// Receive.
    pub(crate) fn stops_in_error(&self) -> bool {
        self.stops
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }

    #[inline]
    pub(crate) fn raw_device(&self) -> *mut bindings::ib_device {
        // SAFETY: By the type invariant, the domain is valid. `device` never changes.
        unsafe { (*self.as_raw()).device }
    }

    /// Returns true if the device is for iWARP.
    #[cfg(xprtrdma_server)]
    pub(crate) fn is_iwarp(&self) -> bool {
        // SAFETY: The device exists as long as the domain.
        NonNull::new(self.raw_device()).is_some_and(|dev| unsafe { crate::device::is_iwarp(dev) })
    }

    #[inline]
    pub(crate) fn max_entry(&self) -> u32 {
        self.max_entry
    }

    /// Returns whether memory that was mapped for the device must be unmapped.
    #[cfg(any(xprtrdma_server, xprtrdma_kunit))]
    #[inline]
    pub(crate) fn needs_unmapping(&self) -> bool {
        self.needs_unmapping
    }

    /// Returns the maximum number of scatter/gather elements in a work request on the send queue.
    /// It is one, because the client sends each message from one buffer.
    #[cfg(not(xprtrdma_server))]
    pub(crate) fn max_send_sges(&self) -> u32 {
        1
    }

    /// Returns the maximum number of scatter/gather elements in a work request on the send queue,
    /// for Reads and for Writes.
    #[cfg(xprtrdma_server)]
    pub fn max_send_sges(&self) -> u32 {
        use crate::device;

        /// The maximum number of scatter/gather elements that this crate uses in a work request. A
        /// higher maximum would make every work request of the queue larger.
        const ENOUGH: u32 = 32;

        // SAFETY: The device exists as long as the domain. Its attributes are constant.
        let attrs = unsafe { &(*self.raw_device()).attrs };
        let limits = [
            device::limit(attrs.max_send_sge),
            device::limit(attrs.max_sge_rd),
            ENOUGH,
        ];
        limits
            .into_iter()
            .filter(|&most| most != 0)
            .min()
            .unwrap_or(1)
    }

    /// Returns the maximum number of RDMA Reads that a queue pair of this domain can have in
    /// flight.
    #[cfg(xprtrdma_server)]
    pub fn max_reads(&self) -> u8 {
        // SAFETY: The device exists as long as the domain. Its attributes are constant.
        let attrs = unsafe { &(*self.raw_device()).attrs };
        let most = crate::device::limit(attrs.max_qp_init_rd_atom);
        most.try_into().unwrap_or(u8::MAX)
    }

    /// Returns the maximum number of the peer's RDMA Reads that a queue pair of this domain can
    /// serve at a time. Some devices serve fewer Reads than they can have in flight.
    #[cfg(xprtrdma_rds)]
    pub fn max_served(&self) -> u8 {
        // SAFETY: The device exists as long as the domain. Its attributes are constant.
        let attrs = unsafe { &(*self.raw_device()).attrs };
        let most = crate::device::limit(attrs.max_qp_rd_atom);
        most.try_into().unwrap_or(u8::MAX)
    }

    #[inline]
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant, the domain is valid. The key never changes.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        #[cfg(xprtrdma_rds)]
        if self.base.is_some() {
            return;
        }
        // SAFETY: By the type invariant, the domain is valid. The domain is not used again. It is
        // empty, because every object in it held an `Arc` of this object.
        unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), ptr::null_mut()) };
    }
}
