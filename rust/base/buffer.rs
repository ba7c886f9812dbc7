// SPDX-License-Identifier: GPL-2.0

//! Memory that is passed on as an address ([`Buffer`], [`PageArray`], [`PageRefs`], [`PageList`]).

use core::{
    alloc::Layout,
    mem::ManuallyDrop,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings::page,
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Memory whose owner may pass on its address.
///
/// # Safety
///
/// [`Buffer::start`] is the address of [`Buffer::len`] initialised bytes. The bytes may be read and
/// written. They stay at this address until the value is dropped, even if the value is moved. No
/// method of this trait makes a reference to them, and only the value's owner uses them.
///
/// [`Buffer::memory`] is the address of memory that has the requested layout and does not overlap
/// with the bytes. The memory need not be initialised, and may be read and written. It stays at
/// this address, even if the value is moved, until [`Buffer::memory`] is called again or the value
/// is dropped. Only the value's owner uses the memory.
///
/// # Examples
///
/// ```
/// # use core::{alloc::Layout, ptr::NonNull};
/// # use kernel::prelude::*;
/// # use xprtrdma_base::buffer::{make_memory, Buffer};
/// /// A part of a message that was copied, and memory for its owner.
/// struct Copied(KVec<u8>, KVec<u64>);
///
/// // SAFETY: The bytes of a vector are initialised. They stay where they are if the vector is
/// // moved, and no method makes a reference to them. `make_memory` returns memory of the second
/// // vector, which no other method uses.
/// unsafe impl Buffer for Copied {
///     fn start(&self) -> NonNull<u8> {
///         NonNull::new(self.0.as_ptr().cast_mut()).unwrap_or(NonNull::dangling())
///     }
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn memory(&mut self, layout: Layout) -> Result<NonNull<u8>> {
///         make_memory(&mut self.1, layout)
///     }
/// }
/// ```
pub unsafe trait Buffer: Send {
    /// Returns the address of the first byte.
    fn start(&self) -> NonNull<u8>;

    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of memory with this layout, in which the owner may keep a value. May
    /// sleep.
    fn memory(&mut self, layout: Layout) -> Result<NonNull<u8>>;

    /// Drops the buffer. This method can be inlined, but the function that the compiler makes for a
    /// drop cannot.
    fn end(self)
    where
        Self: Sized,
    {
        drop(self);
    }
}

/// Makes the memory of `place` large enough for this layout, and returns its address. Allocates new
/// memory only if the old memory is too small. Returns `EINVAL` if the alignment of the layout is
/// larger than that of a `u64`. May sleep.
///
/// The memory stays at this address until `place` is changed or dropped, even if `place` is moved.
///
/// # Examples
///
/// ```
/// # use core::{alloc::Layout, ptr::NonNull};
/// # use kernel::prelude::*;
/// # use xprtrdma_base::buffer::make_memory;
/// /// Returns memory for two numbers.
/// fn for_two(place: &mut KVec<u64>) -> Result<NonNull<u8>> {
///     make_memory(place, Layout::new::<[u64; 2]>())
/// }
/// ```
#[inline(always)]
pub fn make_memory(place: &mut KVec<u64>, layout: Layout) -> Result<NonNull<u8>> {
    let words = layout.size().div_ceil(size_of::<u64>());
    if layout.align() > align_of::<u64>() {
        return Err(EINVAL);
    }
    if place.capacity() < words {
        replace(place, words)?;
    }
    // SAFETY: The pointer of a vector is not null.
    Ok(unsafe { NonNull::new_unchecked(place.as_mut_ptr()) }.cast())
}

/// Replaces the memory of `place` with new memory for this number of elements.
#[cold]
#[inline(never)]
fn replace(place: &mut KVec<u64>, words: usize) -> Result {
    *place = KVec::with_capacity(words, GFP_KERNEL)?;
    Ok(())
}

/// Memory in pages. The owner of the memory may pass on the array of page pointers.
///
/// # Safety
///
/// - [`PageArray::array`] is the address of an array of page pointers. These pages together hold
///   [`PageArray::len`] initialised bytes, at least one.
/// - After the pointers to these pages the array has one more element, because some readers load an
///   element before they know whether they need it. This element points to another page of the
///   value, or again to the last of these pages.
/// - The array and the pages stay where they are until the value is dropped, even if the value is
///   moved.
/// - The bytes may be read and written. No method of this trait makes a reference to them, and only
///   the value's owner uses them.
pub unsafe trait PageArray: Send {
    /// Returns the address of the array.
    fn array(&self) -> NonNull<*mut page>;

    /// Returns the address of the first byte, which is in the first page.
    fn first(&self) -> NonNull<u8>;

    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Returns whether there are no bytes; always false.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Up to this number of bytes, [`PageRefs::take`] takes only whole folios, so its references keep
/// no other pages allocated. A caller that limits the memory of its messages need not count
/// messages of at most this length.
pub const SMALL: usize = 2 * PAGE_SIZE;

/// Minimum number of pages for which [`PageRefs::take`] does not check the size of the folios. If
/// `take` takes at least 128 pages, the check allows folios with eight times as many pages: at
/// least 1024. With pages of 4 KiB, a folio of a file has at most 512 pages (2 MiB). Up to 512
/// consecutive pages of a file lie in at most two folios, which together have at most 1024 pages.
/// So the check would always succeed. Larger pages have larger folios, which are always checked.
const MANY: usize = match PAGE_SIZE {
    4096 => 128,
    _ => usize::MAX,
};

/// Read-only bytes in pages that other code uses as well, such as the cached pages of a file.
///
/// The value owns a reference to each page, and drops these references when it is dropped.
///
/// # Invariants
///
/// - Each element of `list` is the address of a page, to which the value has a reference.
/// - The bytes begin at `offset` in the first page and continue in the following pages. `offset` is
///   less than a page. There are `len` bytes, at least one, and the pages hold all of them.
///
/// # Examples
///
/// ```
/// # use kernel::bindings::page;
/// # use xprtrdma_base::buffer::PageRefs;
/// /// Returns whether the bytes are in one page.
/// fn is_small(refs: &PageRefs) -> bool {
///     let pages: &[*mut page] = refs.pages();
///     pages.len() == 1
/// }
/// ```
pub struct PageRefs {
    list: PageList,
    offset: usize,
    len: usize,
}

/// A list of page addresses. Its owner keeps the empty list, so that the list of the next pages can
/// use the same memory.
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::buffer::{PageList, PageRefs};
/// /// Drops the references to the pages, and keeps the memory of the list.
/// fn keep(refs: PageRefs, spare: &mut Option<PageList>) {
///     *spare = Some(refs.into_list());
/// }
/// ```
#[derive(Default)]
pub struct PageList(KVec<*mut page>);

// SAFETY: A reference to a page may be used and given up by any thread.
unsafe impl Send for PageList {}

impl PageRefs {
    /// Takes over the references to the pages that hold `len` bytes. The bytes begin `offset` bytes
    /// after the start of the array's first page. Stores the addresses of these pages in `list`, or
    /// in a new list if `list` is `None`. May sleep for memory.
    ///
    /// A reference to a page keeps the memory of its whole folio. So the function returns `E2BIG`
    /// if the folios together have too many pages: more than eight times as many as the function
    /// takes, or, for at most [`SMALL`] bytes, more than the function takes. After an error the
    /// caller still owns all references.
    ///
    /// # Safety
    ///
    /// `array` is valid for reading all elements that these bytes need. Each of these elements is
    /// the address of a page, and no other code writes to the array. If the function succeeds, the
    /// caller gives up one reference to each page that holds some of these bytes.
    #[inline]
    pub unsafe fn take(
        array: *const *mut page,
        offset: usize,
        len: usize,
        list: Option<PageList>,
    ) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let (skipped, offset) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
        let count = offset.checked_add(len).ok_or(EINVAL)?.div_ceil(PAGE_SIZE);
        let mut list = list.unwrap_or_default();
        list.0.clear();
        list.0.reserve(count, GFP_KERNEL)?;
        // SAFETY: By the caller's contract the array has at least `skipped` elements.
        let first = unsafe { array.add(skipped) };
        let place = list.0.spare_capacity_mut().as_mut_ptr().cast();
        // SAFETY: By the caller's contract the `count` elements from `first` on are valid, and no
        // other code writes to the array during the call. The list has space for them.
        unsafe { ptr::copy_nonoverlapping(first, place, count) };
        // SAFETY: These elements were written above.
        unsafe { list.0.inc_len(count) };
        // For at least `MANY` pages the check is not needed. The comment of `MANY` gives the
        // reason.
        if count < MANY {
            let most = match len > SMALL {
                // NO-OVERFLOW: `count` is the number of pages of a message.
                true => count.wrapping_mul(8),
                false => count,
            };
            let pages = list.0.as_mut_ptr();
            // CAST: The number of pages is small.
            // SAFETY: By the caller's contract the elements are addresses of pages, which exist
            // during the call.
            if !unsafe { bindings::xprtrdma_pages_hold_at_most(pages, count as u32, most) } {
                return Err(E2BIG);
            }
        }
        // INVARIANT: The caller's contract guarantees the references, and `count` pages hold the
        // `len` bytes.
        Ok(Self { list, offset, len })
    }

    /// Drops the references to the pages, and returns the list, which is now empty.
    #[inline]
    pub fn into_list(self) -> PageList {
        // Dropping a list costs a call of the allocator, even if the list has no memory. `take`
        // leaves such a list in `this`. Because of `ManuallyDrop`, that list is not dropped.
        let mut this = ManuallyDrop::new(self);
        this.put();
        core::mem::take(&mut this.list)
    }

    /// Drops the references to the pages.
    #[inline]
    fn put(&mut self) {
        let pages = &mut self.list.0;
        match pages.as_mut_slice() {
            [] => {}
            // SAFETY: By the type invariant this object owns the reference. The reference is not
            // used again, because the list is emptied below.
            [page] => unsafe { bindings::xprtrdma_put_page(*page) },
            // CAST: A message has a few hundred pages.
            // SAFETY: By the type invariant this object owns the references. The references are not
            // used again, because the list is emptied below.
            all => unsafe { bindings::xprtrdma_put_pages(all.as_mut_ptr(), all.len() as u32) },
        }
        pages.clear();
    }

    /// Returns the pages, in order. They stay valid as long as the value exists.
    pub fn pages(&self) -> &[*mut page] {
        &self.list.0
    }

    /// Returns the offset of the first byte in the first page.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes; always false.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for PageRefs {
    fn drop(&mut self) {
        self.put();
    }
}
