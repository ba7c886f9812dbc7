// SPDX-License-Identifier: GPL-2.0

//! Lent memory that is mapped for a device ([`MappedLoan`]).

use crate::{
    dma::Direction,
    pd::Pd, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::lend::{
    Lender,
    Loan,
    Piece, //
};
use xprtrdma_bindings as bindings;

/// Lent memory that is mapped for a device, and its lender.
///
/// # Invariants
///
/// - Each element of `sges` is mapped for `dir` on the device of `pd`, until `drop`.
/// - `_lender` keeps the memory.
pub(crate) struct MappedLoan {
    sges: KVec<bindings::ib_sge>,
    dir: Direction,
    pd: Arc<Pd>,
    // Dropped after the memory has been unmapped.
    _lender: Option<KBox<dyn Lender>>,
}

impl MappedLoan {
    /// Maps all of the memory as at most `most` elements. Returns `E2BIG` if more elements are
    /// needed. May sleep.
    pub(crate) fn new<L: Loan>(loan: L, most: usize, pd: &Arc<Pd>, dir: Direction) -> Result<Self>
    where
        L::Lender: 'static,
    {
        // From here on an error must keep the memory until nothing is mapped any more.
        let place = KBox::<L::Lender>::new_uninit(GFP_KERNEL)?;
        let sges = KVec::with_capacity(most, GFP_KERNEL)?;
        // INVARIANT: Nothing is mapped yet, and `sges` is empty.
        let mut this = Self {
            sges,
            dir,
            pd: pd.clone(),
            _lender: None,
        };
        let mut mapped = Ok(());
        loan.pieces(0, |piece| {
            mapped = this.map(piece);
            mapped.is_ok()
        });
        let lender = KBox::write(place, loan.into_lender());
        this._lender = Some(lender);
        mapped.map(|()| this)
    }

    /// Maps a piece of memory, with one element for each listed page.
    fn map(&mut self, piece: Piece<'_>) -> Result {
        let dev = self.pd.raw_device();
        let (mut page, mut first, mut left) = (piece.page, piece.first, piece.len);
        let mut more = piece.more.iter();
        loop {
            let next = more.next();
            // All bytes that remain are in the last page and the pages that follow it in memory.
            // NO-OVERFLOW: A piece begins inside its first page, and `left` is at least `len`.
            let len = match next {
                Some(_) => left.min(PAGE_SIZE - first),
                None => left,
            };
            if self.sges.len() == self.sges.capacity() {
                return Err(E2BIG);
            }
            let dir = self.dir.raw();
            // SAFETY: The device exists as long as `pd`. The bytes exist by the contract of `Loan`.
            let addr = unsafe { bindings::xprtrdma_dma_map_page(dev, page, first, len, dir) };
            // SAFETY: The device exists. `addr` is the result of a mapping call for it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            let sge = bindings::ib_sge {
                addr,
                // CAST: A piece is part of a message, whose length is a `u32`.
                length: len as u32,
                lkey: self.pd.local_dma_lkey(),
            };
            // INVARIANT: The bytes were mapped above. The push cannot fail, because the vector has
            // a free element.
            self.sges.push_within_capacity(sge).map_err(|_| E2BIG)?;
            let Some(next) = next else {
                return Ok(());
            };
            (page, first, left) = (*next, 0, left.saturating_sub(len));
        }
    }

    /// Returns the elements. They are not moved while this object exists.
    pub(crate) fn sges(&mut self) -> &mut [bindings::ib_sge] {
        &mut self.sges
    }

    /// Returns the protection domain whose device the memory is mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl Drop for MappedLoan {
    fn drop(&mut self) {
        let dev = self.pd.raw_device();
        for sge in &self.sges {
            let (addr, len) = (sge.addr, sge.length as usize);
            // SAFETY: By the type invariant the element is mapped. It is unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_page(dev, addr, len, self.dir.raw()) };
        }
    }
}
