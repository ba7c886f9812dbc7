// SPDX-License-Identifier: GPL-2.0

//! Pages of our own that a device reads or writes ([`Pages`], [`MappedPages`]).

use crate::{
    dma::Direction,
    pd::Pd, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::buffer::PageArray;
use xprtrdma_bindings as bindings;

/// Memory in pages, zeroed at first.
///
/// Each page is freed by giving up a reference to it. So a page that others took a reference to
/// stays with them.
///
/// # Invariants
///
/// - `raw` contains the addresses of `pages` in the same order. The last address is there twice.
///   All bytes of the pages are initialised.
/// - `len` is not zero, and at most the number of bytes in `pages`.
pub struct Pages {
    raw: KVec<*mut bindings::page>,
    pages: KVec<Page>,
    len: usize,
}

// SAFETY: The addresses belong to pages that the object owns.
unsafe impl Send for Pages {}
// SAFETY: A `&Pages` only returns addresses and lengths.
unsafe impl Sync for Pages {}

// SAFETY: By the type invariant. The arrays do not change, and are not moved when the object is
// moved. Methods that create references to the bytes take `&mut self`.
unsafe impl PageArray for Pages {
    fn array(&self) -> NonNull<*mut bindings::page> {
        // The pointer of a vector is not null.
        NonNull::from(self.raw.as_slice()).cast()
    }

    fn first(&self) -> NonNull<u8> {
        self.address(0).unwrap_or(NonNull::dangling())
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Pages {
    /// Allocates pages for `len` bytes. Returns `EINVAL` if `len` is zero. May sleep.
    pub fn new(len: usize) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let count = len.div_ceil(PAGE_SIZE);
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        let mut raw = KVec::with_capacity(count.saturating_add(1), GFP_KERNEL)?;
        for _ in 0..count {
            let page = Page::alloc_page(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN)?;
            raw.push(page.as_ptr(), GFP_KERNEL)?;
            pages.push(page, GFP_KERNEL)?;
        }
        let last = raw.last().copied().ok_or(EINVAL)?;
        raw.push(last, GFP_KERNEL)?;
        // INVARIANT: All pages were allocated as zeroed pages, and the last address was added a
        // second time.
        Ok(Self { raw, pages, len })
    }

    /// Calls `f` for each part of the bytes from `at` to `end` that is inside one page, in order.
    /// `f` gets the offset of the part from `at`. Returns `EINVAL` if the pages have fewer bytes.
    pub fn change(
        &mut self,
        at: usize,
        end: usize,
        mut f: impl FnMut(usize, &mut [u8]) -> Result,
    ) -> Result {
        if at > end || end > self.len {
            return Err(EINVAL);
        }
        let mut from = at;
        while from < end {
            let offset = from % PAGE_SIZE;
            // NO-OVERFLOW: Both numbers are at most `end`, which is at most the number of bytes in
            // memory.
            let len = (PAGE_SIZE - offset).min(end - from);
            let page = self.address(from / PAGE_SIZE).ok_or(EINVAL)?;
            // SAFETY: The part is inside a page that belongs to this object and is initialised.
            // `self` is mutably borrowed while the slice exists.
            let part = unsafe { slice::from_raw_parts_mut(page.add(offset).as_ptr(), len) };
            f(from - at, part)?;
            from += len;
        }
        Ok(())
    }

    /// Maps the pages for the device of `pd`. May sleep.
    pub fn map(self, pd: &Arc<Pd>, dir: Direction) -> Result<MappedPages> {
        // INVARIANT: No page is mapped yet.
        let mut mapped = MappedPages {
            addrs: KVec::with_capacity(self.pages.len(), GFP_KERNEL)?,
            pages: self,
            dir,
            pd: pd.clone(),
        };
        let dev = pd.raw_device();
        for page in &mapped.pages.pages {
            let page = page.as_ptr();
            // SAFETY: The device exists as long as `pd`. The page belongs to this object.
            let addr =
                unsafe { bindings::xprtrdma_dma_map_page(dev, page, 0, PAGE_SIZE, dir.raw()) };
            // SAFETY: The device exists. `addr` is the result of a mapping call for it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: The page was mapped above. The push cannot fail, because the vector has a
            // free element.
            mapped.addrs.push(addr, GFP_KERNEL)?;
        }
        Ok(mapped)
    }

    /// Returns the address of a page.
    fn address(&self, index: usize) -> Option<NonNull<u8>> {
        let page = *self.raw.get(index)?;
        // SAFETY: The page belongs to this object. It has a kernel address, because it was not
        // allocated from high memory.
        NonNull::new(unsafe { bindings::xprtrdma_page_address(page) }.cast())
    }
}

/// Pages that are mapped for a device. Until [`MappedPages::unmap`] only the device accesses their
/// bytes.
///
/// # Invariants
///
/// A number of pages from the first one on are mapped at `addrs` for `dir`. After [`Pages::map`]
/// has returned, all are mapped.
pub struct MappedPages {
    addrs: KVec<u64>,
    pages: Pages,
    dir: Direction,
    pd: Arc<Pd>,
}

impl MappedPages {
    /// Unmaps the pages and returns them.
    pub(crate) fn unmap(mut self) -> Pages {
        self.forget_mappings();
        core::mem::replace(&mut self.pages, Pages::NONE)
    }

    /// Returns the number of bytes in the pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len
    }

    /// Returns the direction for which the pages are mapped.
    pub(crate) fn direction(&self) -> Direction {
        self.dir
    }

    /// Returns the protection domain whose device the pages are mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns a scatter/gather element for those of `len` bytes at `at` that are inside one page.
    /// Returns `None` if there are none.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Option<bindings::ib_sge> {
        let offset = at % PAGE_SIZE;
        let len = len
            .min(PAGE_SIZE - offset)
            .min(self.pages.len.checked_sub(at)?);
        let addr = *self.addrs.get(at / PAGE_SIZE)?;
        (len != 0).then_some(bindings::ib_sge {
            // NO-OVERFLOW: A mapping does not wrap around the address space.
            addr: addr.wrapping_add(offset as u64),
            // CAST: The length is at most the size of a page.
            length: len as u32,
            lkey: self.pd.local_dma_lkey(),
        })
    }

    fn forget_mappings(&mut self) {
        let dev = self.pd.raw_device();
        while let Some(addr) = self.addrs.pop() {
            // SAFETY: By the type invariant the page is mapped. It is unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_page(dev, addr, PAGE_SIZE, self.dir.raw()) };
        }
    }
}

impl Pages {
    /// Returns an object without pages, to replace one whose pages were moved.
    const NONE: Self = Self {
        raw: KVec::new(),
        pages: KVec::new(),
        len: 0,
    };
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
