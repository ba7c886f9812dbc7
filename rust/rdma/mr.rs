// SPDX-License-Identifier: GPL-2.0

//! Memory regions: who may touch which memory, and until when.
//!
//! A region is always in one of these types, and moves between them by value:
//!
//! ```text
//!          map()                    (queue pair posts it)
//!  IdleMr ───────▶ ExposedMr ─────────────────────────────┐
//!    ▲                │                                   │
//!    │   remotely_invalidated(&RemoteInvalidation)        │
//!    ├────────────────┤                                   │
//!    │   locally_invalidated(&LocalInvalidation)          │
//!    ├────────────────┘                                   │
//!    └──────── unposted(): nothing was ever posted        ▼
//!                                        drop: deregistered, never reused
//! ```
//!
//! [`ExposedMr`] owns the [`Lender`] of its memory: the memory goes back to its owner when the
//! region is proven out of the peer's reach, and not before. The two proofs can only be made by the
//! completion handlers of [`qp`](crate::qp). Dropping an exposed region deregisters it, which is a
//! proof of its own but sleeps and loses the region.

use crate::{
    dma::{
        Direction,
        Lender, //
    },
    pd::Pd,
};
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull}, //
};
use kernel::{
    bindings::scatterlist,
    error::from_err_ptr,
    page::{
        BorrowedPage,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// What the peer may do with a region: least privilege (V1-108).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA Read only: the source of a Read chunk.
    RemoteRead,
    /// RDMA Write only: the sink of a Write or Reply chunk.
    RemoteWrite,
}

impl Access {
    fn direction(self) -> Direction {
        match self {
            Self::RemoteRead => Direction::ToDevice,
            Self::RemoteWrite => Direction::FromDevice,
        }
    }

    fn raw(self) -> c_int {
        let flags = match self {
            Self::RemoteRead => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::RemoteWrite => {
                bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
        };
        // CAST: Access flags fit in 31 bits.
        flags as c_int
    }
}

/// The bits of `scatterlist::page_link` that are no part of the page's address (linux/scatterlist.h).
const SG_BITS: usize = 3;

/// How one region presents its memory to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Steering tag (rkey).
    pub handle: u32,
    /// Octets.
    pub length: u32,
    /// Address of the first octet: its offset in its page, so that no kernel address is shown.
    pub offset: u64,
}

/// The `ib_mr` and its scatterlist: allocated once, used for one call after the other.
///
/// # Invariants
///
/// - `mr` is valid until `drop`.
/// - `sg` has been initialised by `sg_init_table` and is as long as the region is deep.
/// - `mapped` entries of `sg` are DMA-mapped for `access`.
struct Inner {
    mr: NonNull<bindings::ib_mr>,
    sg: KVec<scatterlist>,
    mapped: usize,
    access: Access,
    pd: Arc<Pd>,
}

// SAFETY: Owned; `ib_mr` has no thread affinity.
unsafe impl Send for Inner {}
// SAFETY: `&Inner` only reads.
unsafe impl Sync for Inner {}

impl Inner {
    fn unmap(&mut self) {
        if self.mapped != 0 {
            // SAFETY: `mapped` entries are mapped for this direction by the type invariant. The
            // device keeps its existence through `pd`.
            unsafe {
                bindings::xprtrdma_dma_unmap_sg(
                    self.pd.raw_device(),
                    self.sg.as_mut_ptr(),
                    self.mapped as c_int,
                    self.access.direction().raw(),
                )
            };
            // INVARIANT: Nothing is mapped now.
            self.mapped = 0;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariant and not used again. Deregistration ends the peer's
        // access, so unmapping afterwards is safe in every state.
        unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) };
        self.unmap();
    }
}

/// A region that nobody but us can reach.
pub struct IdleMr(KBox<Inner>);

/// Why a region could not be mapped; the region and the lender come back.
pub struct MapError<L> {
    /// The region, idle as before.
    pub mr: IdleMr,
    /// The memory's lender.
    pub lender: L,
    /// The reason: `EINVAL` when nothing is to be mapped, `EIO` when the device or its IOMMU
    /// refused.
    pub error: Error,
}

impl IdleMr {
    /// Allocates a region of `pages` pages on the device of `pd`. May sleep.
    ///
    /// With `gaps` the region's pieces need not meet at page borders; the device must offer it.
    pub fn alloc(pd: &Arc<Pd>, pages: u32, gaps: bool) -> Result<Self> {
        let mut sg = KVec::with_capacity(pages as usize, GFP_KERNEL)?;
        for _ in 0..pages {
            sg.push_within_capacity(scatterlist::default())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: The table has `pages` entries.
        unsafe { kernel::bindings::sg_init_table(sg.as_mut_ptr(), pages) };
        let kind = if gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: `pd` is valid and will be held by the region.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })?;
        // INVARIANT: Allocated just now; nothing is mapped.
        let inner = Inner {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            sg,
            mapped: 0,
            access: Access::RemoteRead,
            pd: pd.clone(),
        };
        Ok(Self(KBox::new(inner, GFP_KERNEL)?))
    }

    /// Maps as much of the lender's memory from `start` on as one region can hold and gives it a
    /// new key (V1-106). Does not sleep.
    ///
    /// The region counts as exposed from here on, although the peer can reach it only once a
    /// queue pair has posted it.
    pub fn map<L: Lender>(
        self,
        lender: L,
        start: usize,
        access: Access,
    ) -> Result<ExposedMr<L>, MapError<L>> {
        let mut inner = self.0;
        let gaps = {
            // SAFETY: The region is valid; its type never changes.
            let kind = unsafe { (*inner.mr.as_ptr()).type_ };
            kind == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        };
        let fail = |inner, lender, error| {
            Err(MapError {
                mr: IdleMr(inner),
                lender,
                error,
            })
        };

        let (nents, length) = fill(&mut inner.sg, &lender, start, gaps);
        if nents == 0 {
            return fail(inner, lender, EINVAL);
        }
        let dev = inner.pd.raw_device();
        // SAFETY: The first `nents` entries of the table were filled in; the lender keeps their
        // pages.
        let mapped = unsafe {
            bindings::xprtrdma_dma_map_sg(
                dev,
                inner.sg.as_mut_ptr(),
                nents as c_int,
                access.direction().raw(),
            )
        };
        if mapped <= 0 {
            return fail(inner, lender, EIO);
        }
        // INVARIANT: These entries are mapped for `access` now; unmapping takes the number given
        // to the mapping call, not the number that it returned.
        inner.mapped = nents;
        inner.access = access;
        let mr = inner.mr.as_ptr();
        // SAFETY: The region is idle, i.e. ours; the table is mapped.
        let used = unsafe {
            bindings::ib_map_mr_sg(
                mr,
                inner.sg.as_mut_ptr(),
                mapped,
                ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        // A region that covers less than it was given would shift every octet behind the gap.
        if used != mapped {
            inner.unmap();
            return fail(inner, lender, EIO);
        }
        // SAFETY: The region is ours until it is posted. The device learns address and key from
        // the registration work request.
        unsafe {
            (*mr).iova &= PAGE_SIZE as u64 - 1;
            bindings::xprtrdma_bump_rkey(mr);
        }
        Ok(ExposedMr {
            inner: ManuallyDrop::new(inner),
            length,
            posted: false,
            invalidate_seq: 0,
            lender: ManuallyDrop::new(lender),
        })
    }
}

/// Fills `sg` with the lender's pieces from `start` on; returns entries and octets used.
///
/// Without `gaps` a region can only continue where one piece ends and the next begins at a page
/// border.
fn fill<L: Lender>(sg: &mut [scatterlist], lender: &L, start: usize, gaps: bool) -> (usize, u32) {
    // NO-OVERFLOW: Everything here is bounded by the octets that a region can hold, which were
    // allocated a list of entries for, or by the length of a piece of memory.
    let mut room = sg.len().wrapping_mul(PAGE_SIZE);
    let (mut nents, mut total) = (0usize, 0usize);
    // Where the last piece ended in its page; the first may begin anywhere.
    let mut end = 0;

    for (entry, (page, offset, len)) in sg.iter_mut().zip(lender.pieces(start)) {
        let first = offset % PAGE_SIZE;
        if ((end | first) != 0 && nents != 0 && !gaps) || room == 0 {
            break;
        }
        // A piece that is too long for the rest of the region is cut at a page border.
        let part = core::cmp::min(len, room.wrapping_sub(first));
        set_page(entry, page, part as u32, offset as u32);
        let behind = first.wrapping_add(part);
        room = room.wrapping_sub(behind.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1));
        end = behind % PAGE_SIZE;
        nents = nents.wrapping_add(1);
        total = total.wrapping_add(part);
        if part != len {
            break;
        }
    }
    (nents, total as u32)
}

/// Points an entry of an initialised table at memory; what the table itself keeps in the entry's
/// lowest bits stays.
#[inline]
fn set_page(entry: &mut scatterlist, page: BorrowedPage<'_>, len: u32, offset: u32) {
    entry.page_link = (entry.page_link & SG_BITS) | page.as_ptr().addr();
    entry.offset = offset;
    entry.length = len;
}

/// A region that the peer may be able to reach, with the lender of its memory.
///
/// Dropping it deregisters the region, which may sleep. One that was posted may only be dropped when
/// its queue pair is shut down; before, it is leaked with its memory.
pub struct ExposedMr<L: Lender> {
    inner: ManuallyDrop<KBox<Inner>>,
    length: u32,
    // Whether a queue pair has been told about it.
    posted: bool,
    // Which posted invalidation covers this region; 0: none.
    invalidate_seq: u64,
    lender: ManuallyDrop<L>,
}

impl<L: Lender> Drop for ExposedMr<L> {
    fn drop(&mut self) {
        if self.posted && !self.inner.pd.is_drained() {
            // Work requests may still refer to the region: neither it nor its memory can go. The
            // request that lent the memory will wait for ever, which is bad, but not wrong.
            pr_err!("a region was dropped while its queue pair is in use\n");
            return;
        }
        // SAFETY: Dropped once, here; the region is deregistered and unmapped before its memory
        // goes back to the lender.
        unsafe {
            ManuallyDrop::drop(&mut self.inner);
            ManuallyDrop::drop(&mut self.lender);
        }
    }
}

impl<L: Lender> ExposedMr<L> {
    /// What the peer is told about the region.
    pub fn window(&self) -> Window {
        // SAFETY: The region is valid; key and address are constant while it is exposed.
        let mr = unsafe { &*self.inner.mr.as_ptr() };
        Window {
            handle: mr.rkey,
            length: self.length,
            offset: mr.iova,
        }
    }

    /// The lender of the region's memory.
    pub fn lender(&self) -> &L {
        &self.lender
    }

    /// Takes the region back on the proof that the peer's message invalidated it.
    ///
    /// Returns the region unchanged if the proof is about another one.
    pub fn remotely_invalidated(self, proof: &RemoteInvalidation) -> Result<(IdleMr, L), Self> {
        if proof.rkey == self.window().handle && proof.pd == self.inner.pd.as_raw() as usize {
            Ok(self.reclaim())
        } else {
            Err(self)
        }
    }

    /// Takes the region back on the proof that our own invalidation completed.
    ///
    /// Returns the region unchanged if the proof does not cover it.
    pub fn locally_invalidated(self, proof: &LocalInvalidation) -> Result<(IdleMr, L), Self> {
        if self.invalidate_seq != 0
            && self.invalidate_seq <= proof.seq
            && proof.pd == self.inner.pd.as_raw() as usize
        {
            Ok(self.reclaim())
        } else {
            Err(self)
        }
    }

    /// Takes the region back if no queue pair was ever told about it.
    pub fn unposted(self) -> Result<(IdleMr, L), Self> {
        if self.posted {
            Err(self)
        } else {
            Ok(self.reclaim())
        }
    }

    fn reclaim(self) -> (IdleMr, L) {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: Both are taken once; `this` is not used again, nor dropped.
        let (mut inner, lender) = unsafe {
            (
                ManuallyDrop::take(&mut this.inner),
                ManuallyDrop::take(&mut this.lender),
            )
        };
        inner.unmap();
        (IdleMr(inner), lender)
    }

    pub(crate) fn reg_wr(&mut self, cqe: *mut bindings::ib_cqe) -> bindings::ib_reg_wr {
        self.posted = true;
        let mut wr = bindings::ib_reg_wr::default();
        wr.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        // CAST: The union's first member is the pointer, as 64 bits.
        wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.mr = self.inner.mr.as_ptr();
        wr.key = self.window().handle;
        wr.access = self.inner.access.raw();
        wr
    }

    pub(crate) fn inv_wr(&mut self, seq: u64, cqe: *mut bindings::ib_cqe) -> bindings::ib_send_wr {
        self.invalidate_seq = seq;
        let mut wr = bindings::ib_send_wr {
            opcode: bindings::ib_wr_opcode_IB_WR_LOCAL_INV,
            ..Default::default()
        };
        // CAST: As in `reg_wr`.
        wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.ex.bindgen_union_field = self.window().handle;
        wr
    }
}

/// Proof that a message of the peer invalidated the region with this rkey.
pub struct RemoteInvalidation {
    pub(crate) rkey: u32,
    pub(crate) pd: usize,
}

impl RemoteInvalidation {
    /// The rkey of the invalidated region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }
}

/// Proof that every invalidation up to a point of the send queue has completed.
pub struct LocalInvalidation {
    pub(crate) seq: u64,
    pub(crate) pd: usize,
}
