// SPDX-License-Identifier: GPL-2.0

//! Pages that this module owns, with an array of their addresses ([`Block`]).

use kernel::{
    page::Page,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Pages that this module owns, with an array of their addresses.
///
/// # Invariants
///
/// `raw` contains the addresses of `pages` in the same order, and then the last address once more.
/// The bytes of the pages are initialised.
pub(crate) struct Block {
    pub(crate) raw: KVec<*mut bindings::page>,
    pages: KVec<Page>,
}

// SAFETY: The addresses are those of pages that the value owns.
unsafe impl Send for Block {}
// SAFETY: A `&Block` only returns addresses and numbers.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates `count` zeroed pages. Returns `EINVAL` if `count` is zero. May sleep.
    pub(crate) fn new(count: usize) -> Result<Self> {
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        let mut raw = KVec::with_capacity(count.saturating_add(1), GFP_KERNEL)?;
        for _ in 0..count {
            let page = Page::alloc_page(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN)?;
            raw.push(page.as_ptr(), GFP_KERNEL)?;
            pages.push(page, GFP_KERNEL)?;
        }
        let last = raw.last().copied().ok_or(EINVAL)?;
        raw.push(last, GFP_KERNEL)?;
        // INVARIANT: The loop above added `count` zeroed pages, and the address of the last page
        // was added twice.
        Ok(Self { raw, pages })
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether this object holds the only reference to each page.
    pub(crate) fn is_unshared(&self) -> bool {
        // CAST: A message has a few hundred pages.
        let count = self.pages.len() as u32;
        let raw = self.raw.as_ptr().cast_mut();
        // SAFETY: By the type invariant `raw` contains `count` addresses of valid pages. The callee
        // writes nothing.
        unsafe { bindings::xprtrdma_pages_are_unshared(raw, count) }
    }
}
