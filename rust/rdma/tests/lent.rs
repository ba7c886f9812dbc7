// SPDX-License-Identifier: GPL-2.0

//! Memory that a test passes to regions.

use kernel::{
    bindings::page,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};
use xprtrdma_base::lend::{
    Lender,
    Loan,
    Piece, //
};
use xprtrdma_bindings as bindings;

/// Number of pages that [`Lent::new`] allocates. The pages are physically contiguous.
pub(super) const PAGES: usize = 8;

/// Pieces of physically contiguous memory. Each piece is described by the offset of its first byte
/// and its length.
pub(super) struct Lent {
    mem: KVec<u8>,
    /// The pages of the memory.
    pages: KVec<*mut page>,
    /// Whether each piece is described as an array of pages.
    arrays: bool,
    pieces: KVec<(usize, usize)>,
    given_back: Arc<Atomic<u32>>,
}

impl Lent {
    /// Allocates memory in which each byte contains its offset, modulo 251.
    pub(super) fn new(pieces: &[(usize, usize)]) -> Result<Self> {
        Self::of(PAGES, pieces)
    }

    /// Allocates `count` pages in which each byte contains its offset, modulo 251.
    pub(super) fn of(count: usize, pieces: &[(usize, usize)]) -> Result<Self> {
        let mut mem = KVec::from_elem(0u8, count * PAGE_SIZE, GFP_KERNEL)?;
        for (i, byte) in mem.iter_mut().enumerate() {
            // CAST: The remainder is less than 251.
            *byte = (i % 251) as u8;
        }
        let mut pages = KVec::new();
        for i in 0..count {
            // SAFETY: The page allocator returned this memory.
            let page =
                unsafe { bindings::xprtrdma_virt_to_page(mem.as_ptr().add(i * PAGE_SIZE).cast()) };
            pages.push(page, GFP_KERNEL)?;
        }
        let mut list = KVec::new();
        list.extend_from_slice(pieces, GFP_KERNEL)?;
        Ok(Self {
            mem,
            pages,
            arrays: false,
            pieces: list,
            given_back: Arc::new(Atomic::new(0), GFP_KERNEL)?,
        })
    }

    /// Makes the object describe each piece as an array of pages.
    pub(super) fn as_arrays(mut self) -> Self {
        self.arrays = true;
        self
    }

    /// Returns a counter. It is 0 until the memory is returned to its owner, and 1 afterwards.
    pub(super) fn given_back(&self) -> Arc<Atomic<u32>> {
        self.given_back.clone()
    }

    /// Returns the bytes of the whole memory. While a test reads the bytes, no device can access
    /// the memory.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.mem
    }
}

// SAFETY: The pages belong to memory that this object owns.
unsafe impl Send for Lent {}

impl Drop for Lent {
    fn drop(&mut self) {
        self.given_back.fetch_add(1, Relaxed);
    }
}

impl Lent {
    /// Returns `len` bytes that begin at the offset `at`, or `None` if `len` is zero or the memory
    /// is too short.
    fn piece(&self, at: usize, len: usize) -> Option<Piece<'_>> {
        let (from, first) = (at / PAGE_SIZE, at % PAGE_SIZE);
        let named = match self.arrays {
            true => (first + len).div_ceil(PAGE_SIZE),
            false => 1,
        };
        let (&page, more) = self.pages.get(from..from + named)?.split_first()?;
        (len != 0).then_some(Piece {
            page,
            more,
            first,
            len,
        })
    }
}

// SAFETY: The pieces are parts of memory that this object owns. The tests do not read this
// memory while a device can access it.
unsafe impl Loan for Lent {
    type Lender = Self;

    fn len(&self) -> usize {
        self.pieces.iter().map(|(_, len)| len).sum()
    }

    fn pieces(&self, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
        let mut skip = start;
        for &(first, len) in &self.pieces {
            let skipped = skip.min(len);
            skip -= skipped;
            if let Some(piece) = self.piece(first + skipped, len - skipped) {
                if !take(piece) {
                    return;
                }
            }
        }
    }

    fn only_piece(&self) -> Option<Piece<'_>> {
        match &self.pieces[..] {
            &[(first, len)] => self.piece(first, len),
            _ => None,
        }
    }

    fn into_lender(self) -> Self {
        self
    }
}

impl Lender for Lent {}
