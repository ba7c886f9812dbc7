// SPDX-License-Identifier: GPL-2.0

//! The receive queue: buffers of one size. The server adds buffers to a connection that is in use.
//!
//! Each buffer has its own completion entry, which identifies the buffer in a completion. Buffers
//! are posted again in batches. A buffer that is free when the handler of its message returns is
//! collected without a lock. The lock is taken only to post a batch of these buffers.

use crate::{
    dma::{
        Direction,
        DmaBuf, //
    },
    pd::Pd, //
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

/// The function that ib_core calls for a completion.
pub(super) type Done = unsafe extern "C" fn(*mut bindings::ib_cq, *mut bindings::ib_wc);

/// A receive buffer of a queue pair of type `Q`, and its work request.
///
/// # Invariants
///
/// - `wr` refers to `cqe` and to `sge`, and `sge` refers to `mem`. All are in a table of `qp`, and
///   do not move while the table exists. The pointer to `cqe` may be used to access the whole
///   object.
/// - From the first post on, `qp` is the pointer from the `Arc` of the queue pair.
/// - Only the owner of the buffer accesses `wr` and `memory`.
// The field `cqe` is the first field, so that it has the same address as the whole object.
#[repr(C)]
pub(super) struct RecvBuf<Q> {
    pub(super) cqe: Opaque<bindings::ib_cqe>,
    wr: Opaque<bindings::ib_recv_wr>,
    sge: Opaque<bindings::ib_sge>,
    pub(super) mem: DmaBuf,
    pub(super) qp: UnsafeCell<*const Q>,
    /// Additional memory for the owner of a message in this buffer. The memory stays allocated for
    /// the next message in the same buffer.
    #[cfg(xprtrdma_server)]
    pub(super) memory: UnsafeCell<KVec<u64>>,
}

impl<Q> RecvBuf<Q> {
    /// Allocates `count` buffers of `size` bytes for a queue pair. `done` handles their
    /// completions. May sleep.
    pub(super) fn table(
        pd: &Arc<Pd>,
        count: usize,
        size: usize,
        done: Done,
    ) -> Result<KVVec<Self>> {
        let mut table = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            let mem = DmaBuf::new(pd, size, Direction::FromDevice)?;
            let buf = Self {
                cqe: Opaque::new(bindings::ib_cqe { done: Some(done) }),
                wr: Opaque::new(Default::default()),
                sge: Opaque::new(mem.sge(0, mem.len())),
                mem,
                qp: UnsafeCell::new(ptr::null()),
                #[cfg(xprtrdma_server)]
                memory: UnsafeCell::new(KVec::new()),
            };
            table.push(buf, GFP_KERNEL)?;
        }
        Ok(Self::bind(table))
    }

    /// Sets the pointers in the buffers of a table. No buffer may be added to the table later.
    fn bind(mut table: KVVec<Self>) -> KVVec<Self> {
        for buf in table.iter_mut() {
            let this = ptr::from_mut(buf);
            // SAFETY: The pointer refers to a field of a valid object.
            let cqe = unsafe { &raw mut (*this).cqe };
            // INVARIANT: The table is complete, and its entries do not move any more.
            buf.wr = Opaque::new(bindings::ib_recv_wr {
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
                    bindgen_union_field: cqe as u64,
                    ..Default::default()
                },
                sg_list: buf.sge.get(),
                num_sge: 1,
                ..Default::default()
            });
        }
        table
    }

    /// Links all buffers of a table.
    ///
    /// # Safety
    ///
    /// `qp` is the pointer from the `Arc` of the queue pair. No other code has the buffers yet, and
    /// they stay in `table` until the queue pair is destroyed.
    pub(super) unsafe fn all(table: &KVVec<Self>, qp: *const Q) -> Chain {
        let mut all = Chain::EMPTY;
        for buf in table {
            // SAFETY: By this function's contract no other code has the buffer.
            unsafe { *buf.qp.get() = qp };
            // SAFETY: By this function's contract no other code has the buffer.
            unsafe { all.push(buf) };
        }
        all
    }
}

/// Receive buffers of one queue pair that are free and wait to be posted, linked by their work
/// requests.
pub(super) struct Chain {
    pub(super) first: *mut bindings::ib_recv_wr,
    pub(super) len: u32,
}

// SAFETY: The linked buffers belong to the chain, so the thread that owns the chain may use them.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const EMPTY: Self = Self {
        first: ptr::null_mut(),
        len: 0,
    };

    /// Adds a buffer, which belongs to the chain from then on.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and does not use it afterwards.
    #[inline]
    pub(super) unsafe fn push<Q>(&mut self, buf: &RecvBuf<Q>) {
        buf.mem.sync_for_device(0, buf.mem.len());
        let wr = buf.wr.get();
        // SAFETY: By the type invariant the buffer is valid, and it belongs to the caller.
        unsafe { (*wr).next = self.first };
        self.first = wr;
        // NO-OVERFLOW: A queue pair has far fewer than 2^32 buffers.
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    pub(super) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

pub(super) struct RecvQueue<Q> {
    /// The queue pair's reference to itself. The last [`Held`](super::Held) drops it. `Some` only
    /// if a [`Held`](super::Held) still existed when the owner of the queue pair was dropped.
    pub(super) own: Option<Arc<Q>>,
    /// The tables that contain all receive buffers. The vector of tables never grows beyond its
    /// capacity.
    pub(super) tables: KVec<KVVec<RecvBuf<Q>>>,
    /// Number of buffers that may still be added.
    #[cfg(xprtrdma_server)]
    pub(super) may_add: u16,
    /// The free buffers of dropped [`Held`](super::Held) objects.
    pub(super) returned: Chain,
    /// Number of Receives that have been posted, modulo 2^32.
    pub(super) posted: u32,
    pub(super) closed: bool,
    /// Whether a post of Receives has failed in a thread that must not report failures. The work
    /// item that rings the doorbell reports this failure.
    pub(super) failed: bool,
}
