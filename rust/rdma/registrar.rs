// SPDX-License-Identifier: GPL-2.0

//! Memory regions that do not depend on a connection ([`Registrar`], [`Region`]).
//!
//! A key is valid for all queue pairs of a protection domain. So the registrar needs only one queue
//! pair to register regions. That queue pair is connected to itself, and posts nothing but
//! registrations. A peer can access a region through any queue pair of the domain. Deregistration
//! ends the access, and needs no queue pair.

use crate::{
    mr::{
        mark_end,
        Filling, //
    },
    pd::Pd, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings::scatterlist,
    error::{
        from_err_ptr,
        to_result, //
    },
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};
use xprtrdma_base::{
    lend::{
        Lender,
        Loan, //
    },
    random::unforeseen64,
    NAME, //
};
use xprtrdma_bindings as bindings;

/// Maximum number of times that the registrar checks whether a registration has completed.
const LOOKS: u32 = 20_000;
/// Time that the registrar waits between two checks whether a registration has completed.
const PAUSE: Delta = Delta::from_micros(100);

/// Value of [`Entry::status`] while the registration has not completed.
const PENDING: i32 = -1;

/// The completion entry of the registrar's only work request.
///
/// # Invariants
///
/// `cqe` is the first member.
#[repr(C)]
struct Entry {
    cqe: Opaque<bindings::ib_cqe>,
    status: Atomic<i32>,
}

/// A completion queue. The thread that waits for a completion polls the queue directly.
struct Cq(NonNull<bindings::ib_cq>);

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: The completion queue is valid, and its queue pair is destroyed.
        unsafe { bindings::ib_free_cq(self.0.as_ptr()) };
    }
}

/// A queue pair that is destroyed on drop.
struct Qp(NonNull<bindings::ib_qp>);

impl Qp {
    /// Destroys the queue pair. Returns false if the device fails to destroy it. The device may
    /// then execute posted work requests at any later time.
    fn destroy(self) -> bool {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: The queue pair is valid, and is not used again.
        unsafe { bindings::ib_destroy_qp_user(this.0.as_ptr(), ptr::null_mut()) == 0 }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        // SAFETY: The queue pair is valid, and is not used again.
        let _ = unsafe { bindings::ib_destroy_qp_user(self.0.as_ptr(), ptr::null_mut()) };
    }
}

/// A queue pair that is connected to itself, with its completion queue.
///
/// # Invariants
///
/// - `qp` is connected to itself, and its completions go to `cq`.
/// - At most one work request is posted. It completes with `entry`.
struct Loop {
    // The fields are in the order of teardown.
    qp: Qp,
    cq: Cq,
    entry: Pin<KBox<Entry>>,
}

impl Loop {
    /// Creates the queue pair, and connects it to itself. The id of the domain must be bound. May
    /// sleep.
    fn new(pd: &Pd) -> Result<Self> {
        let entry = Entry {
            cqe: Opaque::new(bindings::ib_cqe { done: Some(done) }),
            status: Atomic::new(PENDING),
        };
        let entry = KBox::pin(entry, GFP_KERNEL)?;
        // SAFETY: The device exists as long as the domain.
        let cq = from_err_ptr(unsafe {
            bindings::__ib_alloc_cq(
                pd.raw_device(),
                ptr::null_mut(),
                4,
                0,
                bindings::ib_poll_context_IB_POLL_DIRECT,
                NAME.as_char_ptr(),
            )
        })?;
        let cq = Cq(NonNull::new(cq).ok_or(ENOMEM)?);
        let mut attr = bindings::ib_qp_init_attr {
            send_cq: cq.0.as_ptr(),
            recv_cq: cq.0.as_ptr(),
            cap: bindings::ib_qp_cap {
                max_send_wr: 2,
                max_recv_wr: 1,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        // SAFETY: The domain and the completion queue are valid, and outlive the queue pair.
        let qp = from_err_ptr(unsafe {
            bindings::ib_create_qp_kernel(pd.as_raw(), &mut attr, NAME.as_char_ptr())
        })?;
        let qp = Qp(NonNull::new(qp).ok_or(ENOMEM)?);
        // SAFETY: The queue pair and the id are valid. The queue pair is new, and the id is bound.
        to_result(unsafe { bindings::rdsrdma_connect_to_itself(qp.0.as_ptr(), pd.id().as_raw()) })?;
        // INVARIANT: The queue pair was connected above, and nothing is posted.
        Ok(Self { qp, cq, entry })
    }

    /// Posts the registration of a region, and waits until it has completed. After an error the
    /// device may still execute the registration until the queue pair is destroyed. May sleep.
    fn register<L: Lender>(&mut self, region: &Region<L>) -> Result {
        let access = bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_READ
            | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
        let entry: *const Entry = &*self.entry;
        let mut wr = bindings::ib_reg_wr {
            mr: region.mr.as_ptr(),
            key: region.key(),
            // CAST: Access flags fit in 31 bits.
            access: access as c_int,
            ..Default::default()
        };
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        // CAST: The flag is a single bit.
        wr.wr.send_flags = bindings::ib_send_flags_IB_SEND_SIGNALED as c_int;
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits. `cqe` is the first
        // member of the entry.
        wr.wr.__bindgen_anon_1.bindgen_union_field = entry as u64;
        self.entry.status.store(PENDING, Relaxed);
        let mut failed = ptr::null();
        // SAFETY: The queue pair is valid, and has space because nothing else is posted. `entry`
        // belongs to `self`, so it outlives the work request. The region outlives it too: if this
        // function fails, the caller destroys the queue pair before the region.
        let errno =
            unsafe { bindings::xprtrdma_post_send(self.qp.0.as_ptr(), &wr.wr, &mut failed) };
        to_result(errno)?;
        for _ in 0..LOOKS {
            // SAFETY: The completion queue is valid. No other thread polls it, because `self` is
            // mutably borrowed.
            unsafe { bindings::ib_process_cq_direct(self.cq.0.as_ptr(), 1) };
            // ORDERING: Pairs with the release in `done`.
            match self.entry.status.load(Acquire) {
                PENDING => fsleep(PAUSE),
                0 => return Ok(()),
                _ => return Err(EIO),
            }
        }
        Err(ETIMEDOUT)
    }

    /// Destroys the queue pair. Returns false if the device may still execute posted work requests.
    fn end(self) -> bool {
        let Self { qp, cq, entry } = self;
        let gone = qp.destroy();
        if !gone {
            // The device may still use the completion queue and the entry, so both are leaked.
            core::mem::forget((cq, entry));
        }
        gone
    }
}

/// Registers regions in a protection domain.
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::lend::Loan;
/// # use xprtrdma_rdma::{pd::Pd, registrar::{Region, Registrar}};
/// /// Opens memory of two pages to every peer of the domain.
/// fn open<L: Loan>(pd: &Arc<Pd>, loan: L) -> Result<Region<L::Lender>> {
///     Registrar::new(pd)?.expose(loan, 2, |_| false)
/// }
/// ```
///
/// If a registration fails or does not complete in time, the registrar destroys its queue pair.
/// After that the device cannot execute the registration any more, so the memory can be released.
/// The next registration creates a new queue pair.
#[pin_data]
pub struct Registrar {
    /// The registrar's queue pair, or `None` after a registration has failed.
    #[pin]
    own: Mutex<Option<Loop>>,
    pd: Arc<Pd>,
}

// SAFETY: Any thread may use verbs objects.
unsafe impl Send for Registrar {}
// SAFETY: The lock lets one thread at a time use the objects.
unsafe impl Sync for Registrar {}

impl Registrar {
    /// Creates the registrar and its queue pair. The id of the domain must be bound. May sleep.
    pub fn new(pd: &Arc<Pd>) -> Result<Arc<Self>> {
        let own = Some(Loop::new(pd)?);
        Arc::pin_init(
            pin_init!(Self {
                own <- new_mutex!(own, "Registrar::own"),
                pd: pd.clone(),
            }),
            GFP_KERNEL,
        )
    }

    /// Registers exactly the memory of a loan for reading and writing. `pages` is the number of
    /// pages that contain the memory. A peer addresses a byte by its offset from the beginning of
    /// the first page. `taken` returns true for a key that another region has. The first key for
    /// which it returns false becomes the key of the region. May sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the loan covers more than `pages` pages, has no bytes, or has a gap.
    /// - `EBUSY`: the device cannot map the memory so that these offsets are valid.
    /// - `EAGAIN`: all keys that the region could get are taken.
    /// - `EIO`: the registration failed.
    /// - `ETIMEDOUT`: the registration did not complete in time.
    pub fn expose<L: Loan>(
        self: &Arc<Self>,
        loan: L,
        pages: u32,
        taken: impl FnMut(u32) -> bool,
    ) -> Result<Region<L::Lender>> {
        if pages == 0 {
            return Err(EINVAL);
        }
        let mut sg = KVec::<scatterlist>::with_capacity(pages as usize, GFP_KERNEL)?;
        let place = sg.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: The vector has space for this number of entries, which is at least one.
        unsafe { kernel::bindings::sg_init_table(place, pages) };
        // SAFETY: The call above has initialised these entries.
        unsafe { sg.inc_len(pages as usize) };
        let mut filling = Filling::new(&mut sg, self.pd.max_entry(), false);
        loan.pieces(0, |piece| filling.add(piece));
        let (nents, bytes) = (filling.nents, filling.bytes);
        if bytes != loan.len() {
            return Err(EINVAL);
        }
        sg.truncate(nents);
        mark_end(sg.last_mut().ok_or(EINVAL)?);
        let offset = sg.first().map_or(0, |entry| entry.offset);
        // SAFETY: The domain is valid, and the region will hold a reference to it.
        let mr = from_err_ptr(unsafe {
            bindings::ib_alloc_mr(
                self.pd.as_raw(),
                bindings::ib_mr_type_IB_MR_TYPE_MEM_REG,
                pages,
            )
        })?;
        // INVARIANT: The region was allocated above, and nothing is mapped.
        let mut region = Region {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            sg,
            mapped: false,
            lost: false,
            lender: core::mem::ManuallyDrop::new(loan.into_lender()),
            registrar: self.clone(),
        };
        region.map(offset.into())?;
        region.choose_key(taken)?;
        self.register(&mut region)?;
        Ok(region)
    }

    /// Registers a region, and waits until the registration has completed. May sleep.
    fn register<L: Lender>(&self, region: &mut Region<L>) -> Result {
        let mut place = self.own.lock();
        let own = match &mut *place {
            Some(own) => own,
            none => none.insert(Loop::new(&self.pd)?),
        };
        let registered = own.register(region);
        if registered.is_err() {
            region.lost = place.take().is_some_and(|own| !own.end());
        }
        registered
    }
}

/// # Safety
///
/// Only ib_core calls this, for a work request that was posted with the `cqe` of an [`Entry`].
unsafe extern "C" fn done(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: `wc` is valid during the call.
    let wc = unsafe { &*wc };
    // CAST: The same pointer was stored as 64 bits when the work request was posted.
    let entry = wc.__bindgen_anon_1.bindgen_union_field as *const Entry;
    // SAFETY: The entry belongs to the registrar whose thread is polling.
    let entry = unsafe { &*entry };
    // ORDERING: Pairs with the acquire in `register`. CAST: A status is a small number.
    entry.status.store(wc.status as i32, Release);
}

/// The direction for which the memory of regions is mapped.
const BOTH: u32 = bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_BIDIRECTIONAL;

/// A region that peers can access. It holds the lender of its memory. Dropping the region ends the
/// peers' access, and may sleep.
///
/// # Invariants
///
/// - `mr` is valid until `drop`.
/// - If `mapped` is true, all of `sg` is mapped for both directions.
pub struct Region<L: Lender> {
    mr: NonNull<bindings::ib_mr>,
    sg: KVec<scatterlist>,
    mapped: bool,
    /// Whether the device may still use the region, now or later. If so, the memory of the region
    /// must be leaked.
    lost: bool,
    lender: core::mem::ManuallyDrop<L>,
    registrar: Arc<Registrar>,
}

// SAFETY: Any thread may use an `ib_mr`. The object owns its scatterlist.
unsafe impl<L: Lender> Send for Region<L> {}
// SAFETY: A `&Region` only reads fields and syncs memory. Several threads may do this at the same
// time.
unsafe impl<L: Lender> Sync for Region<L> {}

impl<L: Lender> Region<L> {
    /// Returns the key of the region.
    pub fn key(&self) -> u32 {
        // SAFETY: By the type invariant, the region is valid. Its key is constant after the
        // registration.
        unsafe { (*self.mr.as_ptr()).rkey }
    }

    /// Makes the device's writes visible to programs.
    pub fn sync_for_cpu(&self) {
        // SAFETY: By the type invariant, the memory is mapped. The domain keeps the device alive.
        unsafe {
            bindings::rdsrdma_dma_sync_for_cpu(
                self.registrar.pd.raw_device(),
                self.sg.as_ptr().cast_mut(),
                self.sg.len() as c_int,
            )
        };
    }

    /// Makes the programs' writes visible to the device.
    pub fn sync_for_device(&self) {
        // SAFETY: By the type invariant, the memory is mapped. The domain keeps the device alive.
        unsafe {
            bindings::rdsrdma_dma_sync_for_device(
                self.registrar.pd.raw_device(),
                self.sg.as_ptr().cast_mut(),
                self.sg.len() as c_int,
            )
        };
    }

    /// Maps the memory. `offset` is the offset at which the memory begins in its first page.
    fn map(&mut self, offset: u64) -> Result {
        let dev = self.registrar.pd.raw_device();
        let nents = c_int::try_from(self.sg.len())?;
        // SAFETY: The scatterlist is complete, and its pages exist as long as the lender. The
        // device exists as long as the domain.
        let mapped =
            unsafe { bindings::xprtrdma_dma_map_sg(dev, self.sg.as_mut_ptr(), nents, BOTH) };
        if mapped <= 0 {
            return Err(EBUSY);
        }
        // INVARIANT: The call above mapped the memory.
        self.mapped = true;
        let address = self.sg.first().map_or(0, |entry| entry.dma_address);
        // CAST: An offset in a page is far below 2^32.
        let in_page = PAGE_SIZE as u64 - 1;
        if address & in_page != offset {
            return Err(EBUSY);
        }
        // SAFETY: No other thread uses the region, and the scatterlist is mapped.
        let used = unsafe {
            bindings::ib_map_mr_sg(
                self.mr.as_ptr(),
                self.sg.as_mut_ptr(),
                mapped,
                ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        if used != mapped {
            return Err(EBUSY);
        }
        // SAFETY: No other thread uses the region before its registration, from which the device
        // learns the address.
        unsafe { (*self.mr.as_ptr()).iova = offset };
        Ok(())
    }

    /// Chooses a key that peers cannot predict and that no other region has.
    fn choose_key(&mut self, mut taken: impl FnMut(u32) -> bool) -> Result {
        const OURS: u32 = 0xff;
        // CAST: The cast keeps the lowest bits of the random number.
        let drawn = unforeseen64() as u32;
        for step in 0..=OURS {
            // SAFETY: No other thread uses the region.
            let former = unsafe { (*self.mr.as_ptr()).rkey };
            // Verbs allow this code to choose only the lowest byte of a key.
            let key = (former & !OURS) | (drawn.wrapping_add(step) & OURS);
            if key != 0 && !taken(key) {
                // SAFETY: No other thread uses the region.
                unsafe { (*self.mr.as_ptr()).rkey = key };
                // SAFETY: No other thread uses the region.
                let local = unsafe { (*self.mr.as_ptr()).lkey } & !OURS;
                // SAFETY: No other thread uses the region.
                unsafe { (*self.mr.as_ptr()).lkey = local | (key & OURS) };
                return Ok(());
            }
        }
        Err(EAGAIN)
    }
}

impl<L: Lender> Drop for Region<L> {
    fn drop(&mut self) {
        let lost = self.lost || {
            // SAFETY: By the type invariant, the region is valid. The region is not used again,
            // because no posted work request refers to it. Deregistration ends the peers' access.
            unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) != 0 }
        };
        if lost {
            // The device may still use the region, so the region's memory is not freed.
            // LOG: A fault of a device or its driver (only with `rds_rdma_rs`). The region is never
            // freed.
            pr_err!("the device does not give up a region: its memory is lost\n");
            return;
        }
        if self.mapped {
            // SAFETY: By the type invariant, the memory is mapped. It is unmapped once.
            unsafe {
                bindings::xprtrdma_dma_unmap_sg(
                    self.registrar.pd.raw_device(),
                    self.sg.as_mut_ptr(),
                    self.sg.len() as c_int,
                    BOTH,
                )
            };
        }
        // SAFETY: No other code drops the lender.
        unsafe { core::mem::ManuallyDrop::drop(&mut self.lender) };
    }
}
