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
    buffer::PageList,
    list, //
};
use xprtrdma_bindings as bindings;

/// Pages that are mapped for a device, and scatter/gather elements that describe parts of the
/// pages.
///
/// - If this module owns the pages, [`MappedPages::hold`] maps all of them, and only the device
///   uses them until [`MappedPages::unmap`].
/// - If other code uses the pages as well, only the described parts are mapped, and the device only
///   reads these parts.
///
/// # Invariants
///
/// - The bytes of each element of `sges` are in the pages of `memory`.
/// - If `own` is zero, each element of `sges` was mapped for `dir`. Otherwise the first `own`
///   elements were mapped for `dir`, and every other element describes bytes of the first `own`
///   elements.
/// - For pages that other code uses as well, `dir` is `ToDevice`.
pub(crate) struct MappedPages {
    sges: KVec<bindings::ib_sge>,
    /// Number of elements at the front of `sges` that together describe all pages, in order. Zero
    /// if this module does not own the pages. The function [`MappedPages::sges`] does not return
    /// these elements.
    own: usize,
    /// `None` before [`MappedPages::hold`], and after [`MappedPages::unmap`].
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
        // INVARIANT: There are no elements.
        Self {
            sges: KVec::new(),
            own: 0,
            memory: None,
            dir: Direction::ToDevice,
            pd: pd.clone(),
            // CAST: The number of scatter/gather elements is small.
            most_sges: pd.max_send_sges() as usize,
            list: None,
        }
    }

    /// Stores `memory`. Maps all pages that this module owns, but no part of shared pages yet.
    /// Returns `EINVAL` if the device would write to shared pages, and `EIO` if a page cannot be
    /// mapped. Must not be called while this object already contains memory; otherwise that memory
    /// is never freed. May sleep.
    // `memory` is moved into this object before the checks. Otherwise the compiler would copy it
    // twice.
    #[inline(always)]
    pub(crate) fn hold(&mut self, memory: Mappable, dir: Direction) -> Result {
        let former = self.memory.replace(memory);
        // By this function's contract `former` is `None`. If a caller breaks the contract, a device
        // may still use the former memory, so it is not freed.
        core::mem::forget(former);
        if !self.sges.is_empty() {
            return Err(EINVAL);
        }
        // INVARIANT: There are no elements.
        self.dir = dir;
        match &self.memory {
            Some(Mappable::Own(_)) => self.map_own(),
            _ if dir == Direction::ToDevice => Ok(()),
            _ => {
                self.give_up();
                Err(EINVAL)
            }
        }
    }

    /// Unmaps and drops the memory.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) {
        drop(self.unmap());
    }

    /// Maps all pages that this module owns. None of them is mapped yet.
    #[inline(always)]
    fn map_own(&mut self) -> Result {
        let (len, longest) = (self.len(), self.pd.max_entry() as usize);
        let Some(Mappable::Own(pages)) = &self.memory else {
            return Err(EINVAL);
        };
        // Usually all pages are one piece of memory.
        match pages.runs() {
            [run, ..] if len <= run.bytes().min(longest) => {
                // SAFETY: The bytes are in one run of pages, which `memory` keeps.
                match unsafe {
                    map_piece(&self.pd, self.dir, &mut self.sges, (run.first(), 0, len))
                }? {
                    true => {
                        // INVARIANT: The element describes all bytes, and was mapped for `dir`.
                        self.own = 1;
                        Ok(())
                    }
                    false => self.map_runs(shorter(len)?),
                }
            }
            _ => self.map_runs(longest),
        }
    }

    /// Maps all pages that this module owns. None of these pages is mapped yet. Each piece has at
    /// most `longest` bytes. `longest` is a multiple of the page size.
    #[cold]
    #[inline(never)]
    fn map_runs(&mut self, mut longest: usize) -> Result {
        let len = self.len();
        let Some(Mappable::Own(pages)) = &self.memory else {
            return Err(EINVAL);
        };
        let (mut at, mut end) = (0usize, 0usize);
        for run in pages.runs() {
            // NO-OVERFLOW: The sum is a number of bytes in memory.
            end = end.wrapping_add(run.bytes()).min(len);
            while at < end {
                // NO-OVERFLOW: `at` is less than `end`.
                let piece = end.wrapping_sub(at).min(longest);
                let page = *pages.raw().get(at / PAGE_SIZE).ok_or(EINVAL)?;
                let bytes = (page, 0, piece);
                // SAFETY: By the invariants of `Block` these bytes are contiguous, because they are
                // in one run of pages. `memory` keeps the pages.
                if unsafe { map_piece(&self.pd, self.dir, &mut self.sges, bytes) }? {
                    // INVARIANT: The element was mapped for `dir`. Its bytes follow those of the
                    // previous element.
                    // NO-OVERFLOW: Both sums are at most the number of bytes in the pages.
                    self.own = self.own.wrapping_add(1);
                    at = at.wrapping_add(piece);
                } else {
                    longest = shorter(piece)?;
                }
            }
        }
        Ok(())
    }

    /// Maps the `len` bytes that begin at offset `at`, and adds one element for all of these bytes.
    /// Returns true if this was done.
    ///
    /// Does nothing and returns false if the bytes may need several elements, or if the memory does
    /// not contain all of the bytes. The caller then calls [`MappedPages::map`]. Returns `EIO` if
    /// the bytes cannot be mapped. May sleep.
    #[inline(always)]
    pub(crate) fn add(&mut self, at: usize, len: u32) -> Result<bool> {
        // CAST: A `usize` is at least as wide as a `u32`.
        let left = len as usize;
        let Some(end) = at.checked_add(left) else {
            return Ok(false);
        };
        match &self.memory {
            Some(Mappable::Own(_)) => match self.sges.first() {
                Some(first) if end <= first.length as usize => {
                    // INVARIANT: The first `own` elements are added before all others. So `first`
                    // is one of the first `own` elements. `first` contains these bytes.
                    let element = part(first, at, len);
                    list::add(&mut self.sges, element)?;
                    Ok(true)
                }
                _ => Ok(false),
            },
            Some(Mappable::Shared(refs)) => {
                // NO-OVERFLOW: If `end` is at most the length of the memory, the sum is an offset
                // in memory. Otherwise the sum is not used.
                let from = refs.offset().wrapping_add(at);
                let offset = from % PAGE_SIZE;
                // NO-OVERFLOW: The sum is computed only if `end` is at most the length of the
                // memory. So `left` is a length in memory.
                if end > refs.len() || offset.wrapping_add(left) > PAGE_SIZE {
                    return Ok(false);
                }
                let page = *refs.pages().get(from / PAGE_SIZE).ok_or(EINVAL)?;
                let bytes = (page, offset, left);
                // SAFETY: The bytes are in one page, which `memory` keeps.
                // INVARIANT: The element is mapped for `dir`.
                match unsafe { map_piece(&self.pd, self.dir, &mut self.sges, bytes) }? {
                    true => Ok(true),
                    false => Err(EIO),
                }
            }
            None => Ok(false),
        }
    }

    /// Maps the `left` bytes that begin at offset `at`, or only the first part of them, and adds at
    /// most `most` elements. Returns the number of bytes that the elements describe. May sleep.
    ///
    /// Each element is physically contiguous, and as long as possible. If the device or its bounce
    /// buffers have no space for an element of that length, shorter elements are used.
    ///
    /// Returns `EINVAL` if `left` is zero or the memory does not contain all of the bytes. Returns
    /// `EIO` if not even one page can be mapped.
    pub(crate) fn map(&mut self, at: usize, left: u32, most: usize) -> Result<u32> {
        let memory = self.memory.as_ref().ok_or(EINVAL)?;
        // CAST: A `usize` is at least as wide as a `u32`.
        let end = at.checked_add(left as usize).ok_or(EINVAL)?;
        if left == 0 || end > memory.len() {
            return Err(EINVAL);
        }
        match memory {
            Mappable::Own(_) => self.cut(at, left, most),
            Mappable::Shared(_) => self.map_shared(at, left, most),
        }
    }

    /// Adds elements for bytes of pages that [`MappedPages::hold`] has mapped, see
    /// [`MappedPages::map`].
    #[cold]
    fn cut(&mut self, at: usize, left: u32, most: usize) -> Result<u32> {
        let (mut skip, mut rest, mut count) = (at, left, 0);
        for index in 0..self.own {
            let piece = self.sges.get(index).ok_or(EINVAL)?;
            // CAST: A `usize` is at least as wide as a `u32`.
            let whole = piece.length as usize;
            // CAST: The minimum is at most `rest`.
            let len = whole.saturating_sub(skip).min(rest as usize) as u32;
            if len != 0 {
                if count >= most.max(1) {
                    break;
                }
                let element = part(piece, skip, len);
                // INVARIANT: These bytes are bytes of the element `index`, which is one of the
                // first `own` elements.
                self.sges.push(element, GFP_KERNEL)?;
                // NO-OVERFLOW: `len` is at most `rest`, and `count` is less than `most`.
                rest = rest.wrapping_sub(len);
                count = count.wrapping_add(1);
            }
            skip = skip.saturating_sub(whole);
        }
        // If no element was added, the bytes are in pages that are not mapped.
        match count {
            0 => Err(EINVAL),
            // NO-OVERFLOW: `rest` is at most `left`.
            _ => Ok(left.wrapping_sub(rest)),
        }
    }

    /// Maps bytes of shared pages, see [`MappedPages::map`]. `left` must not be zero, and the pages
    /// must contain all `left` bytes.
    #[inline]
    fn map_shared(&mut self, at: usize, left: u32, most: usize) -> Result<u32> {
        // CAST: A `usize` is at least as wide as a `u32`.
        let len = left as usize;
        let Some(Mappable::Shared(refs)) = &self.memory else {
            return Err(EINVAL);
        };
        // The bytes need at most one element for each page.
        let most = most.min(Pages::count(len).saturating_add(1)).max(1);
        self.sges.reserve(most, GFP_KERNEL)?;
        let mut bytes = bindings::xprtrdma_bytes {
            pages: refs.pages().as_ptr().cast_mut(),
            // NO-OVERFLOW: The sum is an offset in memory.
            offset: refs.offset().wrapping_add(at),
            left: len,
            refused: 0,
        };
        let mut longest = self.pd.max_entry() as usize;
        let mut count = 0;
        while bytes.left != 0 && count < most {
            let place = self.sges.spare_capacity_mut().as_mut_ptr().cast();
            // CAST: A work request has few elements.
            let room = most.wrapping_sub(count) as u32;
            let (pd, dir) = (self.pd.as_raw(), self.dir.raw());
            // SAFETY: The protection domain exists as long as `pd`. There is at least one byte, and
            // the bytes are inside the pages, which `memory` keeps. `longest` is at least one page.
            // `room` is not zero, and the vector has space for `room` elements.
            let added =
                unsafe { bindings::xprtrdma_dma_map(pd, &mut bytes, longest, dir, place, room) };
            // CAST: A `usize` is at least as wide as a `u32`.
            let added = added as usize;
            // SAFETY: The callee has written this number of elements, at most `room`.
            // INVARIANT: The callee has mapped their bytes for `dir`.
            unsafe { self.sges.inc_len(added) };
            // NO-OVERFLOW: The sum is at most `most`.
            count = count.wrapping_add(added);
            if bytes.refused != 0 {
                longest = shorter(bytes.refused)?;
            }
        }
        // CAST, NO-OVERFLOW: The callee only lowers `bytes.left`, so it is at most `left`.
        Ok(left.wrapping_sub(bytes.left as u32))
    }

    /// Unmaps the pages. Returns them if this module owns them; drops the references to shared
    /// pages.
    #[inline(always)]
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
    #[inline]
    pub(crate) fn list(&mut self) -> Option<PageList> {
        self.list.take()
    }

    /// Returns the number of bytes in the pages.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Mappable::len)
    }

    /// Returns the maximum number of elements of a work request.
    #[inline]
    pub(crate) fn most_sges(&self) -> usize {
        self.most_sges
    }

    /// Returns the protection domain whose device the pages are mapped for.
    #[inline]
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the scatter/gather elements that [`MappedPages::map`] and [`MappedPages::add`] have
    /// added, in the order of the calls.
    #[inline]
    pub(crate) fn sges(&self) -> &[bindings::ib_sge] {
        self.sges.get(self.own..).unwrap_or(&[])
    }

    /// Returns the address after the last element.
    #[inline]
    pub(crate) fn end(&self) -> *const bindings::ib_sge {
        self.sges.as_ptr().wrapping_add(self.sges.len())
    }

    /// Returns the number of elements for which the list has memory.
    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.sges.capacity()
    }

    #[inline]
    fn forget_mappings(&mut self) {
        if self.pd.needs_unmapping() {
            let mapped = match self.own {
                0 => self.sges.len(),
                own => own,
            };
            let (dev, dir) = (self.pd.raw_device(), self.dir.raw());
            // SAFETY: By the type invariant, the bytes of these elements are mapped. They are
            // unmapped once, because the list is emptied below.
            unsafe { bindings::xprtrdma_dma_unmap(dev, self.sges.as_ptr(), mapped, dir) };
        }
        // INVARIANT: There are no elements.
        self.sges.clear();
        self.own = 0;
    }
}

/// Maps bytes of one piece of memory for a device, and adds an element for these bytes to `sges`.
/// The bytes are given by a page, an offset and a length. Returns false if they cannot be mapped.
///
/// # Safety
///
/// The bytes are physically contiguous, and their pages exist until they are unmapped.
#[inline(always)]
unsafe fn map_piece(
    pd: &Pd,
    dir: Direction,
    sges: &mut KVec<bindings::ib_sge>,
    (page, offset, len): (*mut bindings::page, usize, usize),
) -> Result<bool> {
    list::make_room(sges)?;
    let place = list::end(sges);
    // SAFETY: The protection domain exists during the call. By this function's contract the bytes
    // are contiguous and exist. The vector has space for an element.
    let is_mapped = unsafe {
        bindings::xprtrdma_dma_map_piece(pd.as_raw(), page, offset, len, dir.raw(), place)
    };
    if is_mapped {
        // SAFETY: The callee has written an element.
        unsafe { sges.inc_len(1) };
    }
    Ok(is_mapped)
}

/// Returns the element of `length` bytes at offset `at` of a longer element.
#[inline]
fn part(whole: &bindings::ib_sge, at: usize, length: u32) -> bindings::ib_sge {
    bindings::ib_sge {
        // NO-OVERFLOW: A mapping does not wrap around the address space.
        addr: whole.addr.wrapping_add(at as u64),
        length,
        lkey: whole.lkey,
    }
}

/// Returns the length of the pieces to try next after a piece of `len` bytes could not be mapped.
/// Bounce buffers may be fragmented, so shorter pieces may still find space. Returns `EIO` if `len`
/// is not longer than a page.
#[cold]
fn shorter(len: usize) -> Result<usize> {
    if len <= PAGE_SIZE {
        return Err(EIO);
    }
    let half = (len / 2).max(PAGE_SIZE);
    // NO-OVERFLOW: The remainder of a division is not greater than the dividend.
    Ok(half.wrapping_sub(half % PAGE_SIZE))
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
