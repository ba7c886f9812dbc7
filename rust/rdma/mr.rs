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
use core::ptr::{
    self,
    NonNull, //
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
    /// Address of the first byte: its offset in its page, and random bits above. So no kernel
    /// address is shown, and a message that repeats it was made when the peer had been told.
    pub offset: u64,
}

/// The `ib_mr`, its scatterlist and its work requests: allocated once, used for one call after the
/// other.
///
/// # Invariants
///
/// - `mr` is valid until `drop`.
/// - `sg` has been initialised by `sg_init_table` and is as long as the region is deep.
/// - `mapped` entries of `sg` are DMA-mapped for `access`.
struct Inner {
    mr: NonNull<bindings::ib_mr>,
    sg: KVec<scatterlist>,
    mapped: usize,
    access: Access,
    /// Whether pieces need not meet at page borders.
    gaps: bool,
    /// One entry of the table takes memory that ends at most this number of bytes behind the
    /// beginning of the page in which it begins.
    reach: usize,
    // Only `next` and the completion entry are missing in the one, and the key in both.
    reg: bindings::ib_reg_wr,
    inv: bindings::ib_send_wr,
    pd: Arc<Pd>,
}

// SAFETY: Owned; `ib_mr` has no thread affinity.
unsafe impl Send for Inner {}

// SAFETY: `&Inner` only reads.
unsafe impl Sync for Inner {}

impl Inner {
    // Into the way of a predicted reply: 8 instructions of an RPC.
    #[inline(always)]
    fn unmap(&mut self) {
        if self.mapped != 0 {
            // SAFETY: `mapped` entries are mapped for this direction by the type invariant. The
            // device keeps its existence through `pd`.
            unsafe {
                bindings::xprtrdma_dma_unmap_sg(
                    self.pd.raw_device(),
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
        // SAFETY: Valid by the type invariant and not used again. Deregistration ends the peer's
        // access, so unmapping afterwards is safe in every state.
        unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) };
        self.unmap();
    }
}
