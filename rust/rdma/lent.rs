// SPDX-License-Identifier: GPL-2.0

//! Lent memory that is mapped for a device ([`MappedLoan`]).

use crate::{
    dma::Direction,
    mr::mark_end,
    pd::Pd, //
};
use core::ptr;
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
        let mut table = copy(loan.entries())?;
        mark_end(table.last_mut().ok_or(EINVAL)?);
        let sges = KVVec::with_capacity(table.len(), GFP_KERNEL)?;
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
        // INVARIANT: All entries were mapped above.
        let mut this = Self {
            sges,
            table,
            dir,
            pd: pd.clone(),
            _lender: lender,
        };
        // CAST: The number is positive.
        join(&mut this.sges, &this.table, mapped as usize, pd);
        Ok(this)
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

/// Copies the entries of a table that is not mapped.
fn copy(entries: &[scatterlist]) -> Result<KVVec<scatterlist>> {
    let mut table = KVVec::with_capacity(entries.len(), GFP_KERNEL)?;
    let place: *mut scatterlist = table.spare_capacity_mut().as_mut_ptr().cast();
    // SAFETY: The new vector has space for this number of entries.
    unsafe { ptr::copy_nonoverlapping(entries.as_ptr(), place, entries.len()) };
    // SAFETY: These entries were written above.
    unsafe { table.inc_len(entries.len()) };
    Ok(table)
}

/// Fills an empty vector with elements for the first `mapped` entries. The vector has space for one
/// element per entry. Entries whose device addresses follow each other share an element.
fn join(sges: &mut KVVec<bindings::ib_sge>, table: &[scatterlist], mapped: usize, pd: &Pd) {
    let mut entries = table.iter().take(mapped);
    let Some(first) = entries.next() else {
        return;
    };
    let lkey = pd.local_dma_lkey();
    let (mut start, mut length) = (first.dma_address, mapped_bytes(first));
    // A mapping does not wrap around the address space.
    let mut end = start.wrapping_add(length.into());
    let mut places = sges.spare_capacity_mut().iter_mut();
    let mut written = 0;
    let mut write = |addr, length| {
        if let Some(place) = places.next() {
            place.write(bindings::ib_sge { addr, length, lkey });
            written += 1;
        }
    };
    for entry in entries {
        let (addr, len) = (entry.dma_address, mapped_bytes(entry));
        if let (true, Some(sum)) = (addr == end, length.checked_add(len)) {
            length = sum;
        } else {
            write(start, length);
            (start, length) = (addr, len);
        }
        end = addr.wrapping_add(len.into());
    }
    write(start, length);
    // SAFETY: The vector was empty, and this number of elements was written at its beginning.
    unsafe { sges.inc_len(written) };
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
