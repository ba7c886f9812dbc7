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

/// A range of pages that is mapped at contiguous device addresses. Both numbers are in bytes.
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
/// `mappings` are mapped for `dir`. They are the first pages of `memory`, in order, and together
/// contain all its bytes once [`MappedPages::map`] has succeeded. For pages that other code uses as
/// well, `dir` is `ToDevice`.
pub struct MappedPages {
    mappings: KVec<Mapping>,
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
            mappings: KVec::new(),
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
        if !self.mappings.is_empty() {
            return Err(EINVAL);
        }
        // INVARIANT: None of the new pages is mapped yet.
        self.dir = dir;
        match self.memory.insert(memory) {
            Mappable::Own(pages) => {
                let mut left = Pages::count(pages.len);
                let block = pages.block.as_ref().ok_or(EINVAL)?;
                for run in &block.runs {
                    let count = run.count().min(left);
                    if count == 0 {
                        break;
                    }
                    // NO-OVERFLOW: `count` is at most `left`.
                    left = left.wrapping_sub(count);
                    // SAFETY: The first `count` pages of the run lie one behind the other, and
                    // `memory` keeps them.
                    unsafe { map_run(&mut self.mappings, &self.pd, dir, run.first(), count)? };
                }
            }
            Mappable::Shared(refs) => {
                let mut rest = refs.pages();
                while let [first, ..] = rest {
                    // CAST: A message has a few hundred pages.
                    let len = rest.len() as u32;
                    let array = rest.as_ptr().cast_mut();
                    // SAFETY: The array contains `len` addresses of valid pages, at least one. The
                    // callee writes nothing.
                    let count = unsafe { bindings::xprtrdma_contiguous_pages(array, len) } as usize;
                    // SAFETY: The callee has found that these pages lie one behind the other.
                    // `memory` keeps them.
                    unsafe { map_run(&mut self.mappings, &self.pd, dir, *first, count)? };
                    rest = rest.get(count..).unwrap_or(&[]);
                }
            }
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

    /// Returns the number of ranges with contiguous device addresses.
    pub(crate) fn count(&self) -> usize {
        self.mappings.len()
    }

    /// Returns the direction for which the pages are mapped.
    pub(crate) fn direction(&self) -> Direction {
        self.dir
    }

    /// Returns the protection domain whose device the pages are mapped for.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns an object that makes scatter/gather elements for the memory, from its first byte on.
    pub(crate) fn elements(&self) -> Elements<'_> {
        let offset = self.memory.as_ref().map_or(0, Mappable::offset);
        let mut elements = Elements {
            rest: &self.mappings,
            addr: 0,
            len: 0,
            lkey: self.pd.local_dma_lkey(),
        };
        // There is a byte at this offset, if there is memory.
        let _ = elements.skip(offset);
        elements
    }

    fn forget_mappings(&mut self) {
        let dev = self.pd.raw_device();
        while let Some(Mapping { addr, len }) = self.mappings.pop() {
            // SAFETY: By the type invariant these bytes are mapped. They are unmapped once.
            unsafe { bindings::xprtrdma_dma_unmap_pages(dev, addr, len, self.dir.raw()) };
        }
    }
}

/// Maps pages for the device of `pd`: in one piece, or in shorter pieces if the device or its
/// bounce buffers have no space for as much in one piece. Adds the mappings to `to`, even if a
/// later one fails. Returns `EIO` if not even one page can be mapped.
///
/// # Safety
///
/// `first` is the address of the first of `count` pages that lie one behind the other. They exist
/// until the mappings are undone.
unsafe fn map_run(
    to: &mut KVec<Mapping>,
    pd: &Pd,
    dir: Direction,
    first: *mut bindings::page,
    count: usize,
) -> Result {
    let (dev, mut most) = (pd.raw_device(), pd.max_entry() as usize);
    let all = count.checked_mul(PAGE_SIZE).ok_or(EINVAL)?;
    let mut offset = 0;
    while offset < all {
        // NO-OVERFLOW: `offset` is less than `all`.
        let len = all.wrapping_sub(offset).min(most);
        to.reserve(1, GFP_KERNEL)?;
        let mut addr = 0;
        // SAFETY: The device exists as long as `pd`. By the caller's contract there are these
        // whole pages.
        let is_mapped = unsafe {
            bindings::xprtrdma_dma_map_pages(dev, first, offset, len, dir.raw(), &mut addr)
        };
        if !is_mapped {
            if len <= PAGE_SIZE {
                return Err(EIO);
            }
            // Bounce buffers may be fragmented, so shorter pieces may still find space.
            most = (len / 2).max(PAGE_SIZE);
            // NO-OVERFLOW: A remainder is not greater than the number.
            most = most.wrapping_sub(most % PAGE_SIZE);
            continue;
        }
        // The push does not fail, because the vector has space.
        to.push(Mapping { addr, len }, GFP_KERNEL)?;
        // NO-OVERFLOW: The sum is at most `all`.
        offset = offset.wrapping_add(len);
    }
    Ok(())
}

/// Makes scatter/gather elements for parts of [`MappedPages`], in ascending order.
pub(crate) struct Elements<'a> {
    /// The mappings behind the current one.
    rest: &'a [Mapping],
    /// What is left of the current mapping.
    addr: u64,
    len: usize,
    lkey: u32,
}

impl Elements<'_> {
    /// Skips this number of bytes. Returns `None` if there are not as many.
    #[inline]
    pub(crate) fn skip(&mut self, mut count: usize) -> Option<()> {
        while count != 0 {
            // CAST: A transfer has a few megabytes.
            count = count.checked_sub(self.next(count)?.length as usize)?;
        }
        Some(())
    }

    /// Returns a scatter/gather element for the next bytes: at most `most` bytes, as far as their
    /// device addresses are contiguous. Returns `None` if that is no byte.
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
        // NO-OVERFLOW: `len` is at most what is left.
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
