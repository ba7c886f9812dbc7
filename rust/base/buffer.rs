// SPDX-License-Identifier: GPL-2.0

//! Memory that is passed on as an address ([`Buffer`], [`PageArray`], [`PageRefs`], [`PageList`]).

use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings::page,
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Memory that its owner may pass on as an address.
///
/// # Safety
///
/// [`Buffer::start`] is the address of [`Buffer::len`] initialised bytes. They may be read and
/// written, and stay where they are until the value is dropped, also if the value is moved. No
/// method of this trait makes a reference to them, and nothing but the value's owner uses them.
///
/// # Examples
///
/// ```
/// # use core::ptr::NonNull;
/// # use kernel::prelude::*;
/// # use xprtrdma_base::buffer::Buffer;
/// /// A part of a message that was copied.
/// struct Copied(KVec<u8>);
///
/// // SAFETY: The bytes of a vector are initialised. They stay where they are if the vector is
/// // moved, and no method makes a reference to them.
/// unsafe impl Buffer for Copied {
///     fn start(&self) -> NonNull<u8> {
///         NonNull::new(self.0.as_ptr().cast_mut()).unwrap_or(NonNull::dangling())
///     }
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
/// }
/// ```
pub unsafe trait Buffer: Send {
    /// Where the memory begins.
    fn start(&self) -> NonNull<u8>;

    /// Bytes of the memory.
    fn len(&self) -> usize;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory in pages that its owner may pass on as an array of them.
///
/// # Safety
///
/// [`PageArray::array`] is the address of an array of pages, which together hold
/// [`PageArray::len`] initialised bytes, at least one. Behind their last page the array has another
/// of the value, or the same, for readers that look at an element before they know that they need
/// it. Array and pages stay where they are until the value is dropped, also if it is moved. The
/// bytes may be read and written. No method of this trait makes a reference to them, and nothing
/// but the value's owner uses them.
pub unsafe trait PageArray: Send {
    /// Where the array begins.
    fn array(&self) -> NonNull<*mut page>;

    /// Where the first page's bytes begin.
    fn first(&self) -> NonNull<u8>;

    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there are no bytes; always false.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Number of pages that are taken without a look at their folios, which hold two megabytes at most.
const MANY: usize = 64;

/// Bytes in pages that others use as well, such as those of a file: for reading alone.
///
/// The value has a reference to each page, and gives it up when it is dropped.
///
/// # Invariants
///
/// - Each element of `list` is the address of a page, to which the value has a reference.
/// - The bytes begin at `offset` in the first page, which is less than a page, and go on in the
///   pages behind it. There are `len` of them, at least one, and the pages have as many.
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

/// The memory for a list of addresses of pages. It is empty while its owner has it, and is used
/// again.
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::buffer::{PageList, PageRefs};
/// /// Drops the references to the pages, and keeps the memory of the list.
/// fn keep(refs: PageRefs, spare: &mut PageList) {
///     *spare = refs.into_list();
/// }
/// ```
#[derive(Default)]
pub struct PageList(KVec<*mut page>);

// SAFETY: A reference to a page may be used and given up by any thread.
unsafe impl Send for PageList {}

impl PageRefs {
    /// Takes the references of an array of pages: `len` bytes that begin at `offset` of the array.
    /// Their addresses go to the memory of `list`. An error: nothing was taken. `E2BIG`:
    /// the pages are parts of folios with more than eight times as many pages. A reference to a
    /// page keeps the memory of its whole folio. May sleep for memory.
    ///
    /// # Safety
    ///
    /// `array` is valid for reading as many elements as have these bytes, each the address of a
    /// page, and nothing else writes it. If this succeeds, the caller gives up one reference to
    /// each page that has such bytes.
    pub unsafe fn take(
        array: *const *mut page,
        offset: usize,
        len: usize,
        list: &mut PageList,
    ) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let (skipped, offset) = (offset / PAGE_SIZE, offset % PAGE_SIZE);
        let count = offset.checked_add(len).ok_or(EINVAL)?.div_ceil(PAGE_SIZE);
        list.0.clear();
        // SAFETY: By the caller's contract there are as many elements in front.
        let first = unsafe { array.add(skipped) };
        // SAFETY: By the caller's contract; nothing writes the array during the call.
        let all = unsafe { slice::from_raw_parts(first, count) };
        list.0.extend_from_slice(all, GFP_KERNEL)?;
        // More pages than that are a large part of their folios in any case.
        if count < MANY {
            // CAST: The number is small.
            let len = count as u32;
            // SAFETY: By the caller's contract these are pages, which exist during the call.
            if !unsafe { bindings::xprtrdma_pages_hold_little(list.0.as_mut_ptr(), len) } {
                return Err(E2BIG);
            }
        }
        let list = core::mem::take(list);
        // INVARIANT: By the caller's contract, and `count` pages have that many bytes.
        Ok(Self { list, offset, len })
    }

    /// Returns the empty list. The references are given up.
    pub fn into_list(mut self) -> PageList {
        self.put();
        core::mem::take(&mut self.list)
    }

    /// Drops the references.
    fn put(&mut self) {
        let pages = &mut self.list.0;
        // CAST: A message has a few hundred pages.
        let count = pages.len() as u32;
        if count != 0 {
            // SAFETY: By the type invariant the references are ours. They are not used again: the
            // list is emptied.
            unsafe { bindings::xprtrdma_put_pages(pages.as_mut_ptr(), count) };
            pages.clear();
        }
    }

    /// Returns the pages, in order. They are valid as long as the value.
    pub fn pages(&self) -> &[*mut page] {
        &self.list.0
    }

    /// Returns where the bytes begin in the first page.
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
