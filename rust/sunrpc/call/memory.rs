// SPDX-License-Identifier: GPL-2.0

//! The memory for a reply, before its request is sent.

use crate::{
    slot::Slot,
    transport::Transport,
    xprt::xprt_of, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// The bytes at the start of a reply that identify it: the transaction id and the type of the
/// message.
pub(super) const START_LEN: usize = 8;

/// Prepares the memory for a reply before the request is queued. Sleeps.
///
/// # Safety
///
/// The slot's request is being queued by its own task, after encoding, and nothing of it is lent.
#[inline]
pub(crate) unsafe fn prepare_reply<T: Transport>(slot: &Slot<T>) -> Result {
    // SAFETY: By the caller's contract no other thread touches the request now.
    let buf = unsafe { &mut (*slot.rqst.get()).rq_rcv_buf };
    // SAFETY: As above.
    let allocated = unsafe { (*slot.rqst.get()).rq_rcvsize };
    if buf.head[0].iov_len > allocated {
        lengthen(slot, buf, allocated)?;
    }
    let kind = buf.flags & (bindings::XDRBUF_READ | bindings::XDRBUF_SPARSE_PAGES);
    if buf.page_len != 0 && kind != bindings::XDRBUF_READ {
        prepare_pages(slot, buf)?;
    }
    if buf.head[0].iov_len >= START_LEN {
        // Cleared, so that nothing old can be taken for a reply, see [`Pinned::placed_start`]
        // (V1-070).
        // SAFETY: The head has that many bytes. By the caller's contract they are not lent.
        unsafe { clear_start(buf) };
    }
    Ok(())
}

/// Allocates more memory for a reply whose head is longer than the `allocated` bytes that it has.
///
/// The RPC client keeps the length of the verifier that it expects once for all servers of a
/// flavour, and corrects it with each reply. A reply of any server that comes between the
/// allocation and the encoding can move the end of the head behind that of the memory, and the
/// length of the tail, what was allocated less the head, below zero.
#[cold]
fn lengthen<T: Transport>(slot: &Slot<T>, buf: &mut bindings::xdr_buf, allocated: usize) -> Result {
    let head = buf.head[0].iov_len;
    let whole = head.checked_add(allocated).ok_or(EMSGSIZE)?;
    // SAFETY: The slot's buffers belong to this task.
    let buffers = unsafe { &mut *slot.buffers.get() };
    // SAFETY: The request is in use.
    let xprt = unsafe { xprt_of::<T>(slot.rqst.get()) };
    let grown = |bytes| xprt.pool().count_buffered(bytes);
    let base = buffers.reply.ensure(whole, grown)?;
    buf.head[0].iov_base = base;
    buf.tail[0].iov_base = base.cast::<u8>().wrapping_add(head).cast();
    buf.tail[0].iov_len = allocated;
    let capacity = whole.checked_add(buf.page_len as usize).ok_or(EMSGSIZE)?;
    buf.buflen = u32::try_from(capacity)?;
    // SAFETY: The field belongs to the task. The memory that it named is freed, or is this memory.
    unsafe { (*slot.rqst.get()).rq_rbuffer = base };
    Ok(())
}

/// Length up to which a head may travel in a Read chunk, in bytes: the smallest inline message
/// (V1-025) less the shortest header, seven words (RFC 8166, 4.2).
const LONG_HEAD: usize = 1024 - 28;

/// Makes the next encoding of a call whose head may be lent use other memory. Sleeps.
///
/// The RPC client encodes a call again without asking. With `sec=krb5p` it writes the arguments in
/// plain into the head, and encrypts them there afterwards; the region of the last transmission
/// must not show them.
///
/// # Safety
///
/// As for [`prepare_reply`].
#[inline]
pub(crate) unsafe fn part_encodings<T: Transport>(slot: &Slot<T>) -> Result {
    let rqst = slot.rqst.get();
    // The security flavour has pages of its own, or the call is long.
    // SAFETY: By the caller's contract.
    let lent = unsafe {
        (*rqst).rq_release_snd_buf.is_some() || (*rqst).rq_snd_buf.head[0].iov_len >= LONG_HEAD
    };
    if lent {
        return use_other(slot);
    }
    Ok(())
}

#[cold]
fn use_other<T: Transport>(slot: &Slot<T>) -> Result {
    let rqst = slot.rqst.get();
    // SAFETY: The slot's buffers belong to this task.
    let buffers = unsafe { &mut *slot.buffers.get() };
    // SAFETY: The field belongs to the task.
    let call_len = unsafe { (*rqst).rq_callsize };
    // SAFETY: The request is in use.
    let xprt = unsafe { xprt_of::<T>(rqst) };
    let grown = |bytes| xprt.pool().count_buffered(bytes);
    let other = buffers.next_call.ensure(call_len, grown)?;
    core::mem::swap(&mut buffers.call, &mut buffers.next_call);
    // SAFETY: The field belongs to the task, and is read when the request is encoded.
    unsafe { (*rqst).rq_buffer = other };
    Ok(())
}

/// Zeroes the bytes that [`Pinned::placed_start`] reads.
///
/// # Safety
///
/// The head has that many bytes, which no other thread reads or writes.
#[inline]
pub(super) unsafe fn clear_start(buf: *mut bindings::xdr_buf) {
    // SAFETY: By the caller's contract.
    unsafe {
        let head = (*buf).head[0].iov_base;
        head.cast::<[u8; START_LEN]>().write([0; START_LEN]);
    }
}

/// Prepares a reply's memory if its pages are sparse, or if the reply is not a READ's.
#[inline(never)]
fn prepare_pages<T: Transport>(slot: &Slot<T>, buf: &mut bindings::xdr_buf) -> Result {
    if buf.flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
        let count = (buf.page_base as usize + buf.page_len as usize).div_ceil(PAGE_SIZE);
        for i in 0..count {
            // SAFETY: The array has an entry for each page of the range; the array's owner frees
            // the pages.
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
    // The peer will place a reply with pages as a whole, unless it is a READ's. If head and tail
    // meet the pages at page borders, one region covers all three.
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
        let grown = |bytes| xprt.pool().count_buffered(bytes);
        // Memory whose size is a power of two is aligned to its size, so its border is a page
        // border.
        if let Ok(base) = buffers.bordered.ensure(2 * PAGE_SIZE, grown) {
            let border = base.cast::<u8>().wrapping_add(PAGE_SIZE);
            buf.head[0].iov_base = border.wrapping_sub(head).cast();
            buf.tail[0].iov_base = border.cast();
        }
    }
    Ok(())
}
