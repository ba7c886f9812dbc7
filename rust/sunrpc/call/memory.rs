// SPDX-License-Identifier: GPL-2.0

//! Preparation of the memory for a reply, before the call is sent.

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

/// Number of bytes at the start of a reply that identify the reply: its transaction id and its
/// message type.
pub(super) const START_LEN: usize = 8;

/// Prepares the memory for a reply before the request is queued. May sleep.
///
/// # Safety
///
/// - The request in the slot has been encoded.
/// - The caller is the task of the request, and is about to queue the request.
/// - None of the request's memory is lent to a region.
#[inline]
pub(crate) unsafe fn prepare_reply<T: Transport>(slot: &Slot<T>) -> Result {
    // SAFETY: By the caller's contract no other thread touches the request now.
    let buf = unsafe { &mut (*slot.rqst.get()).rq_rcv_buf };
    // SAFETY: By the caller's contract no other thread accesses the request now.
    let allocated = unsafe { (*slot.rqst.get()).rq_rcvsize };
    if buf.head[0].iov_len > allocated {
        lengthen(slot, buf, allocated)?;
    }
    let kind = buf.flags & (bindings::XDRBUF_READ | bindings::XDRBUF_SPARSE_PAGES);
    if buf.page_len != 0 && kind != bindings::XDRBUF_READ {
        prepare_pages(slot, buf)?;
    }
    if buf.head[0].iov_len >= START_LEN {
        // The bytes are zeroed, so that old bytes cannot be mistaken for a reply; see
        // [`Pinned::placed_start`] (V1-070).
        // SAFETY: The head has at least `START_LEN` bytes, and by the caller's contract these bytes
        // are not lent to a region.
        unsafe { clear_start(buf) };
    }
    Ok(())
}

/// Allocates more memory for a reply whose head is longer than the `allocated` bytes.
///
/// The head contains the verifier, whose length the RPC client estimates. The RPC client keeps one
/// estimate for each security flavour, and each reply from any server corrects the estimate of its
/// flavour. If the estimate grows between the allocation and the encoding of this request, the head
/// becomes longer. The head may then be longer than the allocated memory.
///
/// The RPC client sets the length of the tail to the allocated length minus the length of the head.
/// If the head is longer than the allocated memory, the difference is negative. So this function
/// sets the length of the tail again.
#[cold]
fn lengthen<T: Transport>(slot: &Slot<T>, buf: &mut bindings::xdr_buf, allocated: usize) -> Result {
    let head = buf.head[0].iov_len;
    let whole = head.checked_add(allocated).ok_or(EMSGSIZE)?;
    // SAFETY: The slot's buffers belong to the calling task.
    let buffers = unsafe { &mut *slot.buffers.get() };
    // SAFETY: The slot has a request, so the request has a transport.
    let xprt = unsafe { xprt_of::<T>(slot.rqst.get()) };
    let grown = |bytes| xprt.pool().count_buffered(bytes);
    let base = buffers.reply.ensure(whole, grown)?;
    buf.head[0].iov_base = base;
    buf.tail[0].iov_base = base.cast::<u8>().wrapping_add(head).cast();
    buf.tail[0].iov_len = allocated;
    let capacity = whole.checked_add(buf.page_len as usize).ok_or(EMSGSIZE)?;
    buf.buflen = u32::try_from(capacity)?;
    // SAFETY: The field belongs to the calling task. The old value of the field points to memory
    // that was freed, or is equal to `base`.
    unsafe { (*slot.rqst.get()).rq_rbuffer = base };
    Ok(())
}

/// If the head of a call is shorter than this number of bytes, the head is never sent in a Read
/// chunk. The value is the smallest limit on inline messages (V1-025) minus the length of the
/// shortest header, which has seven words (RFC 8166, 4.2).
const LONG_HEAD: usize = 1024 - 28;

/// Makes the next encoding of the call use other memory, if the peer may have access to the head of
/// the present encoding. May sleep.
///
/// The RPC client can encode a call again without asking the transport. With `sec=krb5p` the RPC
/// client first writes the arguments into the head in plain text, and then encrypts them in the
/// same memory. The peer must not read this plain text through the region that was registered for
/// the previous transmission.
///
/// # Safety
///
/// The contract of [`prepare_reply`] applies.
#[inline]
pub(crate) unsafe fn part_encodings<T: Transport>(slot: &Slot<T>) -> Result {
    let rqst = slot.rqst.get();
    // The peer may have access to the head of the call if the security flavour has pages of its
    // own, or if the call is long.
    // SAFETY: By the caller's contract no other thread accesses the request now.
    let lent = unsafe {
        (*rqst).rq_release_snd_buf.is_some() || (*rqst).rq_snd_buf.head[0].iov_len >= LONG_HEAD
    };
    // With patch 0005, the RPC client does not encode the call while the peer can access the call's
    // memory.
    if lent && !cfg!(xprtrdma_upstream) {
        return use_other(slot);
    }
    Ok(())
}

#[cold]
fn use_other<T: Transport>(slot: &Slot<T>) -> Result {
    let rqst = slot.rqst.get();
    // SAFETY: The slot's buffers belong to the calling task.
    let buffers = unsafe { &mut *slot.buffers.get() };
    // SAFETY: The field belongs to the calling task.
    let call_len = unsafe { (*rqst).rq_callsize };
    // SAFETY: The slot has a request, so the request has a transport.
    let xprt = unsafe { xprt_of::<T>(rqst) };
    let grown = |bytes| xprt.pool().count_buffered(bytes);
    let other = buffers.next_call.ensure(call_len, grown)?;
    core::mem::swap(&mut buffers.call, &mut buffers.next_call);
    // SAFETY: The field belongs to the calling task, which reads it when it encodes the request.
    unsafe { (*rqst).rq_buffer = other };
    Ok(())
}

/// Zeroes the bytes that [`Pinned::placed_start`] reads.
///
/// # Safety
///
/// The head has at least `START_LEN` bytes, and no other thread reads or writes them.
#[inline]
pub(super) unsafe fn clear_start(buf: *mut bindings::xdr_buf) {
    // SAFETY: By the caller's contract the head has at least `START_LEN` bytes.
    unsafe {
        let head = (*buf).head[0].iov_base;
        head.cast::<[u8; START_LEN]>().write([0; START_LEN]);
    }
}

/// Prepares the memory of a reply that has pages. Allocates pages that are missing. If possible,
/// also moves the head so that it ends at a page boundary, and the tail so that it begins at a page
/// boundary. The head and the tail of the reply to a READ are not moved.
#[inline(never)]
fn prepare_pages<T: Transport>(slot: &Slot<T>, buf: &mut bindings::xdr_buf) -> Result {
    if buf.flags & bindings::XDRBUF_SPARSE_PAGES != 0 {
        let count = (buf.page_base as usize + buf.page_len as usize).div_ceil(PAGE_SIZE);
        for i in 0..count {
            // SAFETY: The array has an entry for each page of the range. The owner of the array
            // frees the pages.
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
    // If a reply has pages and is not the reply to a READ, the peer writes the whole reply to head,
    // pages and tail of `buf`. A single region can cover these three parts if the head ends at a
    // page boundary and the tail begins at a page boundary.
    let head = buf.head[0].iov_len;
    let page_end = buf.page_base as usize + buf.page_len as usize;
    if buf.flags & bindings::XDRBUF_READ == 0
        && head <= PAGE_SIZE
        && buf.tail[0].iov_len <= PAGE_SIZE
        && buf.page_base as usize % PAGE_SIZE == 0
        && page_end % PAGE_SIZE == 0
    {
        // SAFETY: The slot's buffers belong to the calling task.
        let buffers = unsafe { &mut *slot.buffers.get() };
        // SAFETY: The slot has a request, so the request has a transport.
        let xprt = unsafe { xprt_of::<T>(slot.rqst.get()) };
        let grown = |bytes| xprt.pool().count_buffered(bytes);
        // The buffer has two pages. It is aligned to its size, because its size is a power of two.
        // So the middle of the buffer is a page boundary.
        if let Ok(base) = buffers.bordered.ensure(2 * PAGE_SIZE, grown) {
            let border = base.cast::<u8>().wrapping_add(PAGE_SIZE);
            buf.head[0].iov_base = border.wrapping_sub(head).cast();
            buf.tail[0].iov_base = border.cast();
        }
    }
    Ok(())
}
