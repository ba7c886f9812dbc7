// SPDX-License-Identifier: GPL-2.0

//! The memory of one RPC message ([`XdrBuf`]): a head, an array of pages, a tail.

use core::{
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings::page,
    page::{
        BorrowedPage,
        PAGE_SIZE, //
    },
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// The parts of a message that can be lent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The pages alone: a data item that is reduced.
    Pages,
    /// Head, pages and tail: the whole message.
    Whole,
}

/// A view of a `struct xdr_buf`.
///
/// # Invariants
///
/// The structure, its vectors and its pages stay valid and unchanged in shape while the view
/// exists; this is so between encoding and release of a request, which is when the views are made.
#[derive(Clone, Copy)]
pub struct XdrBuf<'a>(&'a bindings::xdr_buf);

impl<'a> XdrBuf<'a> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn from_raw(raw: *const bindings::xdr_buf) -> Self {
        // SAFETY: By the caller's contract.
        Self(unsafe { &*raw })
    }

    /// Octets of the head: exact in a message to be sent, the most that a reply's head may have.
    #[inline]
    pub fn head_len(&self) -> usize {
        self.0.head[0].iov_len
    }

    /// Octets in the pages (capacity, in a reply).
    #[inline]
    pub fn page_len(&self) -> usize {
        self.0.page_len as usize
    }

    /// Octets of the tail (capacity, in a reply).
    #[inline]
    pub fn tail_len(&self) -> usize {
        self.0.tail[0].iov_len
    }

    /// Octets of the whole message to be sent.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len as usize
    }

    /// Offset of the head in its page.
    #[inline]
    pub fn head_offset(&self) -> usize {
        self.0.head[0].iov_base.addr() % PAGE_SIZE
    }

    /// Offset of the page data in its first page.
    #[inline]
    pub fn page_offset(&self) -> usize {
        self.0.page_base as usize % PAGE_SIZE
    }

    /// Offset of the tail in its page.
    #[inline]
    pub fn tail_offset(&self) -> usize {
        self.0.tail[0].iov_base.addr() % PAGE_SIZE
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Octets that a reply can have at most.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.buflen as usize
    }

    /// The pages are the data item of a READ.
    #[inline]
    pub fn is_read_data(&self) -> bool {
        self.0.flags & bindings::XDRBUF_READ != 0
    }

    /// The pages are the data item of a WRITE or a symbolic link.
    #[inline]
    pub fn is_write_data(&self) -> bool {
        self.0.flags & bindings::XDRBUF_WRITE != 0
    }

    /// Copies the octets `from..from + out.len()` of the message. Does not sleep.
    #[inline]
    pub fn read(&self, from: usize, out: &mut [u8]) -> Result {
        if let Some(end) = from.checked_add(out.len()) {
            if end <= self.head_len() {
                // SAFETY: The head is valid for `head_len` octets and `out` is somebody else's
                // memory.
                let head = unsafe {
                    slice::from_raw_parts(self.0.head[0].iov_base.cast::<u8>(), self.head_len())
                };
                out.copy_from_slice(head.get(from..end).ok_or(EINVAL)?);
                return Ok(());
            }
        }
        // SAFETY: The view is valid; the callee checks the range and writes `out.len()` octets.
        let err = unsafe {
            bindings::read_bytes_from_xdr_buf(
                self.0,
                u32::try_from(from)?,
                out.as_mut_ptr().cast(),
                u32::try_from(out.len())?,
            )
        };
        kernel::error::to_result(err)
    }

    /// Octets in a part.
    pub(crate) fn part_len(&self, part: Part) -> usize {
        match part {
            Part::Pages => self.page_len(),
            Part::Whole => self.head_len() + self.page_len() + self.tail_len(),
        }
    }

    /// See [`xprtrdma_rdma::dma::Lender::pieces`].
    #[inline]
    pub(crate) fn pieces(&self, part: Part, start: usize) -> Pieces<'a> {
        let mut skip = start;
        let nothing = (core::ptr::null_mut(), 0);
        let head = match part {
            Part::Pages => nothing,
            Part::Whole => rest_of(&self.0.head[0], &mut skip),
        };
        let skipped = core::cmp::min(skip, self.page_len());
        skip -= skipped;
        let base = self.0.page_base as usize;
        Pieces {
            buf: self.0,
            head,
            at: base + skipped,
            end: base + self.page_len(),
            tail: match part {
                Part::Pages => nothing,
                Part::Whole => rest_of(&self.0.tail[0], &mut skip),
            },
        }
    }
}

/// What is left of a vector after skipping `skip` octets: (address, octets).
fn rest_of(vector: &kernel::bindings::kvec, skip: &mut usize) -> (*mut u8, usize) {
    let skipped = core::cmp::min(*skip, vector.iov_len);
    *skip -= skipped;
    (
        vector.iov_base.cast::<u8>().wrapping_add(skipped),
        vector.iov_len - skipped,
    )
}

/// The pieces of a message; see [`XdrBuf::pieces`].
///
/// # Invariants
///
/// `head` and `tail` are parts of the vectors of `buf`; `at..end`, unless empty, is part of its pages.
pub(crate) struct Pieces<'a> {
    buf: &'a bindings::xdr_buf,
    head: (*mut u8, usize),
    at: usize,
    end: usize,
    tail: (*mut u8, usize),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = (BorrowedPage<'a>, usize, usize);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at < self.end && self.head.1 == 0 {
            return self.of_pages();
        }
        let vector = if self.head.1 != 0 {
            &mut self.head
        } else {
            &mut self.tail
        };
        let (addr, len) = *vector;
        if len == 0 {
            return None;
        }
        vector.1 = 0;
        // SAFETY: The vectors of an RPC message lie in the linear mapping: they are allocated by
        // `buf_alloc`, or are parts of pages that the security flavour allocated.
        let page: *mut page = unsafe { bindings::xprtrdma_virt_to_page(addr.cast()) };
        // SAFETY: As above; the memory stays valid while the view exists.
        let page = unsafe { BorrowedPage::from_raw(NonNull::new(page)?) };
        Some((page, addr.addr() % PAGE_SIZE, len))
    }
}

impl<'a> Pieces<'a> {
    /// The next piece of the pages, of which some are left.
    #[inline]
    fn of_pages(&mut self) -> Option<(BorrowedPage<'a>, usize, usize)> {
        let start = self.at;
        // SAFETY: By the type invariant the array has an entry for each page of the range.
        let mut entry = unsafe { self.buf.pages.add(start / PAGE_SIZE) };
        // SAFETY: As above.
        let first = unsafe { *entry };
        let mut next = first.wrapping_add(1);
        // NO-OVERFLOW: Offsets within a message, which is shorter than 4 GiB.
        let mut stop = (start | (PAGE_SIZE - 1)).wrapping_add(1);
        // Pages that follow each other in the memory map are one piece.
        while stop < self.end {
            entry = entry.wrapping_add(1);
            // SAFETY: As above.
            if unsafe { *entry } != next {
                break;
            }
            next = next.wrapping_add(1);
            stop = stop.wrapping_add(PAGE_SIZE);
        }
        self.at = stop;
        let len = core::cmp::min(stop, self.end).wrapping_sub(start);
        // A sparse array was filled in before the request was queued.
        // SAFETY: The page stays valid while the view exists.
        let page = unsafe { BorrowedPage::from_raw(NonNull::new(first)?) };
        Some((page, start % PAGE_SIZE, len))
    }
}
