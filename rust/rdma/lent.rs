// SPDX-License-Identifier: GPL-2.0

//! Lent memory that a device reads or writes ([`MappedLoan`]).

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
/// - Each of `sges` is a mapping for `dir` on the device of `pd`, unmapped by `drop`.
/// - `lender` keeps the memory.
pub(crate) struct MappedLoan {
    sges: KVec<bindings::ib_sge>,
    dir: Direction,
    pd: Arc<Pd>,
    // Dropped behind the mappings.
    _lender: Option<KBox<dyn Lender>>,
}

impl MappedLoan {
    /// Maps all of the memory, in as many elements at most. `E2BIG`: it is in more. May sleep.
    pub(crate) fn new<L: Loan>(loan: L, most: usize, pd: &Arc<Pd>, dir: Direction) -> Result<Self>
    where
        L::Lender: 'static,
    {
        // Whatever happens from here on, the memory is kept until nothing is mapped any more.
        let place = KBox::<L::Lender>::new_uninit(GFP_KERNEL)?;
        let sges = KVec::with_capacity(most, GFP_KERNEL)?;
        // INVARIANT: Nothing is mapped yet.
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

    /// Maps a piece, an element for each listed page.
    fn map(&mut self, piece: Piece<'_>) -> Result {
        let dev = self.pd.raw_device();
        let (mut page, mut first, mut left) = (piece.page, piece.first, piece.len);
        let mut more = piece.more.iter();
        loop {
            let next = more.next();
            // The rest lies in the last page, and behind it. NO-OVERFLOW: A piece begins within its
            // page, and `left` is not less than `len`.
            let len = match next {
                Some(_) => left.min(PAGE_SIZE - first),
                None => left,
            };
            if self.sges.len() == self.sges.capacity() {
                return Err(E2BIG);
            }
            let dir = self.dir.raw();
            // SAFETY: The device exists while `pd` does; the bytes are there by the contract of a
            // loan.
            let addr = unsafe { bindings::xprtrdma_dma_map_page(dev, page, first, len, dir) };
            // SAFETY: The device exists; `addr` is the result of a mapping call on it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            let sge = bindings::ib_sge {
                addr,
                // CAST: A piece of a message is short.
                length: len as u32,
                lkey: self.pd.local_dma_lkey(),
            };
            // INVARIANT: Mapped just now. There is room, so it does not fail.
            self.sges.push_within_capacity(sge).map_err(|_| E2BIG)?;
            let Some(next) = next else {
                return Ok(());
            };
            (page, first, left) = (*next, 0, left.saturating_sub(len));
        }
    }

    /// Returns the elements, which stay where they are.
    pub(crate) fn sges(&mut self) -> &mut [bindings::ib_sge] {
        &mut self.sges
    }

    /// Returns the domain whose device the memory is mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl Drop for MappedLoan {
    fn drop(&mut self) {
        let dev = self.pd.raw_device();
        for sge in &self.sges {
            let (addr, len) = (sge.addr, sge.length as usize);
            // SAFETY: By the type invariant it is mapped, and it is unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_page(dev, addr, len, self.dir.raw()) };
        }
    }
}
