// SPDX-License-Identifier: GPL-2.0

//! Lent memory that is mapped for a device ([`MappedLoan`]).

use crate::{
    dma::Direction,
    mr::{
        clear_marks,
        mark_end, //
    },
    pd::Pd, //
};
use kernel::{
    bindings::scatterlist,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::lend::{
    Lender,
    Table, //
};
use xprtrdma_bindings as bindings;

/// Lent memory that is mapped for a device, together with its lender.
///
/// # Invariants
///
/// - All entries of `table` are mapped for `dir` on the device of `pd`, until `drop`.
/// - `sges` describes the mapped bytes in their order.
/// - `_lender` keeps the memory.
pub(crate) struct MappedLoan {
    sges: KVVec<bindings::ib_sge>,
    // A copy of the lender's table, because each mapping has its own device addresses.
    table: KVVec<scatterlist>,
    dir: Direction,
    pd: Arc<Pd>,
    // This field is dropped after the memory has been unmapped.
    _lender: KBox<dyn Lender>,
}

impl MappedLoan {
    /// Maps all of the memory. Returns `EINVAL` if there is no memory, `EACCES` if the device would
    /// write to memory that may only be read, and `EIO` if the device or its IOMMU refuses the
    /// mapping. May sleep.
    pub(crate) fn new<T: Table + 'static>(loan: T, pd: &Arc<Pd>, dir: Direction) -> Result<Self> {
        if dir != Direction::ToDevice && !loan.is_writable() {
            return Err(EACCES);
        }
        let mut table = KVVec::new();
        table.extend_from_slice(loan.entries(), GFP_KERNEL)?;
        // The copy must not contain the marks of the lender's table and of its mappings.
        table.iter_mut().for_each(clear_marks);
        mark_end(table.last_mut().ok_or(EINVAL)?);
        let mut sges = KVVec::with_capacity(table.len(), GFP_KERNEL)?;
        let lender: KBox<dyn Lender> = KBox::new(loan, GFP_KERNEL)?;
        let nents = c_int::try_from(table.len())?;
        let dev = pd.raw_device();
        // SAFETY: The device exists as long as `pd`. The table is complete. By the contract of
        // `Table` its bytes exist as long as `lender`.
        let mapped =
            unsafe { bindings::xprtrdma_dma_map_sg(dev, table.as_mut_ptr(), nents, dir.raw()) };
        if mapped <= 0 {
            return Err(EIO);
        }
        // CAST: The number is positive.
        join(&mut sges, table.iter().take(mapped as usize), pd);
        // INVARIANT: All entries were mapped above.
        Ok(Self {
            sges,
            table,
            dir,
            pd: pd.clone(),
            _lender: lender,
        })
    }

    /// Returns the scatter/gather elements. They do not move while this object exists.
    pub(crate) fn sges(&mut self) -> &mut [bindings::ib_sge] {
        &mut self.sges
    }

    /// Returns the protection domain whose device the memory is mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

/// Adds elements for mapped entries. The vector has space for one element per entry. Entries whose
/// device addresses follow each other share an element.
fn join<'a>(
    sges: &mut KVVec<bindings::ib_sge>,
    mapped: impl Iterator<Item = &'a scatterlist>,
    pd: &Pd,
) {
    let lkey = pd.local_dma_lkey();
    for entry in mapped {
        let (addr, len) = (entry.dma_address, mapped_bytes(entry));
        if let Some(last) = sges.last_mut() {
            let sum = last.length.checked_add(len);
            let next = last.addr.checked_add(last.length.into());
            if let (Some(sum), true) = (sum, next == Some(addr)) {
                last.length = sum;
                continue;
            }
        }
        let sge = bindings::ib_sge {
            addr,
            length: len,
            lkey,
        };
        // The push cannot fail, because the vector has space.
        let _ = sges.push_within_capacity(sge);
    }
}

/// Returns the number of bytes of an entry of a mapped table.
fn mapped_bytes(entry: &scatterlist) -> u32 {
    #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
    let bytes = entry.dma_length;
    #[cfg(not(CONFIG_NEED_SG_DMA_LENGTH))]
    let bytes = entry.length;
    bytes
}

impl Drop for MappedLoan {
    fn drop(&mut self) {
        let (dev, table) = (self.pd.raw_device(), self.table.as_mut_ptr());
        // CAST: `new` has checked that the number fits.
        let nents = self.table.len() as c_int;
        // SAFETY: By the type invariant the table is mapped. It is unmapped once, with the number
        // of entries that was passed to the mapping call.
        unsafe { bindings::xprtrdma_dma_unmap_sg(dev, table, nents, self.dir.raw()) };
    }
}
