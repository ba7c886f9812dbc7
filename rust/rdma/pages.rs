// SPDX-License-Identifier: GPL-2.0

//! Pages of our own that a device reads or writes ([`Pages`], [`MappedPages`]).

use crate::{
    block::Block,
    dma::Direction,
    pd::Pd,
    pool::Pool, //
};
use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::buffer::{
    PageArray,
    PageList,
    PageRefs, //
};
use xprtrdma_bindings as bindings;

/// Memory in pages. Pages that were allocated for it are zeroed at first.
///
/// Each page is freed by giving up a reference to it. So a page that others took a reference to
/// stays with them.
///
/// # Invariants
///
/// `len` is at most the bytes of the pages of `block`, and not zero.
pub struct Pages {
    block: Block,
    len: usize,
    /// Where the pages go in the end.
    home: Option<Arc<Pool>>,
}

// SAFETY: By the type invariants. The arrays do not change, and stay where they are if the value is
// moved. Methods that make references to the bytes take `&mut self`.
unsafe impl PageArray for Pages {
    fn array(&self) -> NonNull<*mut bindings::page> {
        // A vector's pointer is not null.
        NonNull::from(self.block.raw.as_slice()).cast()
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
        // INVARIANT: That many pages have as many bytes. Without any there is no block.
        Ok(Self {
            block: Block::new(Self::count(len))?,
            len,
            home: None,
        })
    }

    /// Returns pages for `len` bytes that go to `home` in the end. They are zeroed, or hold what
    /// they happen to hold of the same pool. Returns `EINVAL` if `len` is zero. May sleep.
    pub fn of(home: &Arc<Pool>, len: usize) -> Result<Self> {
        match home.take(Self::count(len)) {
            Some(block) => Self::again(block, len, home.clone()),
            None => {
                let mut pages = Self::new(len)?;
                pages.home = Some(home.clone());
                Ok(pages)
            }
        }
    }

    /// Uses pages of `home` again, for `len` bytes. What follows these in their last page is
    /// zeroed.
    fn again(block: Block, len: usize, home: Arc<Pool>) -> Result<Self> {
        let end = Self::count(len).checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
        if len == 0 || Self::count(len) > block.len() {
            return Err(EINVAL);
        }
        // INVARIANT: Checked above.
        let mut pages = Self {
            block,
            len: end,
            home: Some(home),
        };
        pages.change(len, end, |_, rest| {
            rest.fill(0);
            Ok(())
        })?;
        pages.len = len;
        Ok(pages)
    }

    /// Returns how many pages `len` bytes take.
    fn count(len: usize) -> usize {
        len.div_ceil(PAGE_SIZE)
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
        let mut mapped = MappedPages::none(pd);
        mapped.map(Mappable::Own(self), dir)?;
        Ok(mapped)
    }

    /// Returns the address of a page.
    fn address(&self, index: usize) -> Option<NonNull<u8>> {
        let page = *self.block.raw.get(index)?;
        // SAFETY: A page of ours, which the kernel can address: it was not asked for high memory.
        NonNull::new(unsafe { bindings::xprtrdma_page_address(page) }.cast())
    }
}

/// What can be mapped for a device.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::buffer::PageRefs;
/// # use xprtrdma_rdma::pages::{Mappable, Pages};
/// /// Takes bytes of others, or makes room for a copy of them.
/// fn example(refs: Option<PageRefs>, len: usize) -> Result<Mappable> {
///     Ok(match refs {
///         Some(refs) => Mappable::Shared(refs),
///         None => Mappable::Own(Pages::new(len)?),
///     })
/// }
/// ```
pub enum Mappable {
    /// Pages of ours.
    Own(Pages),
    /// Pages that others use as well, for a device that reads them.
    Shared(PageRefs),
}

impl Mappable {
    fn raw(&self) -> &[*mut bindings::page] {
        match self {
            Self::Own(pages) => {
                let count = Pages::count(pages.len);
                pages.block.raw.get(..count).unwrap_or(&[])
            }
            Self::Shared(refs) => refs.pages(),
        }
    }

    /// Returns where the bytes begin in the first page.
    fn offset(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::Shared(refs) => refs.offset(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Own(pages) => pages.len,
            Self::Shared(refs) => refs.len(),
        }
    }
}

/// Pages that are mapped for a device. Until [`MappedPages::unmap`] nothing but the device uses
/// the bytes of pages of ours. A device only reads those of others.
///
/// # Invariants
///
/// The first pages are mapped at `addrs` for `dir`; all of them once [`MappedPages::map`] has
/// succeeded. For pages of others `dir` is `ToDevice`.
pub struct MappedPages {
    addrs: KVec<u64>,
    memory: Mappable,
    dir: Direction,
    pd: Arc<Pd>,
    /// The list of pages of others that were unmapped.
    list: PageList,
}

impl MappedPages {
    /// Makes the value without pages.
    pub(crate) fn none(pd: &Arc<Pd>) -> Self {
        // INVARIANT: There are no pages.
        Self {
            addrs: KVec::new(),
            memory: Mappable::Own(Pages::NONE),
            dir: Direction::ToDevice,
            pd: pd.clone(),
            list: PageList::default(),
        }
    }

    /// Maps pages, after those that were mapped before. `EINVAL`: these are still mapped, or a
    /// device is to write pages of others. May sleep.
    pub(crate) fn map(&mut self, memory: Mappable, dir: Direction) -> Result {
        if let Mappable::Shared(_) = memory {
            if dir != Direction::ToDevice {
                return Err(EINVAL);
            }
        }
        if !self.addrs.is_empty() {
            return Err(EINVAL);
        }
        self.addrs.reserve(memory.raw().len(), GFP_KERNEL)?;
        // INVARIANT: None is mapped yet.
        self.memory = memory;
        self.dir = dir;
        let dev = self.pd.raw_device();
        for &page in self.memory.raw() {
            // SAFETY: The device exists while `pd` does; the page is a whole one, which `memory`
            // keeps.
            let addr = unsafe { bindings::xprtrdma_dma_map_page(dev, page, dir.raw()) };
            // SAFETY: The device exists. `addr` is the result of a mapping call for it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: Mapped just now. There is room, so it does not fail.
            self.addrs.push(addr, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Unmaps the pages, and returns them if they are ours. Others are given back.
    pub(crate) fn unmap(&mut self) -> Option<Pages> {
        self.forget_mappings();
        match core::mem::replace(&mut self.memory, Mappable::Own(Pages::NONE)) {
            Mappable::Own(pages) => Some(pages),
            Mappable::Shared(refs) => {
                self.list = refs.into_list();
                None
            }
        }
    }

    /// Returns the memory for a list of pages of others.
    pub(crate) fn list(&mut self) -> &mut PageList {
        &mut self.list
    }

    /// Returns the number of bytes in the pages.
    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }

    /// Returns the number of pages.
    pub(crate) fn count(&self) -> usize {
        self.addrs.len()
    }

    /// Returns the direction for which the pages are mapped.
    pub(crate) fn direction(&self) -> Direction {
        self.dir
    }

    /// Returns the protection domain whose device the pages are mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns a scatter/gather element for as many of `len` bytes at `at` as have addresses one
    /// behind the other. `None`: none have.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Option<bindings::ib_sge> {
        let most = len.min(self.len().checked_sub(at)?);
        // NO-OVERFLOW: A place in memory.
        let from = self.memory.offset().wrapping_add(at);
        let (index, offset) = (from / PAGE_SIZE, from % PAGE_SIZE);
        let mut rest = self.addrs.get(index..)?.iter();
        let first = *rest.next()?;
        // NO-OVERFLOW: A remainder.
        let mut len = PAGE_SIZE - offset;
        // NO-OVERFLOW: A mapping does not wrap around the address space.
        let mut end = first.wrapping_add(PAGE_SIZE as u64);
        while len < most && rest.next() == Some(&end) {
            end = end.wrapping_add(PAGE_SIZE as u64);
            len = len.wrapping_add(PAGE_SIZE);
        }
        (most != 0).then_some(bindings::ib_sge {
            // NO-OVERFLOW: As above.
            addr: first.wrapping_add(offset as u64),
            // CAST: A transfer has a few megabytes.
            length: len.min(most) as u32,
            lkey: self.pd.local_dma_lkey(),
        })
    }

    fn forget_mappings(&mut self) {
        let dev = self.pd.raw_device();
        while let Some(addr) = self.addrs.pop() {
            // SAFETY: By the type invariant the page is mapped. It is unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_page(dev, addr, self.dir.raw()) };
        }
    }
}

impl Pages {
    /// Returns an object without pages, to replace one whose pages were moved.
    const NONE: Self = Self {
        block: Block::NONE,
        len: 0,
        home: None,
    };
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.put(core::mem::replace(&mut self.block, Block::NONE));
        }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
