// SPDX-License-Identifier: GPL-2.0

//! Memory regions: the peer's access to memory, and its end.
//!
//! A region is always in one of these types, and moves between them by value:
//!
//! ```text
//!          map()                    (queue pair posts it)
//!  IdleMr ───────▶ ExposedMr ─────────────────────────────┐
//!    ▲                │                                   │
//!    │   remotely_invalidated(&RemoteInvalidation, Echo)  │
//!    ├────────────────┤                                   │
//!    │   locally_invalidated(&LocalInvalidation)          │
//!    ├────────────────┤                                   │
//!    │   drained(): its queue pair is shut down           │
//!    ├────────────────┘                                   │
//!    └──────── unposted(): nothing was ever posted        ▼
//!                                        drop: deregistered, never reused
//! ```
//!
//! [`ExposedMr`] owns the [`Lender`] of its memory: the memory goes back to its owner when the
//! region is proven out of the peer's reach, and not before. The two proofs can only be made by the
//! completion handlers of [`qp`](crate::qp). Dropping an exposed region deregisters it, which is a
//! proof of its own but sleeps and loses the region.

mod exposed;
mod idle;
mod map;
mod proof;
mod table;

pub use exposed::ExposedMr;
pub use idle::IdleMr;
pub use map::MapError;
pub use proof::{
    Echo,
    LocalInvalidation,
    RemoteInvalidation, //
};

pub(crate) use exposed::FIRST_DOORBELL;
pub(crate) use proof::NO_PD;

use crate::{
    dma::Direction,
    pd::Pd, //
};
use core::{
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        fence,
        Ordering::Release, //
    },
};
use kernel::{
    bindings::scatterlist,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// The peer's rights to a region: least privilege (V1-108).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// RDMA Read only: the source of a Read chunk.
    RemoteRead,
    /// RDMA Write only: the sink of a Write or Reply chunk.
    RemoteWrite,
}

impl Access {
    #[inline]
    fn direction(self) -> Direction {
        match self {
            Self::RemoteRead => Direction::ToDevice,
            Self::RemoteWrite => Direction::FromDevice,
        }
    }

    #[inline]
    fn raw(self) -> c_int {
        let flags = match self {
            Self::RemoteRead => bindings::ib_access_flags_IB_ACCESS_REMOTE_READ,
            Self::RemoteWrite => {
                bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
        };
        // CAST: Access flags fit in 31 bits.
        flags as c_int
    }
}

/// How one region presents its memory to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Steering tag (rkey).
    pub handle: u32,
    /// Bytes.
    pub length: u32,
    /// Address of the first byte: its offset in its page, with random bits above. So no kernel
    /// address is shown, and a message that repeats the offset was made after the peer was told of
    /// the region.
    pub offset: u64,
}

/// The `ib_mr`, its scatterlist and its work requests: allocated once, and used for one call after
/// another.
///
/// # Invariants
///
/// - `mr` is valid until `drop`.
/// - `dev` is the device of `pd`.
/// - `sg` has been initialised by `sg_init_table` and is as long as the region is deep.
/// - `mapped` entries of `sg` are DMA-mapped for `access`.
/// - While nothing is mapped the region covers no bytes: see [`Inner::cover_nothing`].
struct Inner {
    mr: NonNull<bindings::ib_mr>,
    /// A copy, for it is needed twice for each call.
    dev: *mut bindings::ib_device,
    sg: KVec<scatterlist>,
    mapped: usize,
    access: Access,
    /// Whether pieces need not meet at page borders.
    gaps: bool,
    /// Greatest reach of one entry of the table: its memory ends at most this number of bytes
    /// behind the start of the page in which it begins.
    reach: usize,
    /// The address of the first byte, for the peer. Not read from the region: rxe writes there what
    /// it finds there when it executes a registration.
    offset: u64,
    /// The number of the last invalidation that was posted before the last registration; 0 before
    /// the first.
    queued_at: u64,
    // The work requests for registration and invalidation. They are complete except for `next`, the
    // completion entry of the first, and the key.
    reg: bindings::ib_reg_wr,
    inv: bindings::ib_send_wr,
    pd: Arc<Pd>,
}

// SAFETY: Owned; `ib_mr` has no thread affinity.
unsafe impl Send for Inner {}

// SAFETY: `&Inner` only reads.
unsafe impl Sync for Inner {}

impl Inner {
    /// Whether a send queue may still have a registration of the region, so that the device may
    /// execute it again.
    fn may_be_queued(&self) -> bool {
        self.queued_at >= self.pd.retired() && self.pd.executes_again() && !self.pd.is_drained()
    }

    /// Makes the region cover no bytes, so that a key which a repeated registration brings back to
    /// life reaches nothing. To be called before the memory goes back.
    ///
    /// rxe compares address and length with each packet, the last time right before it copies
    /// (`mr_check_range()`). Other devices know them from the registration, and this says nothing
    /// to them.
    // Into the way of a predicted reply, as `unmap`.
    #[inline(always)]
    fn cover_nothing(&mut self) {
        if cfg!(xprtrdma_upstream) {
            return;
        }
        let mr = self.mr.as_ptr();
        // SAFETY: The region is valid, and the pointer is to one of its fields.
        let length = unsafe { &raw mut (*mr).length };
        // SAFETY: Valid and aligned. No other thread of ours writes it while we own the region;
        // the device may read it at any time, for which one store of a word will do.
        unsafe { length.write_volatile(0) };
        // ORDERING: Whatever is written to the memory from now on is seen behind this.
        fence(Release);
    }

    // Inlined into the path of a predicted reply, which saves 8 instructions of an RPC.
    #[inline(always)]
    fn unmap(&mut self) {
        if self.mapped != 0 {
            // SAFETY: `mapped` entries are mapped for this direction by the type invariant. The
            // device keeps its existence through `pd`.
            unsafe {
                bindings::xprtrdma_dma_unmap_sg(
                    self.dev,
                    self.sg.as_mut_ptr(),
                    self.mapped as c_int,
                    self.access.direction().raw(),
                )
            };
            // INVARIANT: Nothing is mapped now.
            self.mapped = 0;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.may_be_queued() {
            // The device would use a region that is no more. Its domain has to stay, too.
            pr_err!("a region was dropped while a send queue may have its registration\n");
            self.cover_nothing();
            self.unmap();
            core::mem::forget(self.pd.clone());
            return;
        }
        // SAFETY: Valid by the type invariant and not used again, also not by a send queue.
        // Deregistration ends the peer's access, so unmapping afterwards is safe in every state.
        unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) };
        self.unmap();
    }
}
