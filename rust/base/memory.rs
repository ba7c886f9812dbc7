// SPDX-License-Identifier: GPL-2.0

//! The amount of memory of the host.

use core::ptr;

/// Returns the host's memory size in pages.
///
/// # Examples
///
/// ```
/// use xprtrdma_base::memory::host_pages;
///
/// assert!(host_pages() > 0);
/// ```
pub fn host_pages() -> usize {
    // SAFETY: The counter is a single word. The kernel updates it when memory is added or removed,
    // and this code only reads it.
    let pages = unsafe { ptr::read_volatile(&raw const kernel::bindings::_totalram_pages.counter) };
    // CAST: The number is never negative.
    pages as usize
}
