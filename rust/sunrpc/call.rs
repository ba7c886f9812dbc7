// SPDX-License-Identifier: GPL-2.0

//! A request on its way out ([`Call`]; [`Encoded`]: to look at) and pinned on its way in
//! ([`Pinned`]).

use crate::{
    lease::{
        Loan,
        Message, //
    },
    slot::{
        xprt_of,
        Slot, //
    },
    transport::{
        Ops,
        Transport, //
    },
    util::{
        may_linger,
        Jiffies, //
    },
    xdr_buf::{
        Octets,
        Part,
        XdrBuf, //
    },
    xprt::Xprt,
};
use core::{
    ops::Deref,
    ptr::{self, NonNull}, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::Relaxed,
    types::NotThreadSafe, //
};
use xprtrdma_bindings as bindings;

/// How much of a reply says whether it is one: the transaction id and the type of the message.
const START_LEN: usize = 8;

/// An encoded request, to look at.
///
/// # Invariants
///
/// The request is encoded, unless it ends before that, and no other thread encodes it anew or
/// releases it while the value exists.
pub struct Encoded<'a, T: Transport> {
    slot: &'a Slot<T>,
}

impl<'a, T: Transport> Encoded<'a, T> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn new(slot: &'a Slot<T>) -> Self {
        Self { slot }
    }

    fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot.rqst.get()
    }

    /// The slot with the driver's data.
    #[inline]
    pub fn slot(&self) -> &'a Slot<T> {
        self.slot
    }

    /// The transaction id, in host order.
    #[inline]
    pub fn xid(&self) -> u32 {
        // SAFETY: Valid by the type invariant; constant while the request is encoded.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// The encoded call.
    #[inline]
    pub fn message(&self) -> Octets<'_> {
        // SAFETY: The type invariant implies that of the view.
        unsafe { Octets::from_raw(&raw const (*self.rqst()).rq_snd_buf) }
    }

    /// The memory for the reply.
    #[inline]
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: The type invariant implies that of the view.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// Whether the security flavour lets data items travel apart from the message (V1-119,
    /// V1-121).
    #[inline]
    pub fn ddp_allowed(&self) -> bool {
        // SAFETY: Valid by the type invariant.
        let cred = unsafe { (*self.rqst()).rq_cred };
        // One that ends before it was encoded has none.
        if cred.is_null() {
            return false;
        }
        // SAFETY: A credential has an authenticator.
        let flags = unsafe { (*(*cred).cr_auth).au_flags };
        flags & (1 << bindings::RPCAUTH_AUTH_DATATOUCH) == 0
    }

    /// Whether a reply will come: `rpc_reply_expected()`, without the call of a helper.
    #[inline]
    pub fn reply_expected(&self) -> bool {
        // SAFETY: The request has a task until it is released, and the task its procedure, if any.
        unsafe {
            let procedure = (*(*self.rqst()).rq_task).tk_msg.rpc_proc;
            !procedure.is_null() && (*procedure).p_decode.is_some()
        }
    }

    /// Whether this very request was already sent on the current connection: sending it twice
    /// there is forbidden (ULB-34).
    #[inline]
    pub fn sent_on_this_connection(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: Valid by the type invariant.
        unsafe { (*self.rqst()).rq_connect_cookie == xprt.connect_cookie() }
    }
}

/// A request that the holder of the send lock sends, perhaps on behalf of another task: what
/// [`Transport::send`] may do with it, and nobody else.
///
/// Its reply can come, and end it, while it is being sent.
///
/// # Invariants
///
/// As for [`Encoded`]; and there is one such value of a request at a time, in the hands of the
/// thread that holds the send lock.
pub struct Call<'a, T: Transport> {
    encoded: Encoded<'a, T>,
    _of_this_thread: NotThreadSafe,
}

impl<'a, T: Transport> Deref for Call<'a, T> {
    type Target = Encoded<'a, T>;

    #[inline]
    fn deref(&self) -> &Encoded<'a, T> {
        &self.encoded
    }
}

impl<'a, T: Transport> Call<'a, T> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn new(slot: &'a Slot<T>) -> Self {
        Self {
            // SAFETY: By the caller's contract.
            encoded: unsafe { Encoded::new(slot) },
            _of_this_thread: NotThreadSafe,
        }
    }

    /// Takes one credit for the request unless it has one. `false`: none is left, and the RPC
    /// client will send the request when there is.
    #[inline]
    pub fn take_credit(&self, xprt: &Xprt<T>) -> bool {
        // SAFETY: The send lock is held.
        unsafe { bindings::xprt_request_get_cong(xprt.as_raw(), self.rqst()) }
    }

    /// Lends a part of the call or of the reply's memory.
    #[inline]
    pub fn lend(&self, message: Message, part: Part) -> Loan<'_, T> {
        if message == Message::Call {
            // SAFETY: The request is being sent, so its task does not encode it now.
            let release = unsafe { (*self.rqst()).rq_release_snd_buf };
            if let Some(release) = release {
                self.delay_release(release);
            }
        }
        // SAFETY: The type invariant, for the request was queued before it is sent. Who ends it
        // waits for leases.
        unsafe { Loan::new(self.slot, message, part) }
    }

    /// The call's pages belong to its security flavour, which frees them through `release` whenever
    /// the request is encoded anew: that has to wait for the leases from now on.
    #[cold]
    fn delay_release(&self, release: unsafe extern "C" fn(*mut bindings::rpc_rqst)) {
        // SAFETY: Only we send the request, and its task does not encode it now.
        let before = unsafe { &mut *self.slot.release.get() };
        // If there is one, `release` is ours already.
        if before.is_none() {
            *before = Some(release);
            // SAFETY: As in `lend`.
            unsafe { (*self.rqst()).rq_release_snd_buf = Some(Ops::<T>::release_call) };
        }
    }

    /// Zeroes what [`Pinned::placed_start`] reads, so that nothing old can be taken for a reply
    /// (V1-070). `EBUSY` while memory is lent: then it belongs to the device, and the zeroes could
    /// come on top of the reply. `EAGAIN` if a reply came before the request was sent.
    #[inline(never)]
    pub fn clear_reply(&self) -> Result {
        // Only we could lend it.
        if self.slot.is_leased() {
            return Err(EBUSY);
        }
        // SAFETY: Valid by the type invariant.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The lock is held, and the RPC client has pinned what it sends.
        if unsafe { *self.slot.pinned.get() || !is_pending(self.rqst()) } {
            return Err(EAGAIN);
        }
        if self.reply().head_len() >= START_LEN {
            // SAFETY: The head has that many octets. While the lock is held nobody looks the
            // request up, and without that nobody writes there, nor wakes the task, which would
            // read.
            unsafe {
                let head = (*self.rqst()).rq_rcv_buf.head[0].iov_base;
                head.cast::<[u8; START_LEN]>().write([0; START_LEN]);
            }
        }
        Ok(())
    }

    /// Ends the request with an error, as [`Pinned::fail`] does. `EBUSY` while memory is lent.
    #[cold]
    pub fn fail(&self, error: Error) -> Result {
        if self.slot.is_leased() {
            return Err(EBUSY);
        }
        self.slot.verdict.store(error.to_errno(), Relaxed);
        // SAFETY: Valid by the type invariant.
        let _queue = unsafe { xprt_of::<T>(self.rqst()) }.queue_lock().lock();
        // SAFETY: The lock is held, and the RPC client has pinned what it sends.
        unsafe {
            if is_pending(self.rqst()) {
                fail_pending(self.rqst(), error);
            }
        }
        Ok(())
    }
}

/// Whether a request waits for its reply: it can be completed once, and a second reply to it is
/// nothing.
///
/// # Safety
///
/// The queue lock is held, and the request pinned.
#[inline]
unsafe fn is_pending(rqst: *mut bindings::rpc_rqst) -> bool {
    // SAFETY: By the caller's contract its task exists.
    let waits = unsafe { ptr::read_volatile(&raw const (*(*rqst).rq_task).tk_runstate) };
    waits & (1 << bindings::RPC_TASK_NEED_RECV) != 0
}

/// Ends a pending request with an error.
///
/// # Safety
///
/// As for [`is_pending`].
unsafe fn fail_pending(rqst: *mut bindings::rpc_rqst, error: Error) {
    // SAFETY: By the caller's contract its task exists.
    unsafe {
        (*(*rqst).rq_task).tk_status = error.to_errno();
        // A task that does not sleep takes this for a broken connection; let it be none that
        // still exists.
        (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        bindings::xprt_complete_rqst((*rqst).rq_task, 0);
    }
}

/// A request that was sent and whose task is awake, in the task's own context.
pub struct Waiting<'a, T: Transport> {
    xprt: &'a Xprt<T>,
    task: *mut bindings::rpc_task,
}

impl<'a, T: Transport> Waiting<'a, T> {
    /// # Safety
    ///
    /// `task` runs in this thread, has a request of `xprt`, and does nothing else for `'a`.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>, task: *mut bindings::rpc_task) -> Self {
        Self { xprt, task }
    }

    /// Whether it need wait no more: it was answered or has failed, was killed, or its connection is
    /// gone. Does not sleep.
    ///
    /// ORDERING: The RPC client ends the wait for a reply with `test_and_clear_bit()`, a full barrier.
    #[inline]
    pub fn is_over(&self) -> bool {
        // SAFETY: The task and its request exist, by the contract of `new`. What others write is one
        // word each.
        unsafe {
            let task = self.task;
            let runstate = ptr::read_volatile(&raw const (*task).tk_runstate);
            runstate & (1 << bindings::RPC_TASK_NEED_RECV) == 0
                || ptr::read_volatile(&raw const (*task).tk_rpc_status) != 0
                || ptr::read_volatile(&raw const (*(*task).tk_rqstp).rq_connect_cookie)
                    != self.xprt.connect_cookie()
                || !self.xprt.is_connected()
        }
    }
}

/// How a request that was not answered leaves the transport.
pub struct Leaving {
    task: *mut bindings::rpc_task,
}

impl Leaving {
    /// It is encoded again, and its task wants to go on.
    pub(crate) fn to_be_encoded() -> Self {
        Self {
            task: ptr::null_mut(),
        }
    }

    /// It ends.
    ///
    /// # Safety
    ///
    /// `task` runs in this thread and has the request for as long as the result exists.
    pub(crate) unsafe fn for_good(task: *mut bindings::rpc_task) -> Self {
        Self { task }
    }

    /// Waits until none of the request's memory is lent any more, for `ms` milliseconds at most, if this
    /// thread may wait for what a peer does: the request ends, it is a process's own, and the thread
    /// is no worker. An asynchronous task may run where the end of its connection would have to run.
    /// Sleeps. Only the task's own request counts.
    #[cold]
    pub fn linger<T: Transport>(&self, call: &Encoded<'_, T>, ms: u32) {
        if self.task.is_null() {
            return;
        }
        // SAFETY: By the contract of `for_good`.
        let (flags, rqst) = unsafe { ((*self.task).tk_flags, (*self.task).tk_rqstp) };
        // CAST: A single bit.
        let own = flags & bindings::RPC_TASK_ASYNC as u16 == 0 && ptr::eq(rqst, call.rqst());
        if own && may_linger() {
            call.slot().leases.wait_at_most(Jiffies::from_ms(ms));
        }
    }
}

/// A request whose reply is being processed: neither released nor encoded again until unpinned.
///
/// Dropping it leaves the request pending.
///
/// # Invariants
///
/// The request is pinned for this value, of which there is one: [`Xprt::lookup`] sets
/// `Slot::pinned`, and makes none while it is set. `xprt` is the request's transport.
pub struct Pinned<T: Transport> {
    slot: NonNull<Slot<T>>,
    xprt: NonNull<Xprt<T>>,
}

// SAFETY: A pin does not belong to a thread.
unsafe impl<T: Transport> Send for Pinned<T> {}

impl<T: Transport> Pinned<T> {
    /// # Safety
    ///
    /// `rqst` is in a slot of `xprt`, which was marked as pinned just now, and has been pinned.
    pub(crate) unsafe fn new(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) -> Self {
        // SAFETY: By the caller's contract.
        let slot = NonNull::from(unsafe { Slot::<T>::from_rqst(rqst) });
        Self {
            slot,
            xprt: NonNull::from(xprt),
        }
    }

    /// The slot with the driver's data.
    #[inline]
    pub fn slot(&self) -> &Slot<T> {
        // SAFETY: A pinned request keeps its slot, by the type invariant.
        unsafe { self.slot.as_ref() }
    }

    /// The transport.
    #[inline]
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: A transport outlives its pinned requests.
        unsafe { self.xprt.as_ref() }
    }

    fn rqst(&self) -> *mut bindings::rpc_rqst {
        self.slot().rqst.get()
    }

    /// The transaction id, in host order.
    pub fn xid(&self) -> u32 {
        // SAFETY: Constant while the request is encoded.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// The memory for the reply.
    pub fn reply(&self) -> XdrBuf<'_> {
        // SAFETY: A pinned request keeps its buffers.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// The first octets of a reply that the peer placed in the reply's memory; zeroes if its head
    /// cannot have so many.
    #[inline]
    pub fn placed_start(&self) -> [u8; START_LEN] {
        if self.slot().is_leased() || self.reply().head_len() < START_LEN {
            return [0; START_LEN];
        }
        // SAFETY: The head has that many octets, which nobody writes now.
        unsafe {
            let head = (*self.rqst()).rq_rcv_buf.head[0].iov_base;
            head.cast::<[u8; START_LEN]>().read()
        }
    }

    /// Copies a reply that arrived inline into the reply's memory. `EMSGSIZE` if it does not fit
    /// (MAL-094), `EBUSY` while memory is lent.
    pub fn place_inline(&mut self, message: &[u8]) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: The buffer is valid while the request is pinned. By the type invariant nobody
        // else places anything there, and without leases no device does.
        unsafe {
            let buf = &raw mut (*rqst).rq_rcv_buf;
            if message.len() <= (*buf).head[0].iov_len {
                ptr::copy_nonoverlapping(
                    message.as_ptr(),
                    (*buf).head[0].iov_base.cast(),
                    message.len(),
                );
                return Ok(());
            }
            let part_len = self.reply().part_len(Part::Whole);
            if message.len() > part_len {
                return Err(EMSGSIZE);
            }
            // The callee bounds by `len`, which is the capacity until the request completes.
            let len = (*buf).len;
            (*buf).len = u32::try_from(part_len)?;
            let err = bindings::write_bytes_to_xdr_buf(
                buf,
                0,
                message.as_ptr().cast_mut().cast(),
                u32::try_from(message.len())?,
            );
            (*buf).len = len;
            kernel::error::to_result(err)
        }
    }

    /// Copies the inline part of a reply whose data item, `data` octets, is already in the pages:
    /// what precedes the item to the head, what follows it to the tail. `EMSGSIZE` if it does not
    /// fit, `EBUSY` while memory is lent.
    ///
    /// The decoder expects the data right behind the head, so the head is cut to what arrived.
    pub fn place_around(&mut self, message: &[u8], data: usize) -> Result {
        if self.slot().is_leased() {
            return Err(EBUSY);
        }
        let rqst = self.rqst();
        // SAFETY: As in `place_inline`. The reply's shape is changed in both copies of the buffer
        // structure alike, which is what the RPC client checks.
        unsafe {
            let head_len = (*rqst).rq_rcv_buf.head[0].iov_len;
            let page_len = (*rqst).rq_rcv_buf.page_len as usize;
            if message.len() > head_len && data < page_len {
                // What follows a short item belongs into the pages, behind it; only a reply without
                // an item has anything there.
                return if data == 0 {
                    self.place_inline(message)
                } else {
                    Err(EMSGSIZE)
                };
            }
            let (head, rest) = match message.split_at_checked(head_len) {
                Some(parts) => parts,
                None => (message, &[][..]),
            };
            ptr::copy_nonoverlapping(
                head.as_ptr(),
                (*rqst).rq_rcv_buf.head[0].iov_base.cast(),
                head.len(),
            );
            let cut = u32::try_from(head_len - head.len())?;
            for buf in [&raw mut (*rqst).rq_rcv_buf, &raw mut (*rqst).rq_private_buf] {
                (*buf).head[0].iov_len = head.len();
                (*buf).buflen -= cut;
            }
            // The item's padding is not sent (V1-053): it lies in front of the tail.
            let pad = data.wrapping_neg() % 4;
            let tail = (*rqst).rq_rcv_buf.tail[0];
            if rest.is_empty() {
                return Ok(());
            }
            if pad + rest.len() > tail.iov_len {
                return Err(EMSGSIZE);
            }
            let tail = tail.iov_base.cast::<u8>();
            ptr::write_bytes(tail, 0, pad);
            ptr::copy_nonoverlapping(rest.as_ptr(), tail.add(pad), rest.len());
        }
        Ok(())
    }

    /// Completes the request with a reply of `len` octets, which the caller has placed. What it has
    /// not placed of them is zero, or of an earlier reply: the slot's buffers are allocated with
    /// zeroes. (The pages are the upper layer's own, who gives what it would take back.)
    ///
    /// Gives the request back while any of its memory is lent: such a request cannot end; and if
    /// there is no room for such a reply.
    pub fn complete(self, len: usize) -> Result<(), Self> {
        if self.slot().is_leased() || len > self.reply().part_len(Part::Whole) {
            return Err(self);
        }
        self.finish(|rqst| {
            // CAST: There is memory for the reply, which is less than 2 GiB.
            // SAFETY: The lock is held, the request pinned.
            unsafe { bindings::xprt_complete_rqst((*rqst).rq_task, len as c_int) }
        });
        Ok(())
    }

    /// Ends the request, which was given to [`Transport::send`], with an error. Gives it back while
    /// any of its memory is lent.
    ///
    /// The error reaches the task whether or not it already sleeps: a task that was not asleep
    /// encodes the request again and meets the error there.
    pub fn fail(self, error: Error) -> Result<(), Self> {
        if self.slot().is_leased() {
            return Err(self);
        }
        self.slot().verdict.store(error.to_errno(), Relaxed);
        self.finish(|rqst| {
            // SAFETY: The lock is held, the request pinned.
            unsafe { fail_pending(rqst, error) }
        });
        Ok(())
    }

    /// Gives up the pin of `self`, the only one that [`Xprt::lookup`] has made.
    ///
    /// # Safety
    ///
    /// The queue lock is held. `self` is not used again.
    #[inline]
    unsafe fn unpin(&self) {
        // SAFETY: By the caller's contract, and the type invariant.
        unsafe {
            *self.slot().pinned.get() = false;
            bindings::xprt_unpin_rqst(self.rqst());
        }
    }

    fn finish(self, end: impl FnOnce(*mut bindings::rpc_rqst)) {
        let rqst = self.rqst();
        {
            let _queue = self.xprt().queue_lock().lock();
            // SAFETY: The lock is held, the request pinned.
            if unsafe { is_pending(rqst) } {
                end(rqst);
            }
            // SAFETY: The lock is held; `self` is not used again.
            unsafe { self.unpin() };
        }
        core::mem::forget(self);
    }
}

impl<T: Transport> Drop for Pinned<T> {
    fn drop(&mut self) {
        let _queue = self.xprt().queue_lock().lock();
        // SAFETY: The lock is held; `self` is not used again.
        unsafe { self.unpin() };
    }
}

/// Prepares the memory for a reply before the request is queued. Sleeps.
///
/// # Safety
///
/// `rqst` is being queued by its own task, after encoding.
#[inline]
pub(crate) unsafe fn prepare_reply<T: Transport>(slot: &Slot<T>) -> Result {
    // SAFETY: By the caller's contract nobody else touches the request now.
    let buf = unsafe { &mut (*slot.rqst.get()).rq_rcv_buf };
    let kind = buf.flags & (bindings::XDRBUF_READ | bindings::XDRBUF_SPARSE_PAGES);
    if buf.page_len == 0 || kind == bindings::XDRBUF_READ {
        return Ok(());
    }
    prepare_pages(slot, buf)
}

/// Prepares a reply's memory with pages that are sparse, or no READ's.
#[inline(never)]
fn prepare_pages<T: Transport>(slot: &Slot<T>, buf: &mut bindings::xdr_buf) -> Result {
    if buf.flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
        let count = (buf.page_base as usize + buf.page_len as usize).div_ceil(PAGE_SIZE);
        for i in 0..count {
            // SAFETY: The array has an entry for each page of the range; its owner frees what is
            // in it.
            unsafe {
                let entry = buf.pages.add(i);
                if (*entry).is_null() {
                    *entry = bindings::xprtrdma_task_page();
                    if (*entry).is_null() {
                        return Err(ENOMEM);
                    }
                }
            }
        }
    }
    // A reply with pages that is no READ will be placed whole by the peer. If head and tail meet
    // the pages at page borders, one region covers all three.
    let head = buf.head[0].iov_len;
    let page_end = buf.page_base as usize + buf.page_len as usize;
    if buf.flags & bindings::XDRBUF_READ == 0
        && head <= PAGE_SIZE
        && buf.tail[0].iov_len <= PAGE_SIZE
        && buf.page_base as usize % PAGE_SIZE == 0
        && page_end % PAGE_SIZE == 0
    {
        // SAFETY: The slot's buffers belong to this task.
        let buffers = unsafe { &mut *slot.buffers.get() };
        // SAFETY: The request is in use.
        let xprt = unsafe { xprt_of::<T>(slot.rqst.get()) };
        let grown = |octets| xprt.pool().count_buffered(octets);
        // Memory of a power of two is aligned to its size, so the border is where it is wanted.
        if let Ok(base) = buffers.bordered.ensure(2 * PAGE_SIZE, grown) {
            let border = base.cast::<u8>().wrapping_add(PAGE_SIZE);
            buf.head[0].iov_base = border.wrapping_sub(head).cast();
            buf.tail[0].iov_base = border.cast();
        }
    }
    Ok(())
}
