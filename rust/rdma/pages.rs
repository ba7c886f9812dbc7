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
/// - `raw` are the addresses of `pages`, in that order, whose bytes are initialised. The last one
///   is there twice.
/// - `len` is at most the bytes of `pages`, and not zero.
pub struct Pages {
    raw: KVec<*mut bindings::page>,
    pages: KVec<Page>,
    len: usize,
}

// SAFETY: The addresses are those of pages that the value owns.
unsafe impl Send for Pages {}
// SAFETY: `&Pages` tells addresses and lengths only.
unsafe impl Sync for Pages {}

// SAFETY: By the type invariant. The arrays do not change, and stay where they are if the value is
// moved. Methods that make references to the bytes take `&mut self`.
unsafe impl PageArray for Pages {
    fn array(&self) -> NonNull<*mut bindings::page> {
        // A vector's pointer is not null.
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
    /// Allocates pages for `len` bytes. `EINVAL` for none. May sleep.
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
        // INVARIANT: As many as were asked for, each zeroed, and the last one again.
        Ok(Self { raw, pages, len })
    }

    /// Calls `f` with each part of the bytes from `at` to `end` that is in one page, in order, and
    /// with the offset of the part from `at`. `EINVAL`: there are fewer bytes.
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
            // NO-OVERFLOW: Both are at most `end`, which is at most the bytes of memory.
            let len = (PAGE_SIZE - offset).min(end - from);
            let page = self.address(from / PAGE_SIZE).ok_or(EINVAL)?;
            // SAFETY: Within the page, which belongs to the value, and is initialised. `self` is
            // borrowed for as long as the slice.
            let part = unsafe { slice::from_raw_parts_mut(page.add(offset).as_ptr(), len) };
            f(from - at, part)?;
            from += len;
        }
        Ok(())
    }

    /// Maps the pages for the device of `pd`. May sleep.
    pub fn map(self, pd: &Arc<Pd>, dir: Direction) -> Result<MappedPages> {
        // INVARIANT: None is mapped yet.
        let mut mapped = MappedPages {
            addrs: KVec::with_capacity(self.pages.len(), GFP_KERNEL)?,
            pages: self,
            dir,
            pd: pd.clone(),
        };
        let dev = pd.raw_device();
        for page in &mapped.pages.pages {
            let page = page.as_ptr();
            // SAFETY: The device exists while `pd` does; the page is a whole one of ours.
            let addr =
                unsafe { bindings::xprtrdma_dma_map_page(dev, page, 0, PAGE_SIZE, dir.raw()) };
            // SAFETY: The device exists; `addr` is the result of a mapping call on it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: Mapped just now. There is room, so it does not fail.
            mapped.addrs.push(addr, GFP_KERNEL)?;
        }
        Ok(mapped)
    }

    /// Returns the address of a page.
    fn address(&self, index: usize) -> Option<NonNull<u8>> {
        let page = *self.raw.get(index)?;
        // SAFETY: A page of ours, which the kernel can address: it was not asked for high memory.
        NonNull::new(unsafe { bindings::xprtrdma_page_address(page) }.cast())
    }
}

/// Pages that are mapped for a device. Until [`MappedPages::unmap`] nothing but the device uses
/// their bytes.
///
/// # Invariants
///
/// The first pages are mapped at `addrs` for `dir`; all of them once [`Pages::map`] has returned.
pub struct MappedPages {
    addrs: KVec<u64>,
    pages: Pages,
    dir: Direction,
    pd: Arc<Pd>,
}

impl MappedPages {
    /// Unmaps the pages, and returns them.
    pub(crate) fn unmap(mut self) -> Pages {
        self.forget_mappings();
        core::mem::replace(&mut self.pages, Pages::NONE)
    }

    /// Returns the bytes of the pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len
    }

    /// Returns the direction that the pages are mapped for.
    pub(crate) fn direction(&self) -> Direction {
        self.dir
    }

    /// Returns the domain whose device the pages are mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns a scatter/gather element for as many of `len` bytes at `at` as are in one page.
    /// `None`: none are.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Option<bindings::ib_sge> {
        let offset = at % PAGE_SIZE;
        let len = len
            .min(PAGE_SIZE - offset)
            .min(self.pages.len.checked_sub(at)?);
        let addr = *self.addrs.get(at / PAGE_SIZE)?;
        (len != 0).then_some(bindings::ib_sge {
            // NO-OVERFLOW: A mapping does not wrap around the address space.
            addr: addr.wrapping_add(offset as u64),
            // CAST: At most a page.
            length: len as u32,
            lkey: self.pd.local_dma_lkey(),
        })
    }

    fn forget_mappings(&mut self) {
        let dev = self.pd.raw_device();
        while let Some(addr) = self.addrs.pop() {
            // SAFETY: By the type invariant it is mapped, and it is unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_page(dev, addr, PAGE_SIZE, self.dir.raw()) };
        }
    }
}

impl Pages {
    /// What is left of pages that were taken elsewhere.
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
