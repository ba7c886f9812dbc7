// SPDX-License-Identifier: GPL-2.0

//! Memory that is passed on as an address ([`Buffer`], [`PageArray`]).

use core::ptr::NonNull;
use kernel::bindings::page;

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
/// [`PageArray::len`] initialised bytes, at least one. Behind the last page the array has it once
/// more, for readers that look at an element before they know that they need it. Array and pages
/// stay where they are until the value is dropped, also if it is moved. The bytes may be read and
/// written. No method of this trait makes a reference to them, and nothing but the value's owner
/// uses them.
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
