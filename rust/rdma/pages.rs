// SPDX-License-Identifier: GPL-2.0

//! Pages that this module owns and a device reads or writes ([`Pages`], [`MappedPages`]).

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
    sync::{
        Arc,
        UniqueArc, //
    }, //
};
use xprtrdma_base::buffer::{
    PageArray,
    PageList,
    PageRefs, //
};
use xprtrdma_bindings as bindings;

/// Memory in pages. Newly allocated pages are zeroed.
///
/// A page is freed by dropping a reference to it. So if other code took a reference to a page, that
/// code keeps the page.
///
/// # Invariants
///
/// - `len` is not zero, and at most the number of bytes in the pages of `block`.
/// - `block` is `None` only while the value is dropped.
pub struct Pages {
    block: Option<Block>,
    len: usize,
    /// The pool to which the pages go when they are no longer used.
    home: Option<Arc<Pool>>,
}

// SAFETY: The type invariants guarantee the bytes. The arrays do not change, and stay where they
// are if the value is moved. Methods that make references to the bytes take `&mut self`.
unsafe impl PageArray for Pages {
    fn array(&self) -> NonNull<*mut bindings::page> {
        // A vector's pointer is not null.
        NonNull::from(self.raw()).cast()
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
        // INVARIANT: These pages hold at least `len` bytes. If `len` is zero, `Block::new` fails.
        Ok(Self {
            block: Some(Block::new(Self::count(len))?),
            len,
            home: None,
        })
    }

    /// Returns pages for `len` bytes, which return to the pool `home` when they are dropped. They
    /// are zeroed, or contain old data from the same pool. Returns `EINVAL` if `len` is zero. May
    /// sleep.
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

    /// Uses pages of `home` again, for `len` bytes. Zeroes the rest of the last page.
    fn again(block: Block, len: usize, home: Arc<Pool>) -> Result<Self> {
        let end = Self::count(len).checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
        if len == 0 || Self::count(len) > block.len() {
            return Err(EINVAL);
        }
        // INVARIANT: The lengths were checked above.
        let mut pages = Self {
            block: Some(block),
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

    /// Returns the number of pages that `len` bytes need.
    fn count(len: usize) -> usize {
        len.div_ceil(PAGE_SIZE)
    }

    /// Calls `f` for the bytes from `at` to `end`, in order, in parts that are each within one
    /// page. `f` also receives the offset of the part from `at`. Returns `EINVAL` if the pages have
    /// fewer than `end` bytes.
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

    /// Returns the pages of the bytes from the page with this index on.
    pub(crate) fn raw_from(&self, index: usize) -> &[*mut bindings::page] {
        // The bytes use the first pages only.
        let used = self.raw().get(..Self::count(self.len));
        used.and_then(|used| used.get(index..)).unwrap_or(&[])
    }

    /// Moves the pages out of an allocation that nothing else refers to.
    pub(crate) fn from_unique(mut unique: Pin<UniqueArc<Self>>) -> Self {
        // INVARIANT: What stays behind has no pages, and is dropped here.
        let emptied = Self {
            block: None,
            len: 0,
            home: None,
        };
        core::mem::replace(&mut *unique, emptied)
    }

    /// Maps the pages for the device of `pd`. May sleep.
    pub fn map(self, pd: &Arc<Pd>, dir: Direction) -> Result<MappedPages> {
        let mut mapped = MappedPages::none(pd);
        mapped.map(Mappable::Own(self), dir)?;
        Ok(mapped)
    }

    /// Returns the pages. The last page is there twice.
    fn raw(&self) -> &[*mut bindings::page] {
        self.block.as_ref().map_or(&[], |block| &block.raw)
    }

    /// Returns the kernel's address of a page.
    fn address(&self, index: usize) -> Option<NonNull<u8>> {
        let page = *self.raw().get(index)?;
        // SAFETY: The page belongs to this object. The kernel can address it, because it was not
        // allocated from high memory.
        NonNull::new(unsafe { bindings::xprtrdma_page_address(page) }.cast())
    }
}

/// Memory that can be mapped for a device.
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
    /// Pages that this module owns.
    Own(Pages),
    /// Pages that other code uses as well. The device only reads them.
    Shared(PageRefs),
}

impl Mappable {
    fn raw(&self) -> &[*mut bindings::page] {
        match self {
            Self::Own(pages) => {
                let count = Pages::count(pages.len);
                pages.raw().get(..count).unwrap_or(&[])
            }
            Self::Shared(refs) => refs.pages(),
        }
    }

    /// Returns the offset of the first byte in the first page.
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

/// Pages that are mapped for a device. If this module owns the pages, only the device uses their
/// bytes until [`MappedPages::unmap`]. If other code uses the pages as well, the device only reads
/// them.
///
/// # Invariants
///
/// The first `addrs.len()` pages are mapped at `addrs` for `dir`; these are all pages once
/// [`MappedPages::map`] has succeeded. For pages that other code uses as well, `dir` is `ToDevice`.
pub struct MappedPages {
    addrs: KVec<u64>,
    /// `None` before [`MappedPages::map`], and after [`MappedPages::unmap`].
    memory: Option<Mappable>,
    dir: Direction,
    pd: Arc<Pd>,
    /// The empty list of shared pages that were unmapped, kept for its memory.
    list: PageList,
}

impl MappedPages {
    /// Makes an object without pages.
    pub(crate) fn none(pd: &Arc<Pd>) -> Self {
        // INVARIANT: There are no pages.
        Self {
            addrs: KVec::new(),
            memory: None,
            dir: Direction::ToDevice,
            pd: pd.clone(),
            list: PageList::default(),
        }
    }

    /// Maps `memory`, after the memory that was mapped before has been unmapped. Returns `EINVAL`
    /// if it is still mapped, or if the device would write to shared pages. May sleep.
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
        // INVARIANT: None of the new pages is mapped yet.
        let memory = self.memory.insert(memory);
        self.dir = dir;
        let dev = self.pd.raw_device();
        for &page in memory.raw() {
            // SAFETY: The device exists as long as `pd`. The page is a whole page, which `memory`
            // keeps.
            let addr = unsafe { bindings::xprtrdma_dma_map_page(dev, page, dir.raw()) };
            // SAFETY: The device exists. `addr` is the result of a mapping call for it.
            if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
                return Err(EIO);
            }
            // INVARIANT: The page was mapped above. The push does not fail, because the vector has
            // space.
            self.addrs.push(addr, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Unmaps the pages. Returns them if this module owns them; drops the references to shared
    /// pages.
    pub(crate) fn unmap(&mut self) -> Option<Pages> {
        self.forget_mappings();
        match self.memory.take()? {
            Mappable::Own(pages) => Some(pages),
            Mappable::Shared(refs) => {
                self.list = refs.into_list();
                None
            }
        }
    }

    /// Returns the list whose memory can be used for the next shared pages.
    pub(crate) fn list(&mut self) -> &mut PageList {
        &mut self.list
    }

    /// Returns the number of bytes in the pages.
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Mappable::len)
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

    /// Returns a scatter/gather element for the bytes from `at` on: at most `len` bytes, as far as
    /// their device addresses are contiguous. Returns `None` if that is no byte.
    pub(crate) fn sge(&self, at: usize, len: usize) -> Option<bindings::ib_sge> {
        let memory = self.memory.as_ref()?;
        let most = len.min(memory.len().checked_sub(at)?);
        // NO-OVERFLOW: The sum is an offset in memory.
        let from = memory.offset().wrapping_add(at);
        let (index, offset) = (from / PAGE_SIZE, from % PAGE_SIZE);
        let mut rest = self.addrs.get(index..)?.iter();
        let first = *rest.next()?;
        // NO-OVERFLOW: `offset` is a remainder of the division by the page size.
        let mut len = PAGE_SIZE - offset;
        // NO-OVERFLOW: A mapping does not wrap around the address space.
        let mut end = first.wrapping_add(PAGE_SIZE as u64);
        while len < most && rest.next() == Some(&end) {
            end = end.wrapping_add(PAGE_SIZE as u64);
            len = len.wrapping_add(PAGE_SIZE);
        }
        (most != 0).then_some(bindings::ib_sge {
            // NO-OVERFLOW: As above, the mapping does not wrap around the address space.
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

impl Drop for Pages {
    fn drop(&mut self) {
        if let (Some(home), Some(block)) = (self.home.take(), self.block.take()) {
            home.put(block);
        }
    }
}

impl Drop for MappedPages {
    fn drop(&mut self) {
        self.forget_mappings();
    }
}
