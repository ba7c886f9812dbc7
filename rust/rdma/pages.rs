// SPDX-License-Identifier: GPL-2.0

//! Pages that this module owns and a device reads or writes ([`Pages`]).

use crate::{
    block::{
        Block,
        Run, //
    },
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
    PageRefs, //
};
use xprtrdma_bindings as bindings;

/// Memory in pages. Newly allocated pages are zeroed.
///
/// A page is freed when the last reference to it is dropped. So if other code took a reference to a
/// page, the page exists until that code drops its reference.
///
/// # Invariants
///
/// - `len` is not zero, and at most the number of bytes in the pages of `block`.
/// - `block` is `None` only while the value is dropped.
pub struct Pages {
    block: Option<KBox<Block>>,
    len: usize,
    /// The pool to which the pages return when they are no longer used. `None` means that the pages
    /// are then freed.
    home: Option<Arc<Pool>>,
}

// SAFETY: The type invariants guarantee that the pages contain the bytes. The arrays of pages do
// not change, and stay where they are if the value is moved. Methods that make references to the
// bytes take `&mut self`.
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

    /// Returns pages for `len` bytes. When the pages are dropped, they return to the pool `home`.
    /// The pages are zeroed, or contain old data from the same pool. Returns `EINVAL` if `len` is
    /// zero. May sleep.
    #[inline]
    pub fn of(home: &Arc<Pool>, len: usize) -> Result<Self> {
        let Some(block) = home.take(Self::count(len)) else {
            return Self::new_of(home, len);
        };
        // INVARIANT: The block has at least one page, and enough pages for the bytes.
        let pages = Self {
            block: Some(block),
            len,
            home: Some(home.clone()),
        };
        match len % PAGE_SIZE {
            0 => Ok(pages),
            _ => pages.with_clean_end(),
        }
    }

    /// Allocates pages for `len` bytes. When the pages are dropped, they return to the pool `home`.
    /// [`Pages::of`] calls this if the pool has no fitting pages.
    #[cold]
    fn new_of(home: &Arc<Pool>, len: usize) -> Result<Self> {
        let mut pages = Self::new(len)?;
        pages.home = Some(home.clone());
        Ok(pages)
    }

    /// Zeroes the bytes of the last page that are after the bytes of this object.
    #[inline(never)]
    fn with_clean_end(mut self) -> Result<Self> {
        let (len, end) = (self.len, Self::count(self.len).saturating_mul(PAGE_SIZE));
        // INVARIANT: The pages contain `end` bytes. `len` is restored below.
        self.len = end;
        self.change(len, end, |_, rest| {
            rest.fill(0);
            Ok(())
        })?;
        self.len = len;
        Ok(self)
    }

    /// Returns the number of pages that `len` bytes need.
    #[inline]
    pub(crate) fn count(len: usize) -> usize {
        len.div_ceil(PAGE_SIZE)
    }

    /// Splits the bytes from `at` to `end` at page boundaries, and calls `f` for each part, in
    /// order. `f` receives the offset of the part from `at`, and the bytes of the part. Returns
    /// `EINVAL` if `at` is greater than `end`, or if the pages have fewer than `end` bytes.
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
            // NO-OVERFLOW: `offset` is less than the page size, and `from` is less than `end`.
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

    /// Returns the pages that contain the bytes of this object, beginning at the page with index
    /// `index`.
    pub(crate) fn raw_from(&self, index: usize) -> &[*mut bindings::page] {
        // Only the first pages contain bytes of this object.
        let used = self.raw().get(..Self::count(self.len));
        used.and_then(|used| used.get(index..)).unwrap_or(&[])
    }

    /// Moves the pages out of an allocation that nothing else refers to.
    pub(crate) fn from_unique(mut unique: Pin<UniqueArc<Self>>) -> Self {
        // INVARIANT: This object has no pages. It replaces the moved object in the allocation, and
        // is dropped with the allocation at the end of this function.
        let emptied = Self {
            block: None,
            len: 0,
            home: None,
        };
        core::mem::replace(&mut *unique, emptied)
    }

    /// Returns the runs of contiguous pages that were allocated.
    #[inline]
    pub(crate) fn runs(&self) -> &[Run] {
        self.block.as_ref().map_or(&[], |block| &block.runs)
    }

    /// Returns the addresses of the pages. The last two entries are both the address of the last
    /// page, see [`Block`].
    #[inline]
    pub(crate) fn raw(&self) -> &[*mut bindings::page] {
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
/// /// Uses the shared pages, if there are any. Otherwise allocates pages for a copy.
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
    /// Pages that other code uses, too. The device only reads these pages.
    Shared(PageRefs),
}

impl Mappable {
    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Own(pages) => pages.len,
            Self::Shared(refs) => refs.len(),
        }
    }
}

impl Drop for Pages {
    #[inline]
    fn drop(&mut self) {
        if let (Some(home), Some(block)) = (self.home.take(), self.block.take()) {
            Pool::put(home, block);
        }
    }
}
