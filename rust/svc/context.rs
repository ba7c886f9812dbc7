// SPDX-License-Identifier: GPL-2.0

//! The state of a call from its arrival until the RPC server has finished it ([`Context`]).

use crate::service::Service;
use core::{
    alloc::Layout,
    mem::{
        ManuallyDrop,
        MaybeUninit, //
    },
    ptr::{
        self,
        NonNull, //
    },
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
        /// Offset in the received message at which its part of the RPC message begins. The pages
        /// contain a copy of this part.
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
    /// The next call in the same [`Queue`](crate::queue::Queue); initialised while the call is in a
    /// queue.
    pub(crate) next: MaybeUninit<*mut Context<S>>,
}

/// A call that has arrived. The state of the call is in the memory of its own message, so that most
/// calls need no memory allocation.
///
/// # Invariants
///
/// The pointer refers to a context. The context owns a message, and is in the memory that
/// [`Buffer::memory`] of this message has returned. `Buffer::memory` is not called again for this
/// message. Only this object uses the context.
pub struct Arrived<S: Service>(NonNull<Context<S>>);

// SAFETY: The object owns a message, pages and data of the driver. Any thread may own them.
unsafe impl<S: Service> Send for Arrived<S> {}

impl<S: Service> Arrived<S> {
    /// Creates a call whose RPC message is in the received message, from the byte `start` on. May
    /// sleep for memory. If no memory is available, the message and `call` are dropped.
    #[inline(always)]
    pub fn new(mut message: S::Message, start: usize, call: S::Call) -> Result<Self> {
        let memory = message.memory(Layout::new::<Context<S>>())?;
        // Each field is written directly to the memory, so that the context is not copied.
        let this: NonNull<Context<S>> = memory.cast();
        let raw = this.as_ptr();
        // SAFETY: By the contract of `Buffer` the memory is valid for a context.
        unsafe { (&raw mut (*raw).message).write(message) };
        // SAFETY: By the contract of `Buffer` the memory stays valid while the context owns the
        // message.
        unsafe { (&raw mut (*raw).place).write(Place::Message { start }) };
        // SAFETY: As above.
        unsafe { (&raw mut (*raw).call).write(call) };
        // INVARIANT: All fields were written above, except one that need not be initialised. No
        // other code has the pointer.
        Ok(Self(this))
    }

    /// Returns the driver's data for the call.
    #[inline(always)]
    pub fn call(&mut self) -> &mut S::Call {
        &mut self.context().call
    }

    /// Inserts pages at offset `at` of the RPC message, which must be in the received message
    /// ([`Place::Message`]). If the RPC message is in another place, the pages are dropped, and
    /// false is returned.
    #[inline(always)]
    #[must_use]
    pub fn insert(&mut self, at: usize, pages: S::Pages) -> bool {
        let context = self.context();
        let Place::Message { start } = context.place else {
            return false;
        };
        // The old value has no pages, so it need not be dropped.
        // SAFETY: The pointer comes from a reference.
        unsafe { ptr::from_mut(&mut context.place).write(Place::Split { start, at, pages }) };
        true
    }

    /// Sets the location of the RPC message.
    pub fn set_place(&mut self, place: Place<S::Pages>) {
        self.context().place = place;
    }

    /// Finishes the call: drops its message, its pages and the driver's data.
    #[inline(always)]
    pub(crate) fn end(self) {
        let this = ManuallyDrop::new(self);
        // SAFETY: The context is not used again, because `this` is not dropped.
        unsafe { Self::drop_context(this.0.as_ptr()) };
    }

    /// Drops a context.
    ///
    /// # Safety
    ///
    /// The type invariant holds for the pointer, which is not used again.
    #[inline(always)]
    unsafe fn drop_context(raw: *mut Context<S>) {
        // SAFETY: By this function's contract the context is valid. The field `message` of the
        // context is not used again.
        let message = unsafe { (&raw const (*raw).message).read() };
        // Most calls have no pages. In this case no function is called to drop the pages.
        // SAFETY: By this function's contract the context is valid.
        if !matches!(unsafe { &(*raw).place }, Place::Message { .. }) {
            // SAFETY: By this function's contract the context is valid, and its pages are not used
            // again.
            unsafe { ptr::drop_in_place(&raw mut (*raw).place) };
        }
        // SAFETY: By this function's contract the context is valid, and its data are not used
        // again.
        unsafe { ptr::drop_in_place(&raw mut (*raw).call) };
        // The message is dropped last, because the context is in memory of the message.
        message.end();
    }

    /// Returns the context.
    #[inline(always)]
    pub(crate) fn context(&mut self) -> &mut Context<S> {
        // SAFETY: By the type invariant the context is valid, and belongs to this object.
        unsafe { self.0.as_mut() }
    }

    /// Converts the call into a pointer.
    #[inline(always)]
    pub(crate) fn into_raw(self) -> NonNull<Context<S>> {
        let raw = self.0;
        core::mem::forget(self);
        raw
    }

    /// Converts the pointer back into the call.
    ///
    /// # Safety
    ///
    /// The pointer comes from [`Arrived::into_raw`]. The caller does not use it afterwards.
    #[inline(always)]
    pub(crate) unsafe fn from_raw(raw: NonNull<Context<S>>) -> Self {
        // INVARIANT: By this function's contract `into_raw` has given up the context.
        Self(raw)
    }
}

impl<S: Service> Drop for Arrived<S> {
    fn drop(&mut self) {
        // SAFETY: The context is not used again, because `self` is being dropped.
        unsafe { Self::drop_context(self.0.as_ptr()) };
    }
}

impl<S: Service> Context<S> {
    /// Returns the offset at which the RPC server's part of the message begins. The offset is at
    /// most the length of the message.
    #[inline(always)]
    fn start(&self) -> usize {
        let (Place::Message { start } | Place::Split { start, .. } | Place::Pages { start, .. }) =
            self.place;
        start.min(self.message.len())
    }

    /// Returns the bytes before the RPC server's part of the message, and the driver's data for the
    /// call.
    #[inline(always)]
    pub(crate) fn front(&mut self) -> (&[u8], &mut S::Call) {
        let start = self.start();
        // SAFETY: `start` is at most the length of `message`, and by the contract of `Buffer` that
        // many bytes are initialised. They do not change while the slice exists. The RPC server
        // uses only the bytes from `start` on. Only the owner of `message` uses the bytes before
        // `start`, and the owner is borrowed.
        let front = unsafe { slice::from_raw_parts(self.message.start().as_ptr(), start) };
        (front, &mut self.call)
    }

    /// Lends the call to a thread of the RPC server. Returns the length of the RPC message in
    /// bytes.
    ///
    /// # Safety
    ///
    /// The thread has no other call, and finishes this call before `self` is dropped.
    #[inline(always)]
    pub(crate) unsafe fn lend_to(&mut self, rqstp: *mut bindings::svc_rqst) -> c_int {
        let start = self.start();
        // SAFETY: `start` is at most the length of the memory.
        let payload = unsafe { self.message.start().add(start) }.as_ptr();
        // NO-OVERFLOW: `start` is at most the length of the message.
        let inline = self.message.len().wrapping_sub(start);
        // SAFETY: The calling thread owns the request `rqstp`, so only this function and
        // `lend_pages` write the request now.
        let arg = unsafe { &mut (*rqstp).rq_arg };
        match &self.place {
            // Most calls have no pages.
            Place::Message { .. } => Self::fill(arg, (payload, inline), (None, 0), (None, 0)),
            place => Self::lend_pages(arg, place, payload, inline),
        }
    }

    /// Lends a call with pages to the RPC server, as [`Context::lend_to`] does. The received
    /// message contains `inline` bytes of the RPC message, at the address `payload`.
    #[inline(always)]
    fn lend_pages(
        arg: &mut bindings::xdr_buf,
        place: &Place<S::Pages>,
        payload: *mut u8,
        inline: usize,
    ) -> c_int {
        let (head, pages, tail) = match place {
            Place::Message { .. } => ((payload, inline), (None, 0), (None, 0)),
            Place::Split { at, pages, .. } => {
                let at = (*at).min(inline);
                // NO-OVERFLOW: `at` is at most `inline`.
                let (tail, behind) = (payload.wrapping_add(at), inline.wrapping_sub(at));
                let array = pages.array().as_ptr();
                (
                    (payload, at),
                    (Some(array), pages.len()),
                    (Some(tail), behind),
                )
            }
            Place::Pages { pages, .. } => {
                let first = pages.len().min(PAGE_SIZE);
                // NO-OVERFLOW: `first` is at most the length.
                let rest = pages.len().wrapping_sub(first);
                // `array` begins with the second page, because the first page is the head. The
                // SYMLINK decoder of NFSv3 reads `arg.pages[0]` even if there is no second page. In
                // that case `array` still points to an element, because the array of pages has one
                // element more than there are pages.
                let array = pages.array().as_ptr().wrapping_add(1);
                let head = pages.first().as_ptr();
                ((head, first), (Some(array), rest), (None, 0))
            }
        };
        Self::fill(arg, head, pages, tail)
    }

    /// Writes the three parts of an RPC message to `arg`: the addresses of the head, of the array
    /// of pages and of the tail, each with the number of bytes. Returns the number of all bytes.
    #[inline(always)]
    fn fill(
        arg: &mut bindings::xdr_buf,
        (head, head_len): (*mut u8, usize),
        (pages, page_len): (Option<*mut *mut bindings::page>, usize),
        (tail, tail_len): (Option<*mut u8>, usize),
    ) -> c_int {
        arg.head[0].iov_base = head.cast();
        arg.head[0].iov_len = head_len;
        arg.tail[0].iov_base = tail.unwrap_or(ptr::null_mut()).cast();
        arg.tail[0].iov_len = tail_len;
        if let Some(pages) = pages {
            // The RPC server sets `arg.pages` again for the thread's next call. So this assignment
            // affects only the present call.
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
