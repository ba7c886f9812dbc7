// SPDX-License-Identifier: GPL-2.0

//! Memory that a test lends to regions.

use crate::dma::Lender;
use core::ptr::NonNull;
use kernel::{
    page::{
        BorrowedPage,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use xprtrdma_bindings as bindings;

/// Pages of the memory behind a [`Lent`]; they follow each other physically.
pub(super) const PAGES: usize = 8;

/// Some pieces, each (first octet, octets), of a memory of [`PAGES`] pages.
pub(super) struct Lent {
    mem: KVec<u8>,
    pieces: KVec<(usize, usize)>,
    given_back: Arc<Atomic<u32>>,
}

impl Lent {
    /// Allocates memory that holds each octet's number, modulo 251.
    pub(super) fn new(pieces: &[(usize, usize)]) -> Result<Self> {
        let mut mem = KVec::from_elem(0u8, PAGES * PAGE_SIZE, GFP_KERNEL)?;
        for (i, octet) in mem.iter_mut().enumerate() {
            // CAST: Less than 251.
            *octet = (i % 251) as u8;
        }
        let mut list = KVec::new();
        list.extend_from_slice(pieces, GFP_KERNEL)?;
        Ok(Self {
            mem,
            pieces: list,
            given_back: Arc::new(Atomic::new(0), GFP_KERNEL)?,
        })
    }

    /// Counts how often the memory came back to its owner: 0 or 1.
    pub(super) fn given_back(&self) -> Arc<Atomic<u32>> {
        self.given_back.clone()
    }

    /// The octets of the whole memory. Nothing is exposed while a test looks.
    pub(super) fn octets(&self) -> &[u8] {
        &self.mem
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.given_back.fetch_add(1, Relaxed);
    }
}

// SAFETY: The pieces are in memory that is owned, and only looked at while nothing is exposed.
unsafe impl Lender for Lent {
    fn len(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    fn pieces(&self, start: usize) -> impl Iterator<Item = (BorrowedPage<'_>, usize, usize)> {
        let mut skip = start;
        self.pieces.iter().filter_map(move |&(first, len)| {
            let skipped = skip.min(len);
            skip -= skipped;
            if skipped == len {
                return None;
            }
            let at = self.mem.as_ptr().wrapping_add(first + skipped);
            // SAFETY: The piece lies within memory from the slab or page allocator.
            let page = unsafe { bindings::xprtrdma_virt_to_page(at.cast()) };
            // SAFETY: The memory is owned, so its pages stay.
            let page = unsafe { BorrowedPage::from_raw(NonNull::new(page)?) };
            Some((page, at.addr() % PAGE_SIZE, len - skipped))
        })
    }
}
