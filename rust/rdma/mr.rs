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
        Lender,
        Loan, //
    },
    marked::Marked,
    pd::Pd,
};
use core::{
    cell::Cell,
    mem::ManuallyDrop,
    ptr::{self, NonNull},
    slice, //
};
use kernel::{
    bindings::{
        page,
        scatterlist, //
    },
    error::from_err_ptr,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc, //
    },
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
    #[inline]
    fn direction(self) -> Direction {
        match self {
            Self::RemoteRead => Direction::ToDevice,
            Self::RemoteWrite => Direction::FromDevice,
        }
    }

    #[inline]
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

/// The `ib_mr`, its scatterlist and its work requests: allocated once, used for one call after the
/// other.
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
    // Only `next` and the completion entry are missing in the one, and the key in both.
    reg: bindings::ib_reg_wr,
    inv: bindings::ib_send_wr,
    pd: Arc<Pd>,
}

// SAFETY: Owned; `ib_mr` has no thread affinity.
unsafe impl Send for Inner {}
// SAFETY: `&Inner` only reads.
unsafe impl Sync for Inner {}

impl Inner {
    #[inline]
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

/// Why a region could not be mapped; the region and the loan come back.
pub struct MapError<L> {
    /// The region, idle as before.
    pub mr: IdleMr,
    /// The memory.
    pub loan: L,
    /// The reason: `EINVAL` when nothing is to be mapped, `EIO` when the device or its IOMMU
    /// refused.
    pub error: Error,
}

impl IdleMr {
    /// Allocates a region of `pages` pages on the device of `pd`. May sleep.
    ///
    /// `EINVAL` for a region without pages. With `gaps` the region's pieces need not meet at page borders; the device must offer it.
    pub fn alloc(pd: &Arc<Pd>, pages: u32, gaps: bool) -> Result<Self> {
        if pages == 0 {
            return Err(EINVAL);
        }
        let mut sg = KVec::with_capacity(pages as usize, GFP_KERNEL)?;
        for _ in 0..pages {
            sg.push_within_capacity(scatterlist::default())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: The table has `pages` entries, and at least the one that becomes the last.
        unsafe { kernel::bindings::sg_init_table(sg.as_mut_ptr(), pages) };
        let kind = if gaps {
            bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        } else {
            bindings::ib_mr_type_IB_MR_TYPE_MEM_REG
        };
        // SAFETY: `pd` is valid and will be held by the region.
        let mr = from_err_ptr(unsafe { bindings::ib_alloc_mr(pd.as_raw(), kind, pages) })?;
        // INVARIANT: Allocated just now; nothing is mapped.
        let mut inner = Inner {
            mr: NonNull::new(mr).ok_or(ENOMEM)?,
            sg,
            mapped: 0,
            access: Access::RemoteRead,
            reg: Default::default(),
            inv: Default::default(),
            pd: pd.clone(),
        };
        inner.reg.wr.opcode = bindings::ib_wr_opcode_IB_WR_REG_MR;
        inner.reg.mr = mr;
        inner.inv.opcode = bindings::ib_wr_opcode_IB_WR_LOCAL_INV;
        Ok(Self(KBox::new(inner, GFP_KERNEL)?))
    }

    /// Maps as much of the loan's memory from `start` on as one region can hold and gives it a
    /// new key (V1-106). Does not sleep.
    ///
    /// The region counts as exposed from here on, although the peer can reach it only once a
    /// queue pair has posted it.
    pub fn map<L: Loan>(
        self,
        loan: L,
        start: usize,
        access: Access,
    ) -> Result<ExposedMr<L::Lender>, MapError<L>> {
        let mut inner = self.0;
        let gaps = {
            // SAFETY: The region is valid; its type never changes.
            let kind = unsafe { (*inner.mr.as_ptr()).type_ };
            kind == bindings::ib_mr_type_IB_MR_TYPE_SG_GAPS
        };
        let fail = |inner, loan, error| {
            Err(MapError {
                mr: IdleMr(inner),
                loan,
                error,
            })
        };

        let mut filling = Filling {
            max_entry: inner.pd.max_entry(),
            // NO-OVERFLOW: A region was allocated a list of entries for its pages.
            room: inner.sg.len().wrapping_mul(PAGE_SIZE),
            sg: &mut inner.sg,
            gaps,
            end: 0,
            octets: 0,
            nents: 0,
        };
        loan.pieces(start, |pages, first, len| filling.add(pages, first, len));
        let (nents, length) = (filling.nents, filling.octets as u32);
        if nents == 0 {
            return fail(inner, loan, EINVAL);
        }
        let dev = inner.pd.raw_device();
        // SAFETY: The first `nents` entries of the table were filled in; the loan keeps their
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
            return fail(inner, loan, EIO);
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
            return fail(inner, loan, EIO);
        }
        // SAFETY: The region is ours until it is posted. The device learns address and key from
        // the registration work request.
        unsafe {
            (*mr).iova &= PAGE_SIZE as u64 - 1;
            bindings::xprtrdma_bump_rkey(mr);
        }
        // SAFETY: The region is valid; nobody else changes its key.
        let key = unsafe { (*mr).rkey };
        inner.reg.key = key;
        inner.reg.access = access.raw();
        inner.inv.ex.bindgen_union_field = key;
        Ok(ExposedMr {
            inner: ManuallyDrop::new(inner),
            length,
            posted: UNPOSTED,
            invalidate_seq: 0,
            lender: ManuallyDrop::new(loan.into_lender()),
        })
    }
}

/// What a region's table is filled with.
struct Filling<'a> {
    /// Octets of the longest entry that can be mapped: whole pages, at least one.
    max_entry: u32,
    sg: &'a mut [scatterlist],
    /// Octets of whole pages that are left.
    room: usize,
    /// Whether it may continue where one piece does not end, or the next does not begin, at a page
    /// border.
    gaps: bool,
    /// Where the last piece ended in its page.
    end: usize,
    /// Octets and entries so far.
    octets: usize,
    nents: usize,
}

impl Filling<'_> {
    /// Adds a piece, see [`Loan::pieces`]. `false`: that was all, perhaps not even all of it.
    fn add(&mut self, pages: &[*mut page], first: usize, len: usize) -> bool {
        // NO-OVERFLOW: Everything here is bounded by the octets that a region can hold, which were
        // allocated a list of entries for, or by the length of a piece of memory.
        if self.room == 0 || (self.nents != 0 && !self.gaps && (self.end | first) != 0) {
            return false;
        }
        // As a rule a small transfer is in one page.
        let behind = first.wrapping_add(len);
        if behind > PAGE_SIZE {
            return self.add_pages(pages, first, len);
        }
        let page = pages.first().copied().and_then(NonNull::new);
        let (Some(entry), Some(page)) = (self.sg.get_mut(self.nents), page) else {
            return false;
        };
        set_page(entry, page, len as u32, first as u32);
        self.added(1, len, PAGE_SIZE, behind);
        true
    }

    /// Adds a piece of more than one page, for which there is at least a page.
    #[inline(never)]
    fn add_pages(&mut self, pages: &[*mut page], first: usize, len: usize) -> bool {
        // NO-OVERFLOW: As in `add`.
        // A piece that is too long for the rest of the region is cut at a page border.
        let part = core::cmp::min(len, self.room.wrapping_sub(first));
        let behind = first.wrapping_add(part);
        let used = behind.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let pages = pages.get(..used / PAGE_SIZE).unwrap_or(pages);
        let sg = self.sg.get_mut(self.nents..).unwrap_or(&mut []);
        let Some(nents) = fill(sg, self.max_entry, pages, first, part) else {
            return false;
        };
        self.added(nents, part, used, behind);
        part == len
    }

    /// Accounts for so many entries and octets, which take `used` octets of whole pages and end at
    /// `behind`.
    #[inline]
    fn added(&mut self, nents: usize, octets: usize, used: usize, behind: usize) {
        // NO-OVERFLOW: As in `add`.
        self.nents = self.nents.wrapping_add(nents);
        self.octets = self.octets.wrapping_add(octets);
        self.room = self.room.wrapping_sub(used);
        self.end = behind % PAGE_SIZE;
    }
}

/// Fills entries of at most `max` octets with `len` octets that begin at `first` of the first page, and go
/// on behind the last page in those that follow it physically; returns how many were used.
///
/// `None` if a page is missing, which cannot be: a reply's pages are allocated before it is sent.
#[inline]
fn fill(
    sg: &mut [scatterlist],
    max: u32,
    pages: &[*mut page],
    first: usize,
    len: usize,
) -> Option<usize> {
    let most = sg.len();
    let mut entries = sg.iter_mut();
    let mut entry = entries.next()?;
    let (&page, others) = pages.split_first()?;
    // Whole pages at first, for this loop is most of the work for a large transfer.
    set_page(entry, NonNull::new(page)?, 0, 0);
    let mut length = PAGE_SIZE as u32;
    let mut next = page.wrapping_add(1);
    for &page in others {
        if page == next {
            // Pages that follow each other in the memory map share an entry.
            length = length.wrapping_add(PAGE_SIZE as u32);
        } else {
            if length > max {
                (entry, length) = cut(entry, &mut entries, length, max)?;
            }
            entry.length = length;
            entry = entries.next()?;
            set_page(entry, NonNull::new(page)?, 0, 0);
            length = PAGE_SIZE as u32;
            next = page;
        }
        next = next.wrapping_add(1);
    }
    // NO-OVERFLOW: What is cut off, or goes on, at the end is less than what the entries hold.
    let whole = pages.len().wrapping_mul(PAGE_SIZE);
    let beyond = whole.wrapping_sub(first.wrapping_add(len));
    length = length.wrapping_sub(beyond as u32);
    if length > max {
        (entry, length) = cut(entry, &mut entries, length, max)?;
    }
    entry.length = length;
    let used = most.wrapping_sub(entries.len());
    let entry = sg.first_mut()?;
    entry.offset = first as u32;
    entry.length = entry.length.wrapping_sub(first as u32);
    Some(used)
}

/// Cuts `length` octets that begin with the page of `entry` at `max`, which is a number of whole pages.
/// Returns the entry of the rest, and its octets.
///
/// There are entries enough: each that was used so far, or is here, holds a page or more.
#[cold]
fn cut<'a>(
    mut entry: &'a mut scatterlist,
    entries: &mut slice::IterMut<'a, scatterlist>,
    mut length: u32,
    max: u32,
) -> Option<(&'a mut scatterlist, u32)> {
    while length > max {
        let page = (entry.page_link & !SG_BITS) as *mut page;
        // CAST: A number of pages.
        let behind = page.wrapping_add(max as usize / PAGE_SIZE);
        entry.length = max;
        entry = entries.next()?;
        set_page(entry, NonNull::new(behind)?, 0, 0);
        // NO-OVERFLOW: By the condition.
        length = length.wrapping_sub(max);
    }
    Some((entry, length))
}

/// Points an entry of an initialised table at memory; what the table itself keeps in the entry's
/// lowest bits stays.
#[inline]
fn set_page(entry: &mut scatterlist, page: NonNull<page>, len: u32, offset: u32) {
    entry.page_link = (entry.page_link & SG_BITS) | page.addr().get();
    entry.offset = offset;
    entry.length = len;
}

/// Of [`ExposedMr::posted`]: no queue pair was told about the region.
const UNPOSTED: u32 = 0;
/// Of [`ExposedMr::posted`]: the registration was posted at once.
const AT_ONCE: u32 = 1;
/// The least number of a doorbell for which registrations wait.
pub(crate) const FIRST_DOORBELL: u32 = 2;

/// A region that the peer may be able to reach, with the lender of its memory.
///
/// Dropping it deregisters the region, which may sleep. One that was posted may only be dropped when
/// its queue pair is shut down; before, it is leaked with its memory.
pub struct ExposedMr<L: Lender> {
    inner: ManuallyDrop<KBox<Inner>>,
    length: u32,
    // How a queue pair was told about it: see the constants; else the number of the doorbell for which
    // its registration waits or has waited.
    posted: u32,
    // Which posted invalidation covers this region; 0: none.
    invalidate_seq: u64,
    lender: ManuallyDrop<L>,
}

impl<L: Lender> Drop for ExposedMr<L> {
    fn drop(&mut self) {
        if self.posted != UNPOSTED && !self.inner.pd.is_drained() {
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
    #[inline]
    pub fn window(&self) -> Window {
        // No reference to all of it: other fields change.
        let mr = self.inner.mr.as_ptr();
        // SAFETY: The region is valid; its key is constant while it is exposed.
        let handle = unsafe { (*mr).rkey };
        // SAFETY: Likewise its address.
        let offset = unsafe { (*mr).iova };
        Window {
            handle,
            length: self.length,
            offset,
        }
    }

    /// The lender of the region's memory.
    pub fn lender(&self) -> &L {
        &self.lender
    }

    /// Takes the region back on the proof that the peer's message invalidated it.
    ///
    /// Returns the region unchanged if the proof is about another one or none at all, see
    /// [`RemoteInvalidation`], or if the registration still waits to be posted: then the peer has guessed
    /// the key, and the invalidation comes too early.
    pub fn remotely_invalidated(self, proof: &RemoteInvalidation<'_>) -> Result<(IdleMr, L), Self> {
        if proof.rkey == self.window().handle
            && proof.pd.get() == self.inner.pd.as_raw() as usize
            && proof.doorbell.read_once() != self.posted
        {
            proof.pd.set(NO_PD);
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
        if self.posted != UNPOSTED {
            Err(self)
        } else {
            Ok(self.reclaim())
        }
    }

    /// Whether the queue pair of this domain may be told about the region. Once for each mapping: a
    /// second registration of its key would outlive the proof that is about the first, and a queue
    /// pair of another domain is at work when this one's is drained.
    #[inline]
    pub(crate) fn may_be_posted(&self, pd: &Arc<Pd>) -> bool {
        self.posted == UNPOSTED && Arc::ptr_eq(&self.inner.pd, pd)
    }

    /// Whether it may be told to invalidate the region: behind its registration, once.
    #[inline]
    pub(crate) fn may_be_invalidated(&self, pd: &Arc<Pd>) -> bool {
        self.posted != UNPOSTED && self.invalidate_seq == 0 && Arc::ptr_eq(&self.inner.pd, pd)
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

    /// The registration, in front of `next`. It is the region's own and moves no more.
    #[inline]
    pub(crate) fn reg_wr(
        &mut self,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> &mut bindings::ib_send_wr {
        self.posted = AT_ONCE;
        let wr = &mut self.inner.reg.wr;
        // CAST: The union's first member is the pointer, as 64 bits.
        wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.next = next;
        wr
    }

    /// A registration that waits for the doorbell with this number. It refers to the region, but not to
    /// its own work requests, which are for the invalidation then.
    pub(crate) fn new_reg_wr(
        &mut self,
        doorbell: u32,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> bindings::ib_reg_wr {
        self.posted = doorbell;
        let reg = &self.inner.reg;
        let mut copy = bindings::ib_reg_wr {
            mr: reg.mr,
            key: reg.key,
            access: reg.access,
            ..Default::default()
        };
        copy.wr.next = next;
        copy.wr.opcode = reg.wr.opcode;
        // CAST: As in `reg_wr`.
        copy.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        copy
    }

    /// The invalidation, in front of `next`, likewise.
    pub(crate) fn inv_wr(
        &mut self,
        seq: u64,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> &mut bindings::ib_send_wr {
        self.invalidate_seq = seq;
        let wr = &mut self.inner.inv;
        // CAST: As in `reg_wr`.
        wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        wr.next = next;
        wr
    }
}

/// Of [`RemoteInvalidation::pd`]: it proves nothing.
pub(crate) const NO_PD: usize = 0;

/// What a message of the peer says: that it invalidated the region with this rkey.
///
/// It is a proof where the device is known to refuse a key that is not valid when the message arrives
/// ([`DeviceInfo::refuses_stale_keys`](crate::device::DeviceInfo::refuses_stale_keys)): then the device
/// has executed the registration before, and whatever else proves that the region is invalid is handled
/// later than this. And it is one once, for the region's next mapping may have the same key again.
/// Elsewhere the peer may have guessed the key of a registration that comes later, and only our own
/// invalidation is a proof.
pub struct RemoteInvalidation<'a> {
    pub(crate) rkey: u32,
    /// The domain of which it proves something.
    pub(crate) pd: Cell<usize>,
    /// The number of the queue pair's next doorbell: what waits for that was not posted.
    pub(crate) doorbell: &'a Atomic<u32>,
}

impl RemoteInvalidation<'_> {
    /// The rkey of the invalidated region.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Whether the device's word is a proof, which was not used yet.
    pub fn is_proof(&self) -> bool {
        self.pd.get() != NO_PD
    }
}

/// Proof that every invalidation up to a point of the send queue has completed.
pub struct LocalInvalidation {
    pub(crate) seq: u64,
    pub(crate) pd: usize,
}
