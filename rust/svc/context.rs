// SPDX-License-Identifier: GPL-2.0

//! The state of a call from its arrival until the RPC server has finished it ([`Context`]).

use crate::service::Service;
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr,
    slice, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::buffer::{
    Buffer,
    PageArray, //
};
use xprtrdma_bindings as bindings;

/// The location of the RPC message of a call.
pub enum Place<P> {
    /// The RPC message is in the received message, from the byte `start` on.
    Message {
        /// Offset at which the RPC message begins.
        start: usize,
    },
    /// The RPC message is in the received message, from offset `start` on. Pages are inserted at
    /// offset `at` of the RPC message.
    Split {
        /// Offset at which the RPC message begins.
        start: usize,
        /// Offset in the RPC message at which the pages are inserted.
        at: usize,
        /// The inserted pages.
        pages: P,
    },
    /// The whole RPC message is in pages.
    Pages {
        /// Length of the received message, which the driver keeps.
        start: usize,
        /// The pages of the RPC message.
        pages: P,
    },
}

/// The context of a call for driver `S`: the object to which `rq_xprt_ctxt` points.
///
/// # Invariants
///
/// While the RPC server processes the call, only the RPC server uses the pages and the part of
/// `message` that begins at [`Context::start`].
pub(crate) struct Context<S: Service> {
    message: S::Message,
    place: Place<S::Pages>,
    pub(crate) call: S::Call,
    _service: PhantomData<S>,
}

impl<S: Service> Context<S> {
    /// Creates the context of a call in `memory`. Writes each field directly to `memory`, so that
    /// the context is not copied.
    #[inline(always)]
    pub(crate) fn write(
        memory: KBox<MaybeUninit<Self>>,
        message: S::Message,
        place: Place<S::Pages>,
        call: S::Call,
    ) -> KBox<Self> {
        let this: *mut Self = KBox::into_raw(memory).cast();
        // SAFETY: The memory was allocated for a context, and belongs to this function.
        unsafe { (&raw mut (*this).message).write(message) };
        // SAFETY: The memory was allocated for a context, and belongs to this function.
        unsafe { (&raw mut (*this).place).write(place) };
        // SAFETY: The memory was allocated for a context, and belongs to this function.
        unsafe { (&raw mut (*this).call).write(call) };
        // SAFETY: The memory comes from a `KBox`. All fields were written above, except one that
        // has no bytes.
        unsafe { KBox::from_raw(this) }
    }

    /// Finishes a call. Passes the driver's data to `over`, and then drops all fields of the
    /// context. Returns the memory of the context.
    pub(crate) fn end(
        mut this: KBox<Self>,
        over: impl FnOnce(&mut S::Call),
    ) -> KBox<MaybeUninit<Self>> {
        over(&mut this.call);
        KBox::drop_contents(this)
    }

    /// Returns the offset at which the RPC server's part of the message begins. The offset is at
    /// most the length of the message.
    fn start(&self) -> usize {
        let (Place::Message { start } | Place::Split { start, .. } | Place::Pages { start, .. }) =
            self.place;
        start.min(self.message.len())
    }

    /// Returns the bytes before the RPC server's part of the message, and the driver's data for the
    /// call.
    pub(crate) fn front(&mut self) -> (&[u8], &mut S::Call) {
        let start = self.start();
        // SAFETY: `start` is at most the length of `message`, and by the contract of `Buffer` that
        // many bytes are initialised. They do not change while the slice exists: only the owner of
        // `message` uses them, the owner is borrowed, and the RPC server uses only the bytes from
        // `start` on.
        let front = unsafe { slice::from_raw_parts(self.message.start().as_ptr(), start) };
        (front, &mut self.call)
    }

    /// Lends the call to a thread of the RPC server. Returns the length of the RPC message in
    /// bytes.
    ///
    /// # Safety
    ///
    /// The thread has no other call, and finishes this call before `self` is dropped.
    pub(crate) unsafe fn lend_to(&mut self, rqstp: *mut bindings::svc_rqst) -> c_int {
        let start = self.start();
        // SAFETY: `start` is at most the length of the memory.
        let payload = unsafe { self.message.start().add(start) }.as_ptr();
        // NO-OVERFLOW: `start` is at most the length of the message.
        let inline = self.message.len().wrapping_sub(start);
        let (head, head_len, pages, page_len, tail, tail_len) = match &self.place {
            Place::Message { .. } => (payload, inline, None, 0, ptr::null_mut(), 0),
            Place::Split { at, pages, .. } => {
                let at = (*at).min(inline);
                // NO-OVERFLOW: `at` is at most `inline`.
                let (tail, behind) = (payload.wrapping_add(at), inline.wrapping_sub(at));
                let array = pages.array().as_ptr();
                (payload, at, Some(array), pages.len(), tail, behind)
            }
            Place::Pages { pages, .. } => {
                let first = pages.len().min(PAGE_SIZE);
                // NO-OVERFLOW: `first` is at most the length. The SYMLINK decoder of NFSv3 reads
                // `pages[0]` even if no second page exists. `array` is valid in that case, too,
                // because the array of pages has one element more than the number of pages.
                let rest = pages.len().wrapping_sub(first);
                let array = pages.array().as_ptr().wrapping_add(1);
                let head = pages.first().as_ptr();
                (head, first, Some(array), rest, ptr::null_mut(), 0)
            }
        };
        // SAFETY: The calling thread owns the request `rqstp`, so only this function writes the
        // request now.
        let arg = unsafe { &mut (*rqstp).rq_arg };
        arg.head[0].iov_base = head.cast();
        arg.head[0].iov_len = head_len;
        arg.tail[0].iov_base = tail.cast();
        arg.tail[0].iov_len = tail_len;
        if let Some(pages) = pages {
            // `arg.pages` points to an array of pages. The RPC server sets it again for the
            // thread's next call, so this change affects only the present call.
            arg.pages = pages;
        }
        arg.page_base = 0;
        // NO-OVERFLOW: CAST: The length of a call is at most a few megabytes.
        arg.page_len = page_len as u32;
        let len = head_len.wrapping_add(page_len).wrapping_add(tail_len);
        arg.buflen = len as u32;
        arg.len = len as u32;
        len as c_int
    }
}
