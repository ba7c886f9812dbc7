// SPDX-License-Identifier: GPL-2.0

//! Pages of our own with their addresses ([`Block`]).

use kernel::{
    page::Page,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Pages of ours with their addresses.
///
/// # Invariants
///
/// `raw` are the addresses of `pages`, in that order, whose bytes are initialised. The last one is
/// there twice.
pub(crate) struct Block {
    pub(crate) raw: KVec<*mut bindings::page>,
    pages: KVec<Page>,
}

// SAFETY: The addresses are those of pages that the value owns.
unsafe impl Send for Block {}
// SAFETY: `&Block` tells addresses and numbers only.
unsafe impl Sync for Block {}

impl Block {
    /// None.
    pub(crate) const NONE: Self = Self {
        raw: KVec::new(),
        pages: KVec::new(),
    };

    /// Allocates pages, zeroed. `EINVAL` for none. May sleep.
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
        // INVARIANT: As many as were asked for, each zeroed, and the last one again.
        Ok(Self { raw, pages })
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether nothing but the value has a reference to one of the pages.
    pub(crate) fn is_unshared(&self) -> bool {
        // CAST: A message has a few hundred pages.
        let count = self.pages.len() as u32;
        let raw = self.raw.as_ptr().cast_mut();
        // SAFETY: By the type invariant there are as many, which are valid; nothing is written.
        unsafe { bindings::xprtrdma_pages_are_unshared(raw, count) }
    }
}
