// SPDX-License-Identifier: GPL-2.0

//! The scatterlist of a memory region, which is filled with the pages of lent memory.

use core::ptr;
use kernel::{
    bindings::{
        page,
        scatterlist, //
    },
    page::PAGE_SIZE,
};
use xprtrdma_base::lend::{
    page_of,
    Piece,
    SG_BITS, //
};

/// The bit of `scatterlist::page_link` that marks the last entry. No other bit of [`SG_BITS`] is
/// set in a scatterlist that consists of a single array.
const SG_END: usize = 2;

/// The scatterlist of a memory region while it is being filled.
pub(crate) struct Filling<'a> {
    /// Maximum length in bytes of an entry that can be mapped. The length is a number of whole
    /// pages, at least one.
    max_entry: u32,
    sg: &'a mut [scatterlist],
    /// Number of bytes for which the scatterlist still has space. The number is a multiple of the
    /// page size.
    room: usize,
    /// Whether the region may have gaps between pieces. A gap exists if a piece does not end at a
    /// page border, or if the next piece does not begin at a page border.
    gaps: bool,
    /// Offset of the end of the last piece from the start of the page in which the piece ends.
    end: usize,
    /// Number of bytes that the filled entries describe.
    pub(crate) bytes: usize,
    /// Number of filled entries.
    pub(crate) nents: usize,
}

impl<'a> Filling<'a> {
    /// Makes an empty scatterlist.
    #[inline]
    pub(crate) fn new(sg: &'a mut [scatterlist], max_entry: u32, gaps: bool) -> Self {
        if let Some(first) = sg.first_mut() {
            unmark(first);
        }
        Self {
            max_entry,
            // NO-OVERFLOW: A region has one entry for each page, so the product is the size of the
            // region in bytes.
            room: sg.len().wrapping_mul(PAGE_SIZE),
            sg,
            gaps,
            end: 0,
            bytes: 0,
            nents: 0,
        }
    }

    /// Adds a piece. Returns `false` if the scatterlist has not enough space for the whole piece.
    /// In that case the beginning of the piece may have been added.
    pub(crate) fn add(&mut self, piece: Piece<'_>) -> bool {
        let Piece { first, len, .. } = piece;
        // NO-OVERFLOW: Every number here is at most the number of bytes that a region can hold, or
        // the length of a piece of memory. Both are far below the maximum of `usize`.
        if self.room == 0 || (self.nents != 0 && !self.gaps && (self.end | first) != 0) {
            return false;
        }
        // Usually the memory of a small transfer is within one page.
        let behind = first.wrapping_add(len);
        if behind > PAGE_SIZE {
            return self.add_pages(piece);
        }
        let Some(entry) = self.sg.get_mut(self.nents) else {
            return false;
        };
        set_page(entry, piece.page, len as u32, first as u32);
        self.added(1, len, PAGE_SIZE, behind);
        true
    }

    /// Adds a piece that crosses a page border. The scatterlist has space for at least one page.
    #[inline(never)]
    fn add_pages(&mut self, piece: Piece<'_>) -> bool {
        let Piece {
            page,
            more,
            first,
            len,
        } = piece;
        // NO-OVERFLOW: All numbers are limited by the bytes that a region can hold, or by the
        // length of a piece. A piece that is too long for the remaining space of the region is cut
        // at a page border.
        let part = core::cmp::min(len, self.room.wrapping_sub(first));
        let behind = first.wrapping_add(part);
        let used = behind.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
        let others = (used / PAGE_SIZE).wrapping_sub(1);
        let more = more.get(..others).unwrap_or(more);
        let sg = self.sg.get_mut(self.nents..).unwrap_or(&mut []);
        let Some(nents) = fill(sg, self.max_entry, page, more, first, part) else {
            return false;
        };
        self.added(nents, part, used, behind);
        part == len
    }

    /// Records that `nents` entries with `bytes` bytes were added. `used` is the total size of the
    /// pages of these entries, in bytes. `behind` is the offset at which the added bytes end,
    /// counted from the start of the first page.
    #[inline]
    fn added(&mut self, nents: usize, bytes: usize, used: usize, behind: usize) {
        // NO-OVERFLOW: All sums are limited by the bytes that a region can hold.
        self.nents = self.nents.wrapping_add(nents);
        self.bytes = self.bytes.wrapping_add(bytes);
        self.room = self.room.wrapping_sub(used);
        self.end = behind % PAGE_SIZE;
    }
}

/// Describes `len` bytes by entries of at most `max` bytes each. The bytes begin at the offset
/// `first` of `page`. They continue in the pages of `others`, and then in the pages that physically
/// follow the last of these pages. The scatterlist `sg` needs one entry for `page` and one for each
/// page of `others`. Returns the number of entries used, or `None` if `sg` is too short.
#[inline]
fn fill(
    sg: &mut [scatterlist],
    max: u32,
    page: *mut page,
    others: &[*mut page],
    first: usize,
    len: usize,
) -> Option<usize> {
    if others.len() >= sg.len() {
        return None;
    }
    // A pointer value that is not the address of any page.
    let none = ptr::without_provenance_mut(1);
    // Two consecutive pages share an entry if the addresses of their `struct page`s differ by
    // `step` bytes. If an entry may hold only one page, `step` is one byte. In that case no two
    // pages share an entry, because no two `struct page`s are so close to each other.
    let step = if max > PAGE_SIZE as u32 {
        size_of::<page>()
    } else {
        1
    };
    let start = sg.as_mut_ptr();
    let mut entry = start;
    // The loop does most of the work for a large transfer. To be fast, it counts each page with its
    // full length. The lengths of the first and the last entry are corrected after the loop.
    // SAFETY: `sg` has more entries than `others` has pages, so it has at least one entry.
    begin(unsafe { &mut *entry }, page);
    let mut page = page;
    let mut rest = others.iter();
    let mut length = PAGE_SIZE as u32;
    'table: loop {
        let mut next = page.wrapping_byte_add(step);
        page = loop {
            match rest.next() {
                // Pages that follow each other in the memory map share an entry.
                Some(&page) if page == next => {
                    length = length.wrapping_add(PAGE_SIZE as u32);
                    next = next.wrapping_byte_add(step);
                    if length >= max {
                        next = none;
                    }
                }
                Some(&page) => break page,
                None => break 'table,
            }
        };
        // SAFETY: Each page begins at most one entry, and `sg` has more entries than `others` has
        // pages.
        unsafe {
            (*entry).length = length;
            entry = entry.add(1);
            begin(&mut *entry, page);
        }
        length = PAGE_SIZE as u32;
    }
    // NO-OVERFLOW: If the pages contain more bytes than needed, the excess is less than the length
    // of the last entry. If the pages contain too few bytes, `beyond` wraps around, so the
    // subtraction adds the missing bytes to the length of the last entry.
    let whole = others.len().wrapping_add(1).wrapping_mul(PAGE_SIZE);
    let beyond = whole.wrapping_sub(first.wrapping_add(len));
    length = length.wrapping_sub(beyond as u32);
    // NO-OVERFLOW: `entry` comes after `start`, and both are in the table.
    let last = entry.addr().wrapping_sub(start.addr()) / size_of::<scatterlist>();
    let last = finish(sg.get_mut(last..)?, length, max)?.wrapping_add(last);
    let entry = sg.first_mut()?;
    entry.offset = first as u32;
    entry.length = entry.length.wrapping_sub(first as u32);
    let used = last.wrapping_add(1);
    if used == sg.len() {
        sg.last_mut()?.page_link |= SG_END;
    }
    Some(used)
}

/// Sets the length of the first entry, which already points at a page, to `length`. An entry holds
/// at most `max` bytes, a number of whole pages. If `length` is more, the other bytes go to the
/// following entries. Returns the index of the last entry.
///
/// There are enough entries: the scatterlist has one entry for each page, and each entry holds at
/// least a page.
#[inline]
fn finish(entries: &mut [scatterlist], mut length: u32, max: u32) -> Option<usize> {
    let mut last = 0;
    while length > max {
        let entry = entries.get_mut(last)?;
        entry.length = max;
        // CAST: A `usize` has at least 32 bits.
        let behind = page_of(entry).wrapping_add(max as usize / PAGE_SIZE);
        // NO-OVERFLOW: `last` is less than the number of entries, and `length` is more than `max`
        // in this loop.
        last = last.wrapping_add(1);
        length = length.wrapping_sub(max);
        begin(entries.get_mut(last)?, behind);
    }
    entries.get_mut(last)?.length = length;
    Some(last)
}

/// Clears the SWIOTLB mark of a scatterlist's first entry. An IOMMU driver sets the mark when it
/// uses bounce buffers for a scatterlist (`sg_dma_mark_swiotlb()`). If the mark stayed, the driver
/// would assume bounce buffers when the scatterlist is used again.
#[inline(always)]
pub(super) fn unmark(first: &mut scatterlist) {
    // The field `dma_flags` exists only in kernels that have IOMMU drivers with bounce buffers.
    #[cfg(CONFIG_NEED_SG_DMA_FLAGS)]
    {
        first.dma_flags = 0;
    }
    #[cfg(not(CONFIG_NEED_SG_DMA_FLAGS))]
    let _ = first;
}

/// Marks the last entry of a table.
#[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
pub(crate) fn mark_end(last: &mut scatterlist) {
    last.page_link |= SG_END;
}

/// Points an entry of an initialised scatterlist at a page of a loan. The page exists by the
/// contract of [`Loan`](xprtrdma_base::lend::Loan). Clears the bit that marks the last entry.
#[inline]
fn begin(entry: &mut scatterlist, page: *mut page) {
    entry.page_link = page.addr();
    entry.offset = 0;
}

/// Points an entry of an initialised scatterlist at `len` bytes of a page. Keeps the flag bits of
/// the entry's `page_link`.
#[inline]
pub(super) fn set_page(entry: &mut scatterlist, page: *mut page, len: u32, offset: u32) {
    entry.page_link = (entry.page_link & SG_BITS) | page.addr();
    entry.offset = offset;
    entry.length = len;
}
