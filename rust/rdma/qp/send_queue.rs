// SPDX-License-Identifier: GPL-2.0

//! The send queue: a ring of bytes, of which each Send takes a part, and work requests.
//!
//! A message is copied to the ring once; nothing else is referenced by a Send, so no memory of an
//! RPC is ever owned by the queue. Most Sends are unsignalled: a signalled one gives back all
//! before it.
//!
//! A message that was completed is overwritten. siw completes an unsignalled Send when TCP has it,
//! and splices pages into TCP's queue only where a page has a reference count of its own; it copies
//! out of a buffer of the allocator.
//!
//! That relies on a property of verbs: work requests of a send queue complete in the order in which
//! they were posted. So one `ib_cqe` suffices for the queue, and a ring takes the place of a list.

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

// Alignment of Sends in the byte ring: a cache line.
const ALIGN: usize = 64;

/// Bytes of the ring that a message takes; it is not longer than the ring.
#[inline]
pub(super) fn aligned(len: usize) -> usize {
    // NO-OVERFLOW: The ring is memory, so its length is far from the end of the numbers.
    len.wrapping_add(ALIGN - 1) & !(ALIGN - 1)
}

#[inline]
pub(super) fn flags(signalled: bool) -> c_int {
    if signalled {
        // CAST: A single bit.
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
    /// An invalidation with this number. When it completes, the device is done with all earlier
    /// registrations.
    Retirement(u64),
    #[cfg(xprtrdma_server)]
    Transfer,
}

/// A signalled post to the send queue, with what its completion frees: its own bytes and work
/// requests, and those of all posts since the signalled one before.
#[derive(Clone, Copy)]
struct Op {
    bytes: usize,
    wrs: u32,
    kind: OpKind,
}

pub(super) struct SendQueue {
    pub(super) ring: DmaBuf,
    /// Where in the ring the next message goes, and how many bytes of the ring are in use.
    pub(super) head: usize,
    pub(super) used: usize,
    /// The signalled posts.
    ops: Fifo<Op>,
    pub(super) wrs: u32,
    depth: u32,
    // Bytes and work requests posted since the last signalled post, and the limits at which the
    // next one is signalled.
    quiet_wrs: u32,
    quiet_bytes: usize,
    quiet_wrs_most: u32,
    quiet_bytes_most: usize,
    pub(super) seq: u64,
    pub(super) closed: bool,
    pub(super) want_space: bool,
    /// More flags of signalled work requests, apart from RDMA Reads: a fence where they would
    /// otherwise complete before Reads that were posted earlier.
    #[cfg(xprtrdma_server)]
    signal_flags: c_int,
    /// Transfers that were posted and have not completed, in the order of posting. Never grows
    /// beyond its capacity.
    #[cfg(xprtrdma_server)]
    pub(super) transfers: KVec<KBox<Transfer>>,
    // The work request of a Send and its element. What they refer to is only used within one post.
    pub(super) send: bindings::ib_send_wr,
    pub(super) sge: bindings::ib_sge,
    pub(super) chain: SendChain,
    /// The fence in front of registrations, on devices that may need a fence.
    pub(super) fence: Option<Fence>,
    /// Number of work requests that the fence takes in front of each message's registrations.
    pub(super) fence_wrs: u32,
    /// Whether registrations were posted without a fence in front of them.
    pub(super) unfenced: bool,
    /// Number of further messages that are posted at once and do not wait for a shared doorbell.
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
            // At most a quarter of each resource is used by posts behind the last signalled one. So
            // a full queue always has a completion under way.
            quiet_wrs_most: config.signal_every.min(config.send_wrs / 4),
            quiet_bytes_most,
            seq: FIRST_SEQ,
            closed: false,
            want_space: false,
            #[cfg(xprtrdma_server)]
            signal_flags: match pd.overtakes() {
                // CAST: A single bit.
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
        // CAST: The union's first member is the pointer, as 64 bits.
        self.send.__bindgen_anon_1.bindgen_union_field = send as u64;
        if let Some(own) = &mut self.fence {
            own.bind(fence);
        }
        self.chain.bind(send, entries.get::<REG_MR>());
    }

    /// Allocates the ring: `send_bytes` long if there is memory, if not a shorter one, down to
    /// `least_send_bytes`.
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

    /// Finds space for `len` contiguous bytes and `wrs` work requests, and for a fence in front of
    /// the work requests if the device needs a fence. Returns the offset of the bytes.
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
        // NO-OVERFLOW: The ring is memory, and `len` and `head` are at most its length.
        let len = aligned(len);
        if self.head.wrapping_add(len) > size {
            return self.has_room_at_start(len).then_some(0);
        }
        (self.used.wrapping_add(len) <= size).then_some(self.head)
    }

    /// Whether `len` bytes fit at the start of the ring. Asked if they do not fit behind the head.
    #[cold]
    #[inline(never)]
    fn has_room_at_start(&self, len: usize) -> bool {
        // NO-OVERFLOW: The ring is memory, and each of the three is at most about its length.
        self.used.wrapping_add(self.behind_head()).wrapping_add(len) <= self.ring.len()
    }

    /// Bytes from the head to the end of the ring.
    fn behind_head(&self) -> usize {
        // NO-OVERFLOW: The head is in the ring.
        self.ring.len().wrapping_sub(self.head)
    }

    /// Accounts for the bytes behind the head, because the next message begins at the start of the
    /// ring: [`Self::room`] has returned an offset that is not the head's.
    #[cold]
    #[inline(never)]
    pub(super) fn skip(&mut self) {
        self.account(self.behind_head(), 0);
    }

    /// Accounts for a post, for which there is room.
    #[inline]
    pub(super) fn account(&mut self, bytes: usize, wrs: u32) {
        // NO-OVERFLOW: No more bytes and work requests are in use than exist, and what is quiet is
        // in use.
        self.quiet_wrs = self.quiet_wrs.wrapping_add(wrs);
        self.quiet_bytes = self.quiet_bytes.wrapping_add(bytes);
        self.wrs = self.wrs.wrapping_add(wrs);
        self.used = self.used.wrapping_add(bytes);
    }

    /// Whether the last post must be signalled.
    #[inline]
    pub(super) fn must_signal(&self) -> bool {
        self.quiet_wrs >= self.quiet_wrs_most || self.quiet_bytes >= self.quiet_bytes_most
    }

    /// Makes the last post a signalled one.
    #[cold]
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

    /// The flags of a work request that is no RDMA Read.
    #[inline]
    pub(super) fn flags(&self, signalled: bool) -> c_int {
        #[cfg(xprtrdma_server)]
        if signalled {
            return flags(signalled) | self.signal_flags;
        }
        flags(signalled)
    }

    /// Frees everything up to the oldest signalled post, whose completion arrived.
    pub(super) fn complete(&mut self) -> Option<OpKind> {
        let op = self.ops.pop()?;
        self.wrs -= op.wrs;
        self.used -= op.bytes;
        if let Some(fence) = &self.fence {
            // Another queue pair may have found that this device needs the fence.
            self.fence_wrs = fence.is_needed().into();
        }
        Some(op.kind)
    }
}

/// The kinds of work requests on a send queue, as indices of [`SendEntries`].
pub(super) const SEND: usize = Opcode::Send as usize;
pub(super) const REG_MR: usize = Opcode::RegMr as usize;
pub(super) const LOCAL_INV: usize = Opcode::LocalInv as usize;
pub(super) const RDMA_WRITE: usize = Opcode::RdmaWrite as usize;
const KINDS: usize = RDMA_WRITE + 1;

/// The kind of work requests with this index.
pub(super) const fn opcode(kind: usize) -> Opcode {
    match kind {
        REG_MR => Opcode::RegMr,
        LOCAL_INV => Opcode::LocalInv,
        RDMA_WRITE => Opcode::RdmaWrite,
        _ => Opcode::Send,
    }
}

/// The completion entries of the send queue of a [`Qp`](super::Qp), one for each kind of work
/// request. A completion that reports an error identifies its work request only by this.
///
/// # Invariants
///
/// Once something is posted, each of `ptrs` points to the entry of its kind, and leads to the whole
/// queue pair as its `Arc` knows it.
#[repr(C)]
pub(super) struct SendEntries {
    cqes: [Opaque<bindings::ib_cqe>; KINDS],
    ptrs: UnsafeCell<[*mut bindings::ib_cqe; KINDS]>,
}

impl SendEntries {
    /// Makes entries whose completions these functions handle, in the order of their kinds. They
    /// can be used after [`SendEntries::bind`].
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
    /// `this` is valid and leads to the whole queue pair, which is not moved. It is not used
    /// yet.
    pub(super) unsafe fn bind(this: *const Self) {
        // SAFETY: By the caller's contract.
        let (first, ptrs) = unsafe { (&raw const (*this).cqes, (*this).ptrs.get()) };
        // CAST: `Opaque` is transparent, and an array begins with its first element.
        let first: *mut bindings::ib_cqe = first.cast_mut().cast();
        // INVARIANT: Each pointer leads to the entry of its kind.
        let all = core::array::from_fn(|kind| first.wrapping_add(kind));
        // SAFETY: By the caller's contract.
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
        // CAST: The entries are the first member.
        // SAFETY: By the caller's contract `cqe` is element `KIND` of the array, so `KIND` elements
        // are in front of it.
        unsafe { cqe.sub(KIND) }.cast()
    }
}
