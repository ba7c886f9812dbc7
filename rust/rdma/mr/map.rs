// SPDX-License-Identifier: GPL-2.0

//! How memory is mapped to a region, and how the region gets a new key.

use super::{
    exposed::ExposedMr,
    idle::IdleMr,
    table::{
        set_page,
        unmark,
        Filling, //
    },
    Access,
    Inner, //
};
use core::ptr;
use kernel::{
    bindings::page,
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::{
    lend::{
        Loan,
        Piece, //
    },
    random::unforeseen64, //
};
use xprtrdma_bindings as bindings;

/// The error if a region could not be mapped. It returns the region and the loan to the caller.
pub struct MapError<L> {
    /// The region. The peer has no access to it.
    pub mr: IdleMr,
    /// The memory that could not be mapped.
    pub loan: L,
    /// The reason:
    ///
    /// - `EINVAL`: there is no memory to map.
    /// - `EACCES`: the region does not allow the access ([`IdleMr::allows`]).
    /// - `EIO`: the device or its IOMMU refused the mapping.
    pub error: Error,
}

impl IdleMr {
    /// Maps the memory of `loan`, beginning at byte `start`, and sets a new key (V1-106). Maps as
    /// many bytes as one region can hold. Does not sleep.
    ///
    /// This call makes the region an [`ExposedMr`], although the peer can access the region only
    /// after the registration of the region was posted on a queue pair.
    #[inline(always)]
    pub fn map<L: Loan>(
        self,
        loan: L,
        start: usize,
        access: Access,
    ) -> Result<ExposedMr<L::Lender>, MapError<L>> {
        let allowed = self.allows(access);
        let mut inner = self.0;
        let fail = |inner, loan, error| {
            Err(MapError {
                mr: IdleMr(inner),
                loan,
                error,
            })
        };

        if !allowed {
            return fail(inner, loan, EACCES);
        }
        let (loan, nents, length) = inner.fill(loan, start);
        if nents == 0 {
            return fail(inner, loan, EINVAL);
        }
        let dev = inner.dev;
        // SAFETY: The first `nents` entries of the scatterlist were filled in, and the loan keeps
        // their pages.
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
        // INVARIANT: `nents` entries are mapped for `access` now. Unmapping takes the number that
        // was passed to the mapping call, not the number that the call returned.
        inner.mapped = nents;
        inner.access = access;
        let mr = inner.mr.as_ptr();
        // SAFETY: The region is idle, so no other thread uses the region. The scatterlist is
        // mapped.
        let used = unsafe {
            bindings::ib_map_mr_sg(
                mr,
                inner.sg.as_mut_ptr(),
                mapped,
                ptr::null_mut(),
                PAGE_SIZE as u32,
            )
        };
        // The mapping fails if the region does not cover all entries. If an entry were left out,
        // the bytes of all later entries would have wrong addresses in the region.
        if used != mapped {
            inner.cover_nothing();
            inner.unmap();
            return fail(inner, loan, EIO);
        }
        let first = inner.sg.first().map_or(0, |entry| entry.dma_address);
        // SAFETY: Until the registration is posted, only this thread uses the region. The device
        // learns address and key from the registration work request, and no other thread changes
        // them.
        let (key, offset) = unsafe { renew(mr, first, unforeseen64()) };
        inner.offset = offset;
        inner.reg.key = key;
        inner.reg.access = access.raw();
        inner.inv.ex.bindgen_union_field = key;
        Ok(ExposedMr::new(inner, length, loan.into_lender()))
    }
}

impl Inner {
    /// Fills the scatterlist with the memory of `loan` from byte `start` on, until the scatterlist
    /// is full. Returns the loan, the number of entries in the scatterlist, and the number of bytes
    /// in these entries. The loan is passed by value, so that the compiler can usually keep it in
    /// registers.
    #[inline(always)]
    fn fill<L: Loan>(&mut self, loan: L, start: usize) -> (L, usize, u32) {
        let filled = match loan.only_piece() {
            Some(piece) if start == 0 => self.fill_one(piece),
            _ => {
                let moved = loan;
                let filled = self.fill_pieces(&moved, start);
                return (moved, filled.0, filled.1);
            }
        };
        (loan, filled.0, filled.1)
    }

    /// Fills the scatterlist with a piece, or with as much of the piece as fits. Returns the number
    /// of entries in the scatterlist, and the number of bytes in these entries.
    #[inline(always)]
    fn fill_one(&mut self, piece: Piece<'_>) -> (usize, u32) {
        // Usually a piece needs only one entry of the scatterlist.
        // NO-OVERFLOW: A piece of memory ends far below the maximum of `usize`.
        if piece.more.is_empty() && piece.first.wrapping_add(piece.len) <= self.reach {
            if let Some(entry) = self.sg.first_mut() {
                set_page(entry, piece.page, piece.len as u32, piece.first as u32);
                unmark(entry);
                return (1, piece.len as u32);
            }
        }
        self.fill_piece(piece.page, piece.more, piece.first, piece.len)
    }

    // The members of a `Piece` are passed as separate parameters, because the compiler would pass a
    // whole `Piece` in memory. Then the caller would store every piece in memory, even if it does
    // not call this function.
    #[inline(never)]
    fn fill_piece(
        &mut self,
        page: *mut page,
        more: &[*mut page],
        first: usize,
        len: usize,
    ) -> (usize, u32) {
        let mut filling = Filling::new(&mut self.sg, self.pd.max_entry(), self.gaps);
        filling.add(Piece {
            page,
            more,
            first,
            len,
        });
        (filling.nents, filling.bytes as u32)
    }

    #[inline(never)]
    fn fill_pieces<L: Loan>(&mut self, loan: &L, start: usize) -> (usize, u32) {
        let mut filling = Filling::new(&mut self.sg, self.pd.max_entry(), self.gaps);
        loan.pieces(start, |piece| filling.add(piece));
        (filling.nents, filling.bytes as u32)
    }
}

/// Sets a new key and a new random address of the region, and returns both.
///
/// The consumer of a region may choose the lowest byte of the key (`ib_inc_rkey()`,
/// `ib_update_fast_reg_key()`). This function always changes that byte.
///
/// The address keeps the memory's offset in its page. This function takes the offset from the DMA
/// address `first`. `ib_map_mr_sg()` has written the offset to `iova` too. But `iova` is not
/// reliable: if rxe has executed an earlier registration again since then, it has overwritten
/// `iova` with an earlier value.
///
/// The highest bit of the address is zero, so that no byte of the region has an address beyond 64
/// bits.
///
/// # Safety
///
/// `mr` is valid, and no other thread uses its keys.
#[inline(always)]
unsafe fn renew(mr: *mut bindings::ib_mr, first: u64, random: u64) -> (u32, u64) {
    const OURS: u32 = 0xff;
    // CAST: The size of a page is a small number.
    const IN_PAGE: u64 = PAGE_SIZE as u64 - 1;
    // CAST: Only the lowest eight bits of `random` are kept. The address uses none of these bits.
    let drawn = random as u32 & OURS;
    // SAFETY: By the caller's contract `mr` is valid. No reference to the whole `ib_mr` is made,
    // because other threads may change its other fields.
    unsafe {
        let offset = (first & IN_PAGE) | (random >> 1 & !IN_PAGE);
        (*mr).iova = offset;
        let part = match drawn == (*mr).rkey & OURS {
            true => drawn ^ 1,
            false => drawn,
        };
        (*mr).lkey = ((*mr).lkey & !OURS) | part;
        let key = ((*mr).rkey & !OURS) | part;
        (*mr).rkey = key;
        (key, offset)
    }
}
