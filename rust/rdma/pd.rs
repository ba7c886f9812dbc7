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

/// A protection domain: the border of what one connection's peer can reach (V1-110).
///
/// Not on every device the border of what it can *invalidate*: rxe does not compare domains there.
/// A peer that guesses the key of another connection's region makes that connection fail, and gets
/// nothing: a proof is one for its own domain.
///
/// # Invariants
///
/// `pd` is valid until `drop`; `id` keeps its device.
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
    /// Bytes of the longest entry of a list that is mapped for the device: whole pages, at least
    /// one.
    max_entry: u32,
    /// The domain's queue pair will never again touch a region.
    drained: Atomic<bool>,
    /// Not [`is_distrusted`].
    believes: bool,
    /// On a device that executes registrations again ([`Repetitions`]): what is known of it.
    repetitions: Option<Repetitions>,
    /// Number of the last invalidation that is known to have completed: the device is done with all
    /// registrations that were posted before it. The first invalidation has the number 2.
    retired: Atomic<u64>,
    /// See [`stops_in_error`].
    stops: bool,
    /// The object that owns the `ib_pd`, if this object only shares it.
    #[cfg(xprtrdma_rds)]
    base: Option<Arc<Pd>>,
    // Dropped after the domain is deallocated.
    id: Arc<CmId>,
}

// SAFETY: `ib_pd` has no thread affinity.
unsafe impl Send for Pd {}
// SAFETY: Allocating objects in a domain is safe from several threads.
unsafe impl Sync for Pd {}

/// What the invalidations of a domain's queue pair are counted from.
pub(crate) const FIRST_SEQ: u64 = 1;

impl Pd {
    /// Allocates a domain on the device of `id`, without a global rkey (V1-107). May sleep.
    pub fn alloc(id: Arc<CmId>) -> Result<Arc<Self>> {
        let dev = id.raw_device().ok_or(ENODEV)?;
        // SAFETY: The device exists as long as the id, which the domain will hold.
        let pd = unsafe { bindings::__ib_alloc_pd(dev.as_ptr(), 0, NAME.as_char_ptr()) };
        let pd = from_err_ptr(pd)?;
        // SAFETY: As above.
        let max_entry = unsafe { bindings::xprtrdma_dma_max_entry(dev.as_ptr()) };
        // CAST: A page is much smaller.
        let page = PAGE_SIZE as u32;
        // INVARIANT: `pd` was just allocated on the device of `id`.
        let pd = Self {
            pd: NonNull::new(pd).ok_or(ENOMEM)?,
            max_entry: (max_entry & !(page - 1)).max(page),
            drained: Atomic::new(false),
            // SAFETY: As above.
            believes: unsafe { !is_distrusted(dev) },
            // SAFETY: As above.
            repetitions: unsafe { Repetitions::of(dev) },
            retired: Atomic::new(FIRST_SEQ),
            // SAFETY: As above.
            stops: unsafe { stops_in_error(dev) },
            #[cfg(xprtrdma_rds)]
            base: None,
            id,
        };
        Ok(Arc::new(pd, GFP_KERNEL)?)
    }

    /// Returns the same domain for the queue pair of another id. `ENODEV`: that is on another
    /// device.
    #[cfg(xprtrdma_rds)]
    pub fn share(self: &Arc<Self>, id: Arc<CmId>) -> Result<Arc<Self>> {
        if !self.is_on(&id) {
            return Err(ENODEV);
        }
        // INVARIANT: `base` keeps the domain, and `id` the same device.
        let shared = Self {
            pd: self.pd,
            max_entry: self.max_entry,
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

    /// Returns whether an id is on the device of the domain.
    #[cfg(xprtrdma_rds)]
    pub fn is_on(&self, id: &CmId) -> bool {
        id.raw_device()
            .is_some_and(|device| device.as_ptr() == self.raw_device())
    }

    /// The id whose device the domain is on.
    pub fn id(&self) -> &CmId {
        &self.id
    }

    /// Returns a number that no other value of this type has while this one exists, not even one
    /// that shares its domain: what a proof is about. Never zero.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Called when the domain's queue pair is drained.
    pub(crate) fn set_drained(&self) {
        // ORDERING: Pairs with the acquire in `is_drained`.
        self.drained.store(true, Release);
    }

    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        // ORDERING: Pairs with the release in `set_drained`.
        self.drained.load(Acquire)
    }

    /// Whether a message that invalidates a region of this domain can prove it.
    pub fn believes_invalidations(&self) -> bool {
        self.believes
    }

    /// Whether the device may execute a registration again.
    #[inline]
    pub(crate) fn executes_again(&self) -> bool {
        self.repetitions.is_some()
    }

    /// Whether the registrations of a message in this domain have a fence in front of them from now
    /// on.
    pub fn fences(&self) -> bool {
        self.repetitions.is_some_and(|of| of.are_known())
    }

    /// What tells whether the device may have executed a registration again since. May sleep.
    pub(crate) fn sendings(&self) -> Sendings {
        let Some((of, device)) = self.repetitions.zip(self.id.raw_device()) else {
            return Sendings::default();
        };
        // SAFETY: The id is valid by its type; the port is written before the device.
        let port = unsafe { (*self.id.as_raw()).port_num };
        of.sendings(device, port)
    }

    /// The device has executed a registration again. True for the first one of the device.
    pub(crate) fn has_repeated(&self) -> bool {
        self.repetitions.is_some_and(|of| of.note())
    }

    /// The number of the last invalidation that is over, and with it what was posted before.
    pub(crate) fn retired(&self) -> u64 {
        // Behind that, the device uses no registration of before: it says so itself.
        self.retired.load(Relaxed)
    }

    /// The invalidation with this number is over.
    pub(crate) fn retire(&self, seq: u64) {
        self.retired.store(seq, Relaxed);
    }

    /// Whether work requests complete before RDMA Reads that were posted earlier.
    #[cfg(xprtrdma_server)]
    pub(crate) fn overtakes(&self) -> bool {
        // SAFETY: The device exists as long as the domain.
        NonNull::new(self.raw_device()).is_some_and(|dev| unsafe { crate::device::overtakes(dev) })
    }

    /// Whether a queue pair that has flushed a Receive reaches no memory of this domain any more.
    pub(crate) fn stops_in_error(&self) -> bool {
        self.stops
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_pd {
        self.pd.as_ptr()
    }

    #[inline]
    pub(crate) fn raw_device(&self) -> *mut bindings::ib_device {
        // SAFETY: The domain is valid by the type invariant; `device` never changes.
        unsafe { (*self.as_raw()).device }
    }

    #[inline]
    pub(crate) fn max_entry(&self) -> u32 {
        self.max_entry
    }

    /// Elements of one work request on the send queue of this domain: the client gathers nothing.
    #[cfg(not(xprtrdma_server))]
    pub(crate) fn max_send_sges(&self) -> u32 {
        1
    }

    /// Elements of one work request on the send queue of this domain, for Reads as for Writes.
    #[cfg(xprtrdma_server)]
    pub fn max_send_sges(&self) -> u32 {
        use crate::device;

        /// What is more would make each work request of the queue larger.
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

    /// RDMA Reads that a queue pair of this domain can have under way.
    #[cfg(xprtrdma_server)]
    pub fn max_reads(&self) -> u8 {
        // SAFETY: The device exists as long as the domain. Its attributes are constant.
        let attrs = unsafe { &(*self.raw_device()).attrs };
        let most = crate::device::limit(attrs.max_qp_init_rd_atom);
        most.try_into().unwrap_or(u8::MAX)
    }

    #[inline]
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: The domain is valid by the type invariant; the key never changes.
        unsafe { (*self.as_raw()).local_dma_lkey }
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        #[cfg(xprtrdma_rds)]
        if self.base.is_some() {
            return;
        }
        // SAFETY: The domain is valid by the type invariant and not used again. Everything in it
        // held an `Arc` of this object, so it is empty.
        unsafe { bindings::ib_dealloc_pd_user(self.as_raw(), ptr::null_mut()) };
    }
}
