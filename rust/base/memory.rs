// SPDX-License-Identifier: GPL-2.0

//! How much memory the host has.

use core::ptr;

/// Returns the number of pages that the host has.
///
/// # Examples
///
/// ```
/// use xprtrdma_base::memory::host_pages;
///
/// assert!(host_pages() > 0);
/// ```
pub fn host_pages() -> usize {
    // SAFETY: One word, which the kernel updates when memory is added or removed; it is only read.
    let pages = unsafe { ptr::read_volatile(&raw const kernel::bindings::_totalram_pages.counter) };
    // CAST: The number is never negative.
    pages as usize
}
