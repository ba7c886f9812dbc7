// SPDX-License-Identifier: GPL-2.0

//! Lent memory that is mapped for a device ([`MappedLoan`]).

use crate::{
    dma::Direction,
    mr::mark_end,
    pd::Pd, //
};
use core::{
    ptr,
    slice, //
};
use kernel::{
    bindings::scatterlist,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::{
    lend::{
        Lender,
        Table, //
    },
    list, //
};
use xprtrdma_bindings as bindings;

/// Lent memory that is mapped for a device, together with its lender. The vectors `sges` and
/// `table` keep their memory for the next loan.
///
/// # Invariants
///
/// - While there is a `lender`, it keeps the memory that `table` describes, and all entries of
///   `table` are mapped for `dir` on the device of `pd`.
/// - If there are elements in `sges`, they describe the mapped bytes in order, and do not move
///   before the bytes are unmapped.
pub(crate) struct MappedLoan {
    sges: KVVec<bindings::ib_sge>,
    // A copy of the lender's table. The copy is mapped, and not the lender's table, because mapping
    // a table stores device addresses in it.
    table: KVVec<scatterlist>,
    dir: Direction,
    pd: Arc<Pd>,
    lender: Option<KBox<dyn Lender>>,
}

impl MappedLoan {
    /// Makes an object that maps no memory.
    pub(crate) fn none(pd: &Arc<Pd>) -> Self {
        // INVARIANT: There is no lender, and there are no elements.
        Self {
            sges: KVVec::new(),
            table: KVVec::new(),
            dir: Direction::ToDevice,
            pd: pd.clone(),
            lender: None,
        }
    }

    /// Maps all of the memory. May sleep.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the memory is empty, or other memory is still mapped.
    /// * `EACCES`: the device would write to memory that may only be read.
    /// * `EIO`: the device or its IOMMU refuses the mapping.
    pub(crate) fn map<T: Table + 'static>(&mut self, loan: T, dir: Direction) -> Result {
        if self.lender.is_some() {
            return Err(EINVAL);
        }
        if dir != Direction::ToDevice && !loan.is_writable() {
            return Err(EACCES);
        }
        let Self { sges, table, .. } = self;
        copy(loan.entries(), table)?;
        match table.as_mut_slice() {
            [.., last] => mark_end(last),
            [] => return Err(EINVAL),
        }
        let lender: KBox<dyn Lender> = KBox::new(loan, GFP_KERNEL)?;
        let nents = c_int::try_from(table.len())?;
        let dev = self.pd.raw_device();
        // SAFETY: The device exists as long as `pd`. The table is complete. By the contract of
        // `Table` the bytes of the table exist as long as `lender`.
        let mapped =
            unsafe { bindings::xprtrdma_dma_map_sg(dev, table.as_mut_ptr(), nents, dir.raw()) };
        if mapped <= 0 {
            return Err(EIO);
        }
        // INVARIANT: All entries were mapped above.
        let former = self.lender.replace(lender);
        // There was no lender, so `former` is `None` and need not be dropped.
        core::mem::forget(former);
        self.dir = dir;
        let lkey = self.pd.local_dma_lkey();
        sges.clear();
        sges.reserve(table.len(), GFP_KERNEL)?;
        match &**table {
            // Usually there is a single entry.
            [only] => {
                let (addr, length) = (only.dma_address, mapped_bytes(only));
                let only = bindings::ib_sge { addr, length, lkey };
                list::push(sges, only).map_err(|_| ENOMEM)?;
            }
            // CAST: The number is positive.
            _ => join(sges, table, mapped as usize, lkey),
        }
        Ok(())
    }

    /// Replaces the content of `wrs` by work requests that move all mapped bytes. `wrs` may contain
    /// only work requests that this function has made earlier. Each work request has at most
    /// `most_sges` elements, and refers to elements of this object. The peer's bytes begin at
    /// `offset` of the region with the key `handle`. Returns `EINVAL` if no memory is mapped. May
    /// sleep.
    #[inline]
    pub(crate) fn requests(
        &mut self,
        opcode: u32,
        most_sges: usize,
        (handle, offset): (u32, u64),
        wrs: &mut KVec<bindings::ib_rdma_wr>,
    ) -> Result {
        // Usually a single work request with a single element moves all bytes.
        if let ([only], [wr]) = (self.sges.as_mut_slice(), wrs.as_mut_slice()) {
            describe(wr, opcode, (handle, offset), slice::from_mut(only));
            return Ok(());
        }
        let most_sges = most_sges.max(1);
        let mut rest = self.sges.as_mut_slice();
        let count = rest.len().div_ceil(most_sges);
        if count == 0 {
            return Err(EINVAL);
        }
        wrs.truncate(count);
        while wrs.len() < count {
            list::add(wrs, bindings::ib_rdma_wr::default())?;
        }
        let mut remote_addr = offset;
        for wr in wrs.iter_mut() {
            let all = core::mem::take(&mut rest);
            let end = most_sges.min(all.len());
            let (own, others) = all.split_at_mut_checked(end).ok_or(EINVAL)?;
            rest = others;
            describe(wr, opcode, (handle, remote_addr), own);
            for sge in own.iter() {
                // The address may wrap around. The peer refuses such an address.
                remote_addr = remote_addr.wrapping_add(u64::from(sge.length));
            }
        }
        Ok(())
    }

    /// Ends the device's access, and drops the lender. May sleep.
    #[inline]
    pub(crate) fn unmap(&mut self) {
        // INVARIANT: The elements are removed before the memory is unmapped. The lender is dropped
        // after that.
        self.sges.clear();
        if let Some(lender) = self.lender.take() {
            let (dev, table) = (self.pd.raw_device(), self.table.as_mut_ptr());
            // CAST: `map` has checked that the number of entries fits into a `c_int`.
            let nents = self.table.len() as c_int;
            // SAFETY: By the type invariant the table was mapped. It is unmapped once, with the
            // number of entries that was passed to the mapping call.
            unsafe { bindings::xprtrdma_dma_unmap_sg(dev, table, nents, self.dir.raw()) };
            drop(lender);
        }
    }

    /// Returns the scatter/gather elements.
    #[cfg(xprtrdma_kunit)]
    pub(crate) fn sges(&self) -> &[bindings::ib_sge] {
        &self.sges
    }

    /// Returns the number of entries for which the lists have memory.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        // Both lists have memory for the same number of entries, because they grow together.
        self.table.capacity()
    }

    /// Returns the protection domain on whose device the memory is mapped.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

/// Writes all fields of a work request that depend on the loan, so that the work request of an
/// earlier loan can be used again. The queue pair writes the other fields when it posts.
#[inline(always)]
fn describe(
    wr: &mut bindings::ib_rdma_wr,
    opcode: u32,
    (handle, offset): (u32, u64),
    own: &mut [bindings::ib_sge],
) {
    wr.remote_addr = offset;
    wr.rkey = handle;
    wr.wr.opcode = opcode;
    // CAST: A work request has far fewer than 2^31 elements.
    wr.wr.num_sge = own.len() as c_int;
    wr.wr.sg_list = own.as_mut_ptr();
}

/// Replaces the content of `table` by these entries, which are not mapped.
#[inline]
fn copy(entries: &[scatterlist], table: &mut KVVec<scatterlist>) -> Result {
    table.clear();
    table.reserve(entries.len(), GFP_KERNEL)?;
    let place: *mut scatterlist = table.spare_capacity_mut().as_mut_ptr().cast();
    // SAFETY: The vector is empty, and has space for this number of entries.
    unsafe { ptr::copy_nonoverlapping(entries.as_ptr(), place, entries.len()) };
    // SAFETY: These entries were written above.
    unsafe { table.inc_len(entries.len()) };
    Ok(())
}

/// Fills the empty vector `sges` with elements for the first `mapped` entries of `table`. Entries
/// whose device addresses follow each other share an element. The vector has space for one element
/// per entry.
fn join(sges: &mut KVVec<bindings::ib_sge>, table: &[scatterlist], mapped: usize, lkey: u32) {
    let mut entries = table.iter().take(mapped);
    let Some(first) = entries.next() else {
        return;
    };
    let (mut start, mut length) = (first.dma_address, mapped_bytes(first));
    // The addition does not overflow, because a mapping does not wrap around the address space.
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

/// Returns the number of bytes of an entry of a scatter/gather table that is mapped for DMA.
fn mapped_bytes(entry: &scatterlist) -> u32 {
    #[cfg(CONFIG_NEED_SG_DMA_LENGTH)]
    let bytes = entry.dma_length;
    #[cfg(not(CONFIG_NEED_SG_DMA_LENGTH))]
    let bytes = entry.length;
    bytes
}

impl Drop for MappedLoan {
    fn drop(&mut self) {
        self.unmap();
    }
}
