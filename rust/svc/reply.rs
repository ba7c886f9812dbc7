// SPDX-License-Identifier: GPL-2.0

//! A message to be sent ([`Encoded`]), and a reply, of which pages may be kept ([`Reply`]).

use core::{
    ops::Range,
    ptr, //
};
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
/// - `message` is the reply of the thread with `request`, as for [`Encoded`]. Its middle part is
///   in pages, the other parts are not.
/// - The elements `taken` of the array of the middle part, which are of the thread's own array,
///   have given up their references. Nothing uses the middle part then.
pub struct Reply<'a> {
    message: Encoded<'a>,
    request: *mut bindings::svc_rqst,
    taken: Range<usize>,
}

impl<'a> Reply<'a> {
    /// # Safety
    ///
    /// The caller is the thread, its reply is complete, and it changes neither the reply nor its
    /// array of pages for `'a`.
    pub(crate) unsafe fn of(request: *mut bindings::svc_rqst) -> Self {
        // SAFETY: By this function's contract.
        let message = unsafe { Encoded::from_raw(&(*request).rq_res) };
        // INVARIANT: By this function's contract.
        Self {
            message,
            request,
            taken: 0..0,
        }
    }

    /// Returns the bytes of the message.
    pub fn len(&self) -> u32 {
        self.message.len()
    }

    /// Returns whether the message has no bytes, which is never so.
    pub fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// Returns whether one of these bytes is in the middle part, which is in pages.
    pub fn is_in_pages(&self, from: u32, len: u32) -> bool {
        let (begin, end) = self.middle();
        len != 0 && from < end && from.saturating_add(len) > begin
    }

    /// Copies the bytes from the byte `from` on. `EINVAL`: the message does not have them, or
    /// their pages were taken. Does not sleep.
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        if !self.taken.is_empty() && self.is_in_pages(from, len) {
            return Err(EINVAL);
        }
        self.message.copy(from, to)
    }

    /// Takes the pages of the bytes from `from` on, which are in the middle part. No byte of that
    /// part can be copied any more. Their addresses go to the memory of `list`. `None`: they cannot
    /// be taken. May sleep for memory.
    pub fn take_pages(&mut self, from: u32, len: u32, list: &mut PageList) -> Option<PageRefs> {
        let (begin, end) = self.middle();
        if !self.taken.is_empty() || from < begin || from.checked_add(len)? > end {
            return None;
        }
        let raw = self.message.0;
        // SAFETY: The thread is the caller, see the type invariant.
        let (first, next) = unsafe { ((*self.request).rq_respages, (*self.request).rq_next_page) };
        // The thread has the references of its own array alone; and the ends of the message are
        // in the first page of that.
        let (first, next, array) = (first.addr(), next.addr(), raw.pages.addr());
        let offset = (raw.page_base as usize).checked_add(from.checked_sub(begin)? as usize)?;
        let count = offset.checked_add(len as usize)?.div_ceil(PAGE_SIZE);
        let size = size_of::<*mut bindings::page>();
        if array < first.checked_add(size)? || array.checked_add(count.checked_mul(size)?)? > next {
            return None;
        }
        if !self.ends_are_in_first_page() {
            return None;
        }
        // SAFETY: The elements are of the thread's array, in the part that it uses for this reply,
        // so each is a page to which it has a reference. It gives the references up: `end` removes
        // them from the array, and until then nothing uses the middle part.
        let refs = unsafe { PageRefs::take(raw.pages, offset, len as usize, list) }.ok()?;
        // INVARIANT: Taken just now.
        self.taken = offset / PAGE_SIZE..count;
        Some(refs)
    }

    /// Removes the pages that were taken from the thread's array, which gets others for them.
    pub(crate) fn end(self) {
        for index in self.taken {
            // SAFETY: By the type invariant it is an element of the thread's array, and the thread
            // is the caller. The RPC server accepts null there: it allocates another page.
            unsafe { *self.message.0.pages.add(index) = ptr::null_mut() };
        }
    }

    /// Returns where the middle part of the message begins and ends.
    fn middle(&self) -> (u32, u32) {
        let raw = self.message.0;
        // CAST: A message in memory, of a few megabytes.
        let begin = raw.head[0].iov_len as u32;
        (begin, begin.saturating_add(raw.page_len))
    }

    /// Returns whether the other parts are in the first page of the thread's array.
    fn ends_are_in_first_page(&self) -> bool {
        // SAFETY: The thread is the caller, and a reply begins in its first page.
        let page = unsafe { *(*self.request).rq_respages };
        if page.is_null() {
            return false;
        }
        // SAFETY: A page of the thread, which the kernel can address.
        let first = unsafe { bindings::xprtrdma_page_address(page) }.addr();
        let raw = self.message.0;
        [raw.head, raw.tail].iter().flatten().all(|part| {
            let begin = part.iov_base.addr();
            part.iov_len == 0
                || (begin >= first
                    // NO-OVERFLOW: Memory does not wrap around the end of the addresses.
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
        // INVARIANT: By this function's contract.
        Self(raw)
    }

    /// Returns the number of bytes in the message.
    pub fn len(&self) -> u32 {
        let ends = self.0.head[0].iov_len.wrapping_add(self.0.tail[0].iov_len);
        // CAST: A message in memory has at most a few megabytes.
        (ends as u32).wrapping_add(self.0.page_len)
    }

    /// Returns true if the message is empty, which cannot happen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes of the message, from offset `from` on. Returns `EINVAL` if the message is too
    /// short. Does not sleep.
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        let end = from.checked_add(len).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the message is complete. It has these bytes, and `to` has
        // space for them.
        let err =
            unsafe { bindings::read_bytes_from_xdr_buf(self.0, from, to.as_mut_ptr().cast(), len) };
        match err {
            0 => Ok(()),
            _ => Err(EINVAL),
        }
    }
}
