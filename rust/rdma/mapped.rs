// SPDX-License-Identifier: GPL-2.0

//! Pages that are mapped for a device ([`MappedPages`]).

use crate::{
    dma::Direction,
    pages::{
        Mappable,
        Pages, //
    },
    pd::Pd, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::{
    buffer::{
        PageArray,
        PageList, //
    },
    list, //
};
use xprtrdma_bindings as bindings;

/// A range of pages that is mapped at contiguous device addresses: the device address of its first
/// byte, and its length in bytes.
struct Mapping {
    addr: u64,
    len: usize,
}

/// Pages that are mapped for a device. If this module owns the pages, only the device uses their
/// bytes until [`MappedPages::unmap`]. If other code uses the pages as well, the device only reads
/// them.
///
/// # Invariants
///
/// `mappings` are mapped for `dir`. The mappings consist of the first pages of `memory`, in order.
/// Once [`MappedPages::map`] has succeeded, the mappings contain all bytes of `memory`. For pages
/// that other code uses as well, `dir` is `ToDevice`.
pub struct MappedPages {
    mappings: KVec<Mapping>,
    /// `None` before [`MappedPages::map`], and after [`MappedPages::unmap`].
    memory: Option<Mappable>,
    dir: Direction,
    pd: Arc<Pd>,
    /// Maximum number of elements of a work request.
    most_sges: usize,
    /// An empty list that earlier contained shared pages. The list is kept so that its allocated
    /// memory can be used again.
    list: Option<PageList>,
}

impl MappedPages {
    /// Makes an object without pages.
    pub(crate) fn none(pd: &Arc<Pd>) -> Self {
        // INVARIANT: There are no pages.
        Self {
            mappings: KVec::new(),
            memory: None,
            dir: Direction::ToDevice,
            pd: pd.clone(),
            // CAST: The number of scatter/gather elements is small.
            most_sges: pd.max_send_sges() as usize,
            list: None,
        }
    }

    /// Maps `memory`. The memory that was mapped before must have been unmapped. Returns `EINVAL`
    /// if the earlier memory is still mapped, or if the device would write to shared pages.
    /// Otherwise returns the maximum number of elements of a work request. May sleep.
    pub(crate) fn map(&mut self, memory: Mappable, dir: Direction) -> Result<usize> {
        if let Mappable::Shared(_) = memory {
            if dir != Direction::ToDevice {
                return Err(EINVAL);
            }
        }
        if !self.mappings.is_empty() {
            return Err(EINVAL);
        }
        // INVARIANT: None of the new pages is mapped yet.
        self.dir = dir;
        match self.memory.insert(memory) {
            Mappable::Own(pages) => {
                let mut left = Pages::count(PageArray::len(pages));
                for run in pages.runs() {
                    let count = run.count().min(left);
                    if count == 0 {
                        break;
                    }
                    // NO-OVERFLOW: `count` is at most `left`.
                    left = left.wrapping_sub(count);
                    // SAFETY: The first `count` pages of the run are contiguous, and `memory` keeps
                    // these pages.
                    unsafe { map_run(&mut self.mappings, &self.pd, dir, run.first(), count)? };
                }
            }
            Mappable::Shared(refs) => {
                let mut rest = refs.pages();
                while !rest.is_empty() {
                    list::make_room(&mut self.mappings)?;
                    // SAFETY: The list contains addresses of valid pages, and `memory` keeps them.
                    let (addr, count) = unsafe { map_first(&self.pd, dir, rest) };
                    if count == 0 {
                        // SAFETY: The list contains addresses of valid pages, and `memory` keeps
                        // them. It is not empty.
                        rest = unsafe {
                            map_first_in_pieces(&mut self.mappings, &self.pd, dir, rest)?
                        };
                        continue;
                    }
                    // NO-OVERFLOW: The product is a number of bytes in memory.
                    let len = count.wrapping_mul(PAGE_SIZE);
                    list::add(&mut self.mappings, Mapping { addr, len })?;
                    rest = rest.get(count..).unwrap_or(&[]);
                }
            }
        }
        Ok(self.most_sges)
    }

    /// Unmaps the pages. Returns them if this module owns them; drops the references to shared
    /// pages.
    pub(crate) fn unmap(&mut self) -> Option<Pages> {
        self.forget_mappings();
        match self.memory.take()? {
            Mappable::Own(pages) => Some(pages),
            Mappable::Shared(refs) => {
                self.list = Some(refs.into_list());
                None
            }
        }
    }

    /// Returns the empty list whose allocated memory can be used for the next shared pages, if
    /// there is such a list.
    pub(crate) fn list(&mut self) -> Option<PageList> {
        self.list.take()
    }

    /// Returns the number of bytes in the pages.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Mappable::len)
    }

    /// Returns the number of ranges with contiguous device addresses.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.mappings.len()
    }

    /// Returns the direction for which the pages are mapped.
    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        self.dir
    }

    /// Returns the protection domain whose device the pages are mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns an object that makes scatter/gather elements for the memory, from its first byte on.
    #[inline]
    pub(crate) fn elements(&self) -> Elements<'_> {
        let offset = self.memory.as_ref().map_or(0, Mappable::offset);
        let mut elements = Elements {
            rest: &self.mappings,
            addr: 0,
            len: 0,
            lkey: self.pd.local_dma_lkey(),
        };
        // If the object has memory, a byte exists at this offset.
        let _ = elements.skip(offset);
        elements
    }

    fn forget_mappings(&mut self) {
        let (dev, dir) = (self.pd.raw_device(), self.dir.raw());
        for Mapping { addr, len } in self.mappings.iter() {
            // SAFETY: By the type invariant these bytes are mapped. They are unmapped once, because
            // the list is emptied below.
            unsafe { bindings::xprtrdma_dma_unmap_pages(dev, *addr, *len, dir) };
        }
        self.mappings.clear();
    }
}

/// Maps pages for the device of `pd` in one piece. If the device or its bounce buffers have no
/// space for such a long piece, maps the pages in shorter pieces. Adds the mappings to `to`, even
/// if a later mapping fails. Returns `EIO` if not even one page can be mapped.
///
/// # Safety
///
/// `first` is the address of the first of `count` contiguous pages. The pages exist until the
/// mappings are undone.
#[inline]
unsafe fn map_run(
    to: &mut KVec<Mapping>,
    pd: &Pd,
    dir: Direction,
    first: *mut bindings::page,
    count: usize,
) -> Result {
    let len = count.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
    let mut most = pd.max_entry() as usize;
    if len <= most {
        // Space in the list is reserved before the mapping, so that no mapping is lost.
        list::make_room(to)?;
        // SAFETY: By the caller's contract the pages are contiguous and exist until the mapping is
        // undone.
        if let Some(addr) = unsafe { map_piece(pd, dir, first, 0, len) } {
            return list::add(to, Mapping { addr, len });
        }
        most = shorter(len)?;
    }
    // SAFETY: The contract of this function is the same.
    unsafe { map_in_pieces(to, pd, dir, first, len, most) }
}

/// Returns the length of the pieces to try if a piece of `len` bytes could not be mapped: bounce
/// buffers may be fragmented, so shorter pieces may still find space. Returns `EIO` if `len` is not
/// longer than a page.
#[cold]
fn shorter(len: usize) -> Result<usize> {
    if len <= PAGE_SIZE {
        return Err(EIO);
    }
    let half = (len / 2).max(PAGE_SIZE);
    // NO-OVERFLOW: The remainder of a division is not greater than the dividend.
    Ok(half.wrapping_sub(half % PAGE_SIZE))
}

/// Maps the start of `pages` in one piece. The piece contains as many pages as are physically
/// contiguous and fit into one mapping of the device. Returns the address of the mapping and the
/// number of mapped pages. The number is zero if the pages cannot be mapped.
///
/// # Safety
///
/// `pages` contains addresses of valid pages, which exist until the mapping is undone. `pages` is
/// not empty.
#[inline]
unsafe fn map_first(pd: &Pd, dir: Direction, pages: &[*mut bindings::page]) -> (u64, usize) {
    let most = (pd.max_entry() as usize / PAGE_SIZE).max(1);
    // CAST: A message has a few hundred pages.
    let most = pages.len().min(most) as u32;
    let (dev, array) = (pd.raw_device(), pages.as_ptr().cast_mut());
    let mut addr = 0;
    // SAFETY: The device exists as long as `pd`. By the caller's contract the array contains at
    // least `most` addresses of valid pages. The callee does not write to the array.
    let count = unsafe { bindings::xprtrdma_dma_map_first(dev, array, most, dir.raw(), &mut addr) };
    (addr, count as usize)
}

/// Maps the physically contiguous pages at the start of `pages`. Called if [`map_first`] failed:
/// each piece is shorter than the piece that [`map_first`] could not map. Adds the mappings to
/// `to`, even if a later mapping fails. Returns the pages that are not mapped yet. Returns `EIO` if
/// not even one page can be mapped.
///
/// # Safety
///
/// The caller must fulfil the contract of [`map_first`].
#[cold]
unsafe fn map_first_in_pieces<'a>(
    to: &mut KVec<Mapping>,
    pd: &Pd,
    dir: Direction,
    pages: &'a [*mut bindings::page],
) -> Result<&'a [*mut bindings::page]> {
    let first = *pages.first().ok_or(EINVAL)?;
    let array = pages.as_ptr().cast_mut();
    // CAST: A message has a few hundred pages.
    // SAFETY: By the caller's contract the array contains this number of addresses of valid pages.
    // The callee writes nothing.
    let count = unsafe { bindings::xprtrdma_contiguous_pages(array, pages.len() as u32) } as usize;
    let len = count.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
    let most = shorter(len.min(pd.max_entry() as usize))?;
    // SAFETY: The callee has found that these pages are contiguous. By the caller's contract the
    // pages exist long enough.
    unsafe { map_in_pieces(to, pd, dir, first, len, most)? };
    Ok(pages.get(count..).unwrap_or(&[]))
}

/// Maps `len` bytes of the pages, beginning at byte `offset`. Returns `None` if these bytes cannot
/// be mapped in one piece.
///
/// # Safety
///
/// `first` is the address of the first of several pages that are contiguous in physical memory. The
/// pages contain these bytes, and exist until the mapping is undone.
#[inline]
unsafe fn map_piece(
    pd: &Pd,
    dir: Direction,
    first: *mut bindings::page,
    offset: usize,
    len: usize,
) -> Option<u64> {
    let mut addr = 0;
    let dev = pd.raw_device();
    // SAFETY: The device exists as long as `pd`. By the caller's contract the pages are contiguous,
    // contain these bytes, and exist until the mapping is undone.
    unsafe { bindings::xprtrdma_dma_map_pages(dev, first, offset, len, dir.raw(), &mut addr) }
        .then_some(addr)
}

/// Maps `all` bytes as [`map_run`] does, in pieces of at most `most` bytes. Called if the bytes
/// cannot be mapped in one piece.
///
/// # Safety
///
/// The caller must fulfil the contract of [`map_run`].
#[cold]
unsafe fn map_in_pieces(
    to: &mut KVec<Mapping>,
    pd: &Pd,
    dir: Direction,
    first: *mut bindings::page,
    all: usize,
    mut most: usize,
) -> Result {
    let mut offset = 0;
    while offset < all {
        // NO-OVERFLOW: `offset` is less than `all`.
        let len = all.wrapping_sub(offset).min(most);
        list::make_room(to)?;
        // SAFETY: By the caller's contract the pages are contiguous, contain these bytes, and exist
        // until the mapping is undone.
        let Some(addr) = (unsafe { map_piece(pd, dir, first, offset, len) }) else {
            most = shorter(len)?;
            continue;
        };
        list::add(to, Mapping { addr, len })?;
        // NO-OVERFLOW: The sum is at most `all`.
        offset = offset.wrapping_add(len);
    }
    Ok(())
}

/// Makes scatter/gather elements for parts of [`MappedPages`], in ascending order.
pub(crate) struct Elements<'a> {
    /// The mappings that follow the current mapping.
    rest: &'a [Mapping],
    /// The address of the bytes of the current mapping that are not used yet. `len` is the number
    /// of these bytes.
    addr: u64,
    len: usize,
    lkey: u32,
}

impl Elements<'_> {
    /// Skips this number of bytes. Returns `None` if fewer bytes are left.
    #[inline]
    pub(crate) fn skip(&mut self, mut count: usize) -> Option<()> {
        while count != 0 {
            // CAST: A transfer has a few megabytes.
            count = count.checked_sub(self.next(count)?.length as usize)?;
        }
        Some(())
    }

    /// Returns a scatter/gather element for the next bytes. The element has at most `most` bytes,
    /// which have contiguous device addresses. Returns `None` if no bytes are left.
    #[inline]
    pub(crate) fn next(&mut self, most: usize) -> Option<bindings::ib_sge> {
        // NO-OVERFLOW: A mapping does not wrap around the address space, and the lengths are those
        // of pages in memory.
        while self.len < most {
            match self.rest {
                [next, rest @ ..]
                    if self.len == 0 || next.addr == self.addr.wrapping_add(self.len as u64) =>
                {
                    if self.len == 0 {
                        self.addr = next.addr;
                    }
                    self.len = self.len.wrapping_add(next.len);
                    self.rest = rest;
                }
                _ => break,
            }
        }
        let len = self.len.min(most);
        if len == 0 {
            return None;
        }
        let addr = self.addr;
        // NO-OVERFLOW: `len` is at most the number of bytes that are left in the mapping.
        self.addr = addr.wrapping_add(len as u64);
        self.len = self.len.wrapping_sub(len);
        Some(bindings::ib_sge {
            addr,
            // CAST: A transfer has a few megabytes.
            length: len as u32,
            lkey: self.lkey,
        })
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
