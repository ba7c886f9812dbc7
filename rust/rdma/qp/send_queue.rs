// SPDX-License-Identifier: GPL-2.0

//! The send queue: work requests, and a ring of bytes.
//!
//! Each message is copied once, to a contiguous part of the ring. A Send refers to no other memory,
//! so the queue never owns memory of an RPC. Most Sends are unsignalled: the completion of a
//! signalled Send frees all earlier ones.
//!
//! After the completion of a Send, its bytes in the ring are used for other messages. siw completes
//! an unsignalled Send when TCP has accepted the data, possibly before the data are sent. This is
//! safe, because siw copies memory of the slab allocator, such as the ring. siw splices a page into
//! TCP's queue only if the page has its own reference count.
//!
//! The ring relies on a property of verbs: the work requests of a send queue complete in the order
//! in which they were posted. So one `ib_cqe` for each type suffices, and no list of Sends is
//! needed.

use super::{
    chain::SendChain,
    config::QpConfig,
    fence::Fence,
    fifo::Fifo,
    recv_queue::Done, //
};
#[cfg(xprtrdma_server)]
use crate::transfer::Transfer;
use crate::{
    dma::{
        Direction,
        DmaBuf, //
    },
    failure::Opcode,
    pd::{
        Pd,
        FIRST_SEQ, //
    }, //
};
use core::{
    cell::UnsafeCell,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

// Alignment of Sends in the ring: one cache line.
const ALIGN: usize = 64;

/// Returns how many bytes of the ring a message uses. The message is not longer than the ring.
#[inline]
pub(super) fn aligned(len: usize) -> usize {
    // NO-OVERFLOW: The ring is memory, so its length is far below the maximum of `usize`.
    len.wrapping_add(ALIGN - 1) & !(ALIGN - 1)
}

#[inline]
pub(super) fn flags(signalled: bool) -> c_int {
    if signalled {
        // CAST: The flag is a single bit.
        bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
    } else {
        0
    }
}

#[derive(Clone, Copy)]
pub(super) enum OpKind {
    Send,
    Invalidate {
        token: u64,
        seq: u64,
    },
    Probe,
    Confirmed,
    /// An invalidation with this number. When it completes, the device has finished all earlier
    /// registrations.
    Retirement(u64),
    #[cfg(xprtrdma_server)]
    Transfer,
}

/// A signalled post to the send queue. `bytes` and `wrs` include the unsignalled posts since the
/// previous signalled post, because the completion of this post frees them as well.
#[derive(Clone, Copy)]
struct Op {
    bytes: usize,
    wrs: u32,
    kind: OpKind,
}

pub(super) struct SendQueue {
    pub(super) ring: DmaBuf,
    /// The head: the offset in the ring at which the next message begins. `used` is the number of
    /// bytes in use.
    pub(super) head: usize,
    pub(super) used: usize,
    /// The signalled posts that have not completed, in order.
    ops: Fifo<Op>,
    pub(super) wrs: u32,
    depth: u32,
    // `quiet_wrs` and `quiet_bytes` count the work requests and the bytes that were posted after
    // the last signalled post. `quiet_wrs_most` and `quiet_bytes_most` are the limits of these
    // counts. The post with which a count reaches its limit is signalled.
    quiet_wrs: u32,
    quiet_bytes: usize,
    quiet_wrs_most: u32,
    quiet_bytes_most: usize,
    pub(super) seq: u64,
    pub(super) closed: bool,
    pub(super) want_space: bool,
    /// Additional flags of signalled work requests other than RDMA Reads. The fence flag is set if
    /// the device could otherwise complete these work requests before Reads that were posted
    /// earlier.
    #[cfg(xprtrdma_server)]
    signal_flags: c_int,
    /// Transfers that were posted and have not completed, in the order of posting. Never grows
    /// beyond its capacity.
    #[cfg(xprtrdma_server)]
    pub(super) transfers: KVec<KBox<Transfer>>,
    // The work request and the scatter/gather element that each Send uses. Their content is valid
    // only during a post.
    pub(super) send: bindings::ib_send_wr,
    pub(super) sge: bindings::ib_sge,
    pub(super) chain: SendChain,
    /// The fence before registrations, on devices that may need one.
    pub(super) fence: Option<Fence>,
    /// Number of work requests that the fence needs before each message's registrations.
    pub(super) fence_wrs: u32,
    /// Whether a registration was posted without a preceding fence.
    pub(super) unfenced: bool,
    /// Number of messages, beginning with the next message, that must not wait for the doorbell.
    /// Later messages may wait, so that one doorbell serves several messages.
    pub(super) batch_cooldown: u32,
}

// SAFETY: The pointers in the work requests are not used between posts; all other fields are
// `Send`.
unsafe impl Send for SendQueue {}

impl SendQueue {
    pub(super) fn new(pd: &Arc<Pd>, config: &QpConfig) -> Result<Self> {
        let send = bindings::ib_send_wr {
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            ..Default::default()
        };
        let ring = Self::ring(pd, config)?;
        let fence = Fence::new(pd)?;
        let quiet_bytes_most = ring.len() / 4;
        Ok(Self {
            ring,
            head: 0,
            used: 0,
            ops: Fifo::new(
                config.send_wrs as usize,
                Op {
                    bytes: 0,
                    wrs: 0,
                    kind: OpKind::Send,
                },
            )?,
            wrs: 0,
            depth: config.send_wrs,
            quiet_wrs: 0,
            quiet_bytes: 0,
            // The posts after the last signalled post use at most a quarter of the ring and of the
            // work requests. So if the queue is full, a signalled post is in flight.
            quiet_wrs_most: config.signal_every.min(config.send_wrs / 4),
            quiet_bytes_most,
            seq: FIRST_SEQ,
            closed: false,
            want_space: false,
            #[cfg(xprtrdma_server)]
            signal_flags: match pd.overtakes() {
                // CAST: The flag is a single bit.
                true => bindings::ib_send_flags_IB_SEND_FENCE as c_int,
                false => 0,
            },
            #[cfg(xprtrdma_server)]
            transfers: KVec::with_capacity(config.send_wrs as usize, GFP_KERNEL)?,
            send,
            sge: Default::default(),
            chain: SendChain::new(config.message_wrs, config.waiting_wrs)?,
            fence_wrs: pd.fences().into(),
            fence,
            unfenced: false,
            batch_cooldown: 0,
        })
    }

    /// Stores the completion entries in the work requests that are reused for every post. Must be
    /// called before the first post.
    pub(super) fn bind(&mut self, entries: &SendEntries) {
        let (send, fence) = (entries.get::<SEND>(), entries.get::<LOCAL_INV>());
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        self.send.__bindgen_anon_1.bindgen_union_field = send as u64;
        if let Some(own) = &mut self.fence {
            own.bind(fence);
        }
        self.chain.bind(send, entries.get::<REG_MR>());
    }

    /// Allocates the ring with `send_bytes` bytes, or a shorter one with at least
    /// `least_send_bytes` if memory is short.
    fn ring(pd: &Arc<Pd>, config: &QpConfig) -> Result<DmaBuf> {
        let mut len = config.send_bytes;
        loop {
            let ring = DmaBuf::new(pd, len, Direction::ToDevice);
            if ring.is_ok() || len <= config.least_send_bytes {
                return ring;
            }
            len = (len / 2).max(config.least_send_bytes);
        }
    }

    /// Returns the number of signalled posts that have not completed.
    #[cfg(xprtrdma_server)]
    pub(super) fn signalled(&self) -> usize {
        self.ops.len()
    }

    /// Finds space for `len` contiguous bytes, for `wrs` work requests, and for a fence if the
    /// device needs one. Returns the offset of the bytes in the ring, or `None` if there is no
    /// space.
    #[inline(always)]
    pub(super) fn room(&self, len: usize, wrs: u32) -> Option<usize> {
        let size = self.ring.len();
        // NO-OVERFLOW: Three numbers of 32 bits are added as 64 bits.
        let wrs = u64::from(wrs)
            .wrapping_add(self.fence_wrs.into())
            .wrapping_add(self.wrs.into());
        if len > size || wrs > u64::from(self.depth) {
            return None;
        }
        // NO-OVERFLOW: `len` and `head` are at most the length of the ring. The ring is memory, so
        // its length is far below the maximum of `usize`.
        let len = aligned(len);
        if self.head.wrapping_add(len) > size {
            return self.has_room_at_start(len).then_some(0);
        }
        (self.used.wrapping_add(len) <= size).then_some(self.head)
    }

    /// Returns true if a message of `len` bytes fits at the start of the ring. Called if the
    /// message does not fit between the head and the end of the ring.
    #[cold]
    #[inline(never)]
    fn has_room_at_start(&self, len: usize) -> bool {
        // NO-OVERFLOW: Each of the three numbers in the sum is at most the length of the ring plus
        // `ALIGN`. The ring is memory, so its length is far below the maximum of `usize`.
        self.used.wrapping_add(self.behind_head()).wrapping_add(len) <= self.ring.len()
    }

    /// Returns the number of bytes from the head to the end of the ring.
    fn behind_head(&self) -> usize {
        // NO-OVERFLOW: The head is at most the length of the ring.
        self.ring.len().wrapping_sub(self.head)
    }

    /// Skips the bytes from the head to the end of the ring, so that the next message begins at the
    /// start of the ring. Called if [`Self::room`] returned an offset other than the head.
    #[cold]
    #[inline(never)]
    pub(super) fn skip(&mut self) {
        self.account(self.behind_head(), 0);
    }

    /// Counts the bytes and the work requests of a post as used. The queue must have space for the
    /// post.
    #[inline]
    pub(super) fn account(&mut self, bytes: usize, wrs: u32) {
        // NO-OVERFLOW: `self.wrs` and `self.used` never exceed the size of the queue. `quiet_wrs`
        // and `quiet_bytes` never exceed these two counts, because they include only the posts
        // after the last signalled post.
        self.quiet_wrs = self.quiet_wrs.wrapping_add(wrs);
        self.quiet_bytes = self.quiet_bytes.wrapping_add(bytes);
        self.wrs = self.wrs.wrapping_add(wrs);
        self.used = self.used.wrapping_add(bytes);
    }

    /// Returns true if the last post must be signalled.
    #[inline]
    pub(super) fn must_signal(&self) -> bool {
        self.quiet_wrs >= self.quiet_wrs_most || self.quiet_bytes >= self.quiet_bytes_most
    }

    /// Records that the last post is signalled.
    #[cfg_attr(not(xprtrdma_server), cold)]
    #[cfg_attr(xprtrdma_server, inline)]
    pub(super) fn signal(&mut self, kind: OpKind) -> Result {
        self.ops.push(Op {
            bytes: self.quiet_bytes,
            wrs: self.quiet_wrs,
            kind,
        })?;
        self.quiet_wrs = 0;
        self.quiet_bytes = 0;
        Ok(())
    }

    /// Returns the flags of a work request other than an RDMA Read.
    #[inline]
    pub(super) fn flags(&self, signalled: bool) -> c_int {
        #[cfg(xprtrdma_server)]
        if signalled {
            return flags(signalled) | self.signal_flags;
        }
        flags(signalled)
    }

    /// Frees the space of the oldest signalled post, whose completion has arrived, and of all
    /// earlier posts.
    #[cfg_attr(xprtrdma_server, inline)]
    pub(super) fn complete(&mut self) -> Option<OpKind> {
        let op = self.ops.pop()?;
        self.wrs -= op.wrs;
        self.used -= op.bytes;
        if let Some(fence) = &self.fence {
            // Since the last check, another queue pair may have detected that registrations on this
            // device need a fence.
            self.fence_wrs = fence.is_needed().into();
        }
        Some(op.kind)
    }
}

/// The index in [`SendEntries`] of each type of work request.
pub(super) const SEND: usize = Opcode::Send as usize;
pub(super) const REG_MR: usize = Opcode::RegMr as usize;
pub(super) const LOCAL_INV: usize = Opcode::LocalInv as usize;
pub(super) const RDMA_WRITE: usize = Opcode::RdmaWrite as usize;
const KINDS: usize = RDMA_WRITE + 1;

/// Returns the type of work requests whose index in [`SendEntries`] is `kind`.
pub(super) const fn opcode(kind: usize) -> Opcode {
    match kind {
        REG_MR => Opcode::RegMr,
        LOCAL_INV => Opcode::LocalInv,
        RDMA_WRITE => Opcode::RdmaWrite,
        _ => Opcode::Send,
    }
}

/// The completion entries of the send queue of a [`Qp`](super::Qp), one for each type of work
/// request. A completion with an error identifies the type of its work request only by the entry.
///
/// # Invariants
///
/// From the first post on, each element of `ptrs` points to the entry of its type. The pointer may
/// be used to access the whole queue pair, because it comes from the queue pair's `Arc`.
#[repr(C)]
pub(super) struct SendEntries {
    cqes: [Opaque<bindings::ib_cqe>; KINDS],
    ptrs: UnsafeCell<[*mut bindings::ib_cqe; KINDS]>,
}

impl SendEntries {
    /// Creates the completion entries. `done` contains the functions that handle their completions,
    /// in the order of the types. [`SendEntries::bind`] must be called before the entries are used.
    pub(super) fn new(done: [Done; KINDS]) -> Self {
        Self {
            cqes: done.map(|done| Opaque::new(bindings::ib_cqe { done: Some(done) })),
            ptrs: UnsafeCell::new([ptr::null_mut(); KINDS]),
        }
    }

    /// Stores the pointers that [`SendEntries::get`] returns.
    ///
    /// # Safety
    ///
    /// `this` is valid, and was derived from a pointer to the whole queue pair. The queue pair does
    /// not move, and no other code uses it yet.
    pub(super) unsafe fn bind(this: *const Self) {
        // SAFETY: By the caller's contract `this` is valid.
        let (first, ptrs) = unsafe { (&raw const (*this).cqes, (*this).ptrs.get()) };
        // CAST: `Opaque` is transparent, and an array begins with its first element.
        let first: *mut bindings::ib_cqe = first.cast_mut().cast();
        // INVARIANT: Each pointer refers to the entry of its type.
        let all = core::array::from_fn(|kind| first.wrapping_add(kind));
        // SAFETY: By the caller's contract no other code uses the entries yet.
        unsafe { *ptrs = all };
    }

    /// Returns the completion entry for work requests of type `KIND`.
    #[inline]
    pub(super) fn get<const KIND: usize>(&self) -> *mut bindings::ib_cqe {
        const { assert!(KIND < KINDS) };
        // SAFETY: `ptrs` is only written before any other thread has the queue pair. `KIND` is less
        // than the length of the array.
        unsafe { *self.ptrs.get().cast::<*mut bindings::ib_cqe>().add(KIND) }
    }

    /// Returns the [`SendEntries`] whose entry for work requests of type `KIND` is `cqe`.
    ///
    /// # Safety
    ///
    /// `cqe` was returned by [`SendEntries::get`] for the same `KIND`.
    #[inline]
    pub(super) unsafe fn of<const KIND: usize>(cqe: *mut bindings::ib_cqe) -> *mut Self {
        const { assert!(KIND < KINDS) };
        // CAST: The array of entries is the first member of the struct.
        // SAFETY: By the caller's contract `cqe` is element `KIND` of the array, so it is preceded
        // by `KIND` elements.
        unsafe { cqe.sub(KIND) }.cast()
    }
}
