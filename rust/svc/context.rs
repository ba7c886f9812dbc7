// SPDX-License-Identifier: GPL-2.0

//! A call from the time when it arrives until it is over ([`Context`]).

use crate::service::Service;
use core::{
    marker::PhantomData,
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

/// Where the RPC message of a call is.
pub enum Place<P> {
    /// In the message from the byte `start` on.
    Message {
        /// Where it begins.
        start: usize,
    },
    /// As `Message`, but pages are inserted in front of the byte `at` of the RPC message.
    Split {
        /// Where it begins.
        start: usize,
        /// Where the pages go.
        at: usize,
        /// The pages.
        pages: P,
    },
    /// In pages; the message has no bytes of it.
    Pages {
        /// Where the driver's part of the message ends.
        start: usize,
        /// The pages.
        pages: P,
    },
}

/// A call of the driver `S`: what `rq_xprt_ctxt` points to.
///
/// # Invariants
///
/// When the RPC server has the call, it uses the bytes of `message` from [`Context::start`] on and
/// those of the pages, and nothing else does.
pub(crate) struct Context<S: Service> {
    message: S::Message,
    place: Place<S::Pages>,
    pub(crate) call: S::Call,
    _service: PhantomData<S>,
}

impl<S: Service> Context<S> {
    /// Makes the context of a call.
    pub(crate) fn new(
        message: S::Message,
        place: Place<S::Pages>,
        call: S::Call,
    ) -> Result<KBox<Self>> {
        let context = Self {
            message,
            place,
            call,
            _service: PhantomData,
        };
        Ok(KBox::new(context, GFP_KERNEL)?)
    }

    /// Ends a call: `over` gets the driver's data, then the message is dropped.
    pub(crate) fn end(this: KBox<Self>, over: impl FnOnce(S::Call)) {
        let Self {
            message,
            place,
            call,
            ..
        } = KBox::into_inner(this);
        over(call);
        drop((message, place));
    }

    /// Returns where the RPC server's part of the message begins; at most the message's length.
    fn start(&self) -> usize {
        let (Place::Message { start } | Place::Split { start, .. } | Place::Pages { start, .. }) =
            self.place;
        start.min(self.message.len())
    }

    /// Returns the bytes in front of the RPC server's part of the message, and the driver's data.
    pub(crate) fn front(&mut self) -> (&[u8], &mut S::Call) {
        let start = self.start();
        // SAFETY: By the contract of `Buffer`; the RPC server has only what is behind these bytes,
        // and nothing else uses the memory.
        let front = unsafe { slice::from_raw_parts(self.message.start().as_ptr(), start) };
        (front, &mut self.call)
    }

    /// Lends the call to a thread of the RPC server. Returns the bytes of the RPC message.
    ///
    /// # Safety
    ///
    /// The thread has received nothing else, and gives the call up before `self` is dropped.
    pub(crate) unsafe fn lend_to(&mut self, rqstp: *mut bindings::svc_rqst) -> c_int {
        let start = self.start();
        // SAFETY: `start` is within the memory or at its end.
        let payload = unsafe { self.message.start().add(start) }.as_ptr();
        // NO-OVERFLOW: `start` is at most the length.
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
                // NO-OVERFLOW: `first` is at most the length. Behind the only page of an array it
                // is there again: the SYMLINK of NFSv3 looks at `pages[0]` in any case.
                let rest = pages.len().wrapping_sub(first);
                let array = pages.array().as_ptr().wrapping_add(1);
                let head = pages.first().as_ptr();
                (head, first, Some(array), rest, ptr::null_mut(), 0)
            }
        };
        // SAFETY: The thread is the caller, so its request is ours to write.
        let arg = unsafe { &mut (*rqstp).rq_arg };
        arg.head[0].iov_base = head.cast();
        arg.head[0].iov_len = head_len;
        arg.tail[0].iov_base = tail.cast();
        arg.tail[0].iov_len = tail_len;
        if let Some(pages) = pages {
            // The RPC server sets it anew for the thread's next call.
            arg.pages = pages;
        }
        arg.page_base = 0;
        // NO-OVERFLOW: CAST: A call has a few megabytes.
        arg.page_len = page_len as u32;
        let len = head_len.wrapping_add(page_len).wrapping_add(tail_len);
        arg.buflen = len as u32;
        arg.len = len as u32;
        len as c_int
    }
}
