// SPDX-License-Identifier: GPL-2.0

//! A message to be sent ([`Encoded`]), and a reply whose pages may be taken ([`Reply`]).

use core::ops::Range;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::buffer::{
    PageList,
    PageRefs, //
};
use xprtrdma_bindings as bindings;

/// A reply of the RPC server, which [`Service::reply`](crate::service::Service::reply) borrows.
///
/// # Invariants
///
/// - `message` is the reply in `request`, and fulfils the invariant of [`Encoded`]. `request`
///   belongs to the current thread. The middle part of the message is in pages. The head and the
///   tail are not in the pages of the middle part.
/// - `taken` is a range of indices in the page array of the middle part. The elements in this range
///   are also elements of the thread's own page array. The references to their pages were passed to
///   another object. If `taken` is not empty, no code uses the middle part.
pub struct Reply<'a> {
    message: Encoded<'a>,
    request: *mut bindings::svc_rqst,
    taken: Range<usize>,
}

impl<'a> Reply<'a> {
    /// # Safety
    ///
    /// The caller is the thread to which `request` belongs. The reply in `request` is complete.
    /// During `'a` the thread changes neither the reply nor the thread's array of pages.
    pub(crate) unsafe fn of(request: *mut bindings::svc_rqst) -> Self {
        // SAFETY: By this function's contract the reply is complete and does not change.
        let message = unsafe { Encoded::from_raw(&(*request).rq_res) };
        // INVARIANT: This function's contract guarantees the invariant on `message` and `request`.
        // No page was taken yet.
        Self {
            message,
            request,
            taken: 0..0,
        }
    }

    /// Returns the length of the message in bytes.
    pub fn len(&self) -> u32 {
        self.message.len()
    }

    /// Returns true if the message is empty. A complete RPC reply is never empty.
    pub fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// Returns whether at least one of these bytes is in the middle part of the message. The middle
    /// part is in pages.
    #[inline]
    pub fn is_in_pages(&self, from: u32, len: u32) -> bool {
        let (begin, end) = self.middle();
        len != 0 && from < end && from.saturating_add(len) > begin
    }

    /// Returns whether these bytes are exactly the middle part of the message.
    #[inline]
    pub fn is_middle(&self, from: u32, len: u32) -> bool {
        self.middle() == (from, from.saturating_add(len))
    }

    /// Copies bytes of the message, from offset `from` on. Returns `EINVAL` if the message is too
    /// short, or if the pages of these bytes were taken. Does not sleep.
    #[inline]
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        // The head is never in the pages that `take_pages` and `take_middle` take.
        match self.message.is_in_head(from, to.len()) {
            true => self.message.copy(from, to),
            false => self.copy_from_parts(from, to),
        }
    }

    /// Copies bytes of which at least one is outside the head; see [`Reply::copy`].
    #[inline(never)]
    fn copy_from_parts(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        if !self.taken.is_empty() && self.is_in_pages(from, len) {
            return Err(EINVAL);
        }
        self.message.copy_from_parts(from, to)
    }

    /// Returns the 32-bit number at offset `at`. The message contains the number in network byte
    /// order. Returns `None` if the message is too short, or if the pages of these bytes were
    /// taken. Does not sleep.
    #[inline]
    pub fn word(&self, at: u32) -> Option<u32> {
        let mut word = [0; 4];
        self.copy(at, &mut word).ok()?;
        Some(u32::from_be_bytes(word))
    }

    /// Takes over the pages of `len` bytes from offset `from` on. These bytes must be in the middle
    /// part of the message. Stores the addresses of the pages in `list`, or in a new list if `list`
    /// is `None`. Afterwards no byte of the middle part can be copied. Returns `None` if the pages
    /// cannot be taken. May sleep for memory.
    #[inline(never)]
    pub fn take_pages(&mut self, from: u32, len: u32, list: Option<PageList>) -> Option<PageRefs> {
        let (begin, end) = self.middle();
        if from < begin || from.checked_add(len)? > end {
            return None;
        }
        self.take(from.checked_sub(begin)?, len, list)
    }

    /// Does what [`Reply::take_pages`] does, for all bytes of the middle part.
    #[inline]
    pub fn take_middle(&mut self, list: Option<PageList>) -> Option<PageRefs> {
        self.take(0, self.message.0.page_len, list)
    }

    /// Does what [`Reply::take_pages`] does, for `len` bytes from offset `skip` of the middle part
    /// on. The caller must make sure that these bytes are in the middle part.
    #[inline(always)]
    fn take(&mut self, skip: u32, len: u32, list: Option<PageList>) -> Option<PageRefs> {
        if !self.taken.is_empty() {
            return None;
        }
        let raw = self.message.0;
        // SAFETY: By the type invariant the request belongs to the current thread.
        let (first, next) = unsafe { ((*self.request).rq_respages, (*self.request).rq_next_page) };
        // The thread owns references only to the pages in its own array, so only these pages can be
        // taken. The first page of the array is not taken, and must contain the head and the tail
        // of the message.
        let (first, next, array) = (first.addr(), next.addr(), raw.pages.addr());
        let offset = (raw.page_base as usize).checked_add(skip as usize)?;
        let count = offset.checked_add(len as usize)?.div_ceil(PAGE_SIZE);
        let size = size_of::<*mut bindings::page>();
        if array < first.checked_add(size)? || array.checked_add(count.checked_mul(size)?)? > next {
            return None;
        }
        if !self.ends_are_in_first_page() {
            return None;
        }
        // SAFETY: The elements are in the part of the thread's array that the thread uses for this
        // reply. So the thread has a reference to the page of each element, and may pass the
        // references on. The function `end` later removes the pages from the array. Until then no
        // code uses the middle part.
        let refs = unsafe { PageRefs::take(raw.pages, offset, len as usize, list) }.ok()?;
        // INVARIANT: The references to the pages of these elements were passed to `refs` above.
        self.taken = offset / PAGE_SIZE..count;
        Some(refs)
    }

    /// Removes the taken pages from the thread's array. The RPC server replaces them by new pages.
    #[inline]
    pub(crate) fn end(self) {
        let Range { start, end } = self.taken;
        if start < end {
            // NO-OVERFLOW: `end` is greater than `start`, because the range is not empty.
            let count = end.wrapping_sub(start);
            // SAFETY: By the type invariant these are elements of the current thread's array.
            let first = unsafe { self.message.0.pages.add(start) };
            // SAFETY: By the type invariant these are elements of the current thread's array. The
            // RPC server accepts null pointers in the array, and then allocates other pages.
            unsafe { first.write_bytes(0, count) };
        }
    }

    /// Returns the offsets at which the middle part of the message begins and ends.
    #[inline]
    fn middle(&self) -> (u32, u32) {
        let raw = self.message.0;
        // CAST: A message in memory has at most a few megabytes.
        let begin = raw.head[0].iov_len as u32;
        (begin, begin.saturating_add(raw.page_len))
    }

    /// Returns whether the head and the tail of the reply are in the first page that the current
    /// thread has for replies (`rq_respages`).
    #[inline]
    fn ends_are_in_first_page(&self) -> bool {
        // SAFETY: By the type invariant the request belongs to the current thread. A reply begins
        // in the thread's first page.
        let page = unsafe { *(*self.request).rq_respages };
        if page.is_null() {
            return false;
        }
        // SAFETY: The page belongs to the thread, and the kernel can address it.
        let first = unsafe { bindings::xprtrdma_page_address(page) }.addr();
        let raw = self.message.0;
        [raw.head, raw.tail].iter().flatten().all(|part| {
            let begin = part.iov_base.addr();
            part.iov_len == 0
                || (begin >= first
                    // NO-OVERFLOW: Memory does not wrap around the end of the address space.
                    && begin.wrapping_add(part.iov_len) <= first.wrapping_add(PAGE_SIZE))
        })
    }
}

/// An RPC message to be sent.
///
/// # Invariants
///
/// The structure describes a complete message, whose memory does not change during `'a`.
pub struct Encoded<'a>(&'a bindings::xdr_buf);

impl<'a> Encoded<'a> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn from_raw(raw: &'a bindings::xdr_buf) -> Self {
        // INVARIANT: This function's contract guarantees the type invariant.
        Self(raw)
    }

    /// Returns the number of bytes in the message.
    pub fn len(&self) -> u32 {
        let ends = self.0.head[0].iov_len.wrapping_add(self.0.tail[0].iov_len);
        // CAST: A message in memory has at most a few megabytes.
        (ends as u32).wrapping_add(self.0.page_len)
    }

    /// Returns true if the message has no bytes. No RPC message is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes of the message, from offset `from` on. Returns `EINVAL` if the message is too
    /// short. Does not sleep.
    #[inline]
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        if !self.is_in_head(from, to.len()) {
            return self.copy_from_parts(from, to);
        }
        // SAFETY: By the type invariant the message is complete, so its head contains these bytes,
        // as checked above. The bytes do not change. Only the caller uses the memory `to`.
        unsafe {
            let from = self.0.head[0].iov_base.cast::<u8>().add(from as usize);
            to.as_mut_ptr().copy_from_nonoverlapping(from, to.len());
        }
        Ok(())
    }

    /// Returns whether `len` bytes from offset `from` on are in the head of the message.
    #[inline]
    fn is_in_head(&self, from: u32, len: usize) -> bool {
        // CAST: `usize` has at most 64 bits.
        // NO-OVERFLOW: The length of memory is less than 2^63.
        u64::from(from).wrapping_add(len as u64) <= self.0.head[0].iov_len as u64
    }

    /// Copies bytes of which at least one is outside the head; see [`Encoded::copy`].
    #[inline(never)]
    fn copy_from_parts(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        if from.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the message is complete, so it contains `len` bytes from
        // offset `from` on. `to` has space for `len` bytes.
        let err =
            unsafe { bindings::read_bytes_from_xdr_buf(self.0, from, to.as_mut_ptr().cast(), len) };
        match err {
            0 => Ok(()),
            _ => Err(EINVAL),
        }
    }
}
