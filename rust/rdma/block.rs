// SPDX-License-Identifier: GPL-2.0

//! Pages that this module owns, with an array of their addresses ([`Block`]).

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Order of the largest allocation: 256 pages.
const MOST_ORDER: u32 = 8;

/// Pages that were allocated in one piece, with one common reference count.
///
/// # Invariants
///
/// `first` is the address of the first of `count` contiguous pages. The value owns a reference to
/// these pages. `count` is not zero.
pub(crate) struct Run {
    first: *mut bindings::page,
    count: usize,
}

impl Run {
    /// Allocates 2^`order` zeroed pages in one piece. May sleep.
    fn new(order: u32) -> Option<Self> {
        // SAFETY: The callee has no requirements.
        let first = unsafe { bindings::xprtrdma_alloc_pages(order) };
        if first.is_null() {
            return None;
        }
        // INVARIANT: The callee has allocated this number of pages in one piece.
        Some(Self {
            first,
            count: 1 << order,
        })
    }

    /// Returns the address of the first page.
    #[inline]
    pub(crate) fn first(&self) -> *mut bindings::page {
        self.first
    }

    /// Returns the number of bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        // NO-OVERFLOW: The pages exist in memory, so their length in bytes fits into a `usize`.
        self.count.wrapping_mul(PAGE_SIZE)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the value owns this reference.
        unsafe { bindings::xprtrdma_put_page(self.first) };
    }
}

/// Pages that this module owns, with an array of their addresses.
///
/// The pages are allocated in contiguous pieces, each as long as the free memory allows. So the
/// work for each transfer depends on the number of pieces, and not on the number of pages.
///
/// # Invariants
///
/// `raw` contains the addresses of the pages of `runs` in the same order, and then the address of
/// the last page once more. The bytes of the pages are initialised.
pub(crate) struct Block {
    pub(crate) raw: KVec<*mut bindings::page>,
    pub(crate) runs: KVec<Run>,
}

// SAFETY: The addresses are those of pages that the value owns.
unsafe impl Send for Block {}
// SAFETY: The methods of a `&Block` only return addresses and numbers.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates `count` zeroed pages. Returns `EINVAL` if `count` is zero. May sleep.
    pub(crate) fn new(count: usize) -> Result<KBox<Self>> {
        let mut raw = KVec::with_capacity(count.saturating_add(1), GFP_KERNEL)?;
        let mut runs = KVec::new();
        let mut most = MOST_ORDER;
        while let Some(order) = count.saturating_sub(raw.len()).checked_ilog2() {
            let order = order.min(most);
            let Some(run) = Run::new(order) else {
                // If the allocator has no contiguous memory of this length, this piece and all
                // later pieces are shorter.
                most = order.checked_sub(1).ok_or(ENOMEM)?;
                continue;
            };
            for index in 0..run.count {
                // CAST: The index is less than 2^`MOST_ORDER`.
                // SAFETY: The run has a page with this index.
                let page = unsafe { bindings::xprtrdma_next_page(run.first, index as u32) };
                raw.push(page, GFP_KERNEL)?;
            }
            runs.push(run, GFP_KERNEL)?;
        }
        let last = raw.last().copied().ok_or(EINVAL)?;
        raw.push(last, GFP_KERNEL)?;
        // INVARIANT: The loop above added `count` zeroed pages, and the address of the last page
        // was added twice.
        Ok(KBox::new(Self { raw, runs }, GFP_KERNEL)?)
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        // NO-OVERFLOW: By the type invariant the list contains the address of the last page twice,
        // so it is not empty.
        self.raw.len().wrapping_sub(1)
    }

    /// Returns whether this object holds the only reference to each page.
    pub(crate) fn is_unshared(&self) -> bool {
        self.runs.iter().all(|run| {
            // SAFETY: By the type invariant of `Run` the page is valid.
            unsafe { bindings::xprtrdma_page_is_unshared(run.first) }
        })
    }
}
