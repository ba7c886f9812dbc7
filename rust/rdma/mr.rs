// SPDX-License-Identifier: GPL-2.0

//! Memory regions: how the peer gets access to memory, and how the access is revoked.
//!
//! A region always has one of these types. The methods that change its type take the region by
//! value:
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
//! [`ExposedMr`] owns the [`Lender`] of its memory. The memory goes back to its owner only when the
//! peer cannot access the region any more. Two of the methods need a proof that the region was
//! invalidated: a [`RemoteInvalidation`] or a [`LocalInvalidation`]. Only the completion handlers
//! of [`qp`](crate::qp) can make these proofs.
//!
//! Dropping an exposed region deregisters it. The deregistration also ends the peer's access, but
//! it sleeps, and the region cannot be used again.

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

#[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
pub(crate) use table::mark_end;
#[cfg(xprtrdma_rds)]
pub(crate) use table::Filling;

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

/// The peer's access rights to a region. They are never wider than needed (V1-108).
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
        // CAST: Access flags fit into 31 bits, so the result of the cast is not negative.
        flags as c_int
    }
}

/// What the peer is told about one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Steering tag (rkey).
    pub handle: u32,
    /// Number of bytes.
    pub length: u32,
    /// Address of the first byte. The lower bits are the offset in the page. The upper bits are
    /// random, so that the peer learns no kernel address, and cannot guess this address. So a
    /// message with this address proves that its sender has received the description of the region.
    pub offset: u64,
}

/// The `ib_mr`, its scatterlist and its work requests. They are allocated once and reused for one
/// RPC call after another.
///
/// # Invariants
///
/// - `mr` is valid until `ended` is set.
/// - `dev` is the device of `pd`.
/// - `sg` has been initialised by `sg_init_table`, and has one entry for each page that the region
///   can hold.
/// - `mapped` entries of `sg` are DMA-mapped for `access`.
/// - While nothing is mapped the region covers no bytes: see [`Inner::cover_nothing`].
struct Inner {
    mr: NonNull<bindings::ib_mr>,
    /// A copy of the domain's device pointer, because each RPC call needs it twice.
    dev: *mut bindings::ib_device,
    sg: KVec<scatterlist>,
    mapped: usize,
    access: Access,
    /// Whether pieces of memory may begin and end within a page.
    gaps: bool,
    /// Maximum distance, in bytes, from the start of a scatterlist entry's first page to the end of
    /// the entry.
    reach: usize,
    /// The address of the first byte, as the peer sees it. This copy is used because the address in
    /// the `ib_mr` may be wrong: rxe may overwrite that address with an earlier one when rxe
    /// executes a registration again.
    offset: u64,
    /// Sequence number of the last invalidation on the send queue that was posted before the
    /// region's last registration. 0 if the region was never registered.
    queued_at: u64,
    /// Whether [`Inner::deregister`] was called.
    ended: bool,
    // The work requests for registration and invalidation. They are complete except for `next`, the
    // key, and the completion entry of the registration.
    reg: bindings::ib_reg_wr,
    inv: bindings::ib_send_wr,
    pd: Arc<Pd>,
}

// SAFETY: The object owns the region, and an `ib_mr` has no thread affinity.
unsafe impl Send for Inner {}

// SAFETY: Through a `&Inner`, threads only read.
unsafe impl Sync for Inner {}

impl Inner {
    /// Returns whether a send queue may still contain a registration of the region. If so, the
    /// device may execute the registration again.
    fn may_be_queued(&self) -> bool {
        self.queued_at >= self.pd.retired() && self.pd.executes_again() && !self.pd.is_drained()
    }

    /// Sets the length of the region to zero. If the device executes the registration again, the
    /// key becomes valid again. With this length the key gives no access to memory. Must be called
    /// before the memory goes back to its lender.
    ///
    /// This function is for rxe, which checks each packet against the address and the length in the
    /// region. The last check is right before rxe copies the data (`mr_check_range()`). Other
    /// devices take address and length from the registration, so this function does not affect
    /// them.
    // This function is inlined, because it runs for each reply that has the expected form.
    #[inline(always)]
    fn cover_nothing(&mut self) {
        if cfg!(xprtrdma_upstream_rxe) {
            return;
        }
        let mr = self.mr.as_ptr();
        // SAFETY: The region is valid, and the pointer refers to one of its fields.
        let length = unsafe { &raw mut (*mr).length };
        // SAFETY: The pointer is valid and aligned. No other thread of this module writes the
        // length, because the caller owns the region. The device may read the length at any time.
        // It reads the old or the new length, because a single store writes the whole field.
        unsafe { length.write_volatile(0) };
        // ORDERING: Later writes to the region's memory become visible after the new length.
        fence(Release);
    }

    // This function is inlined, because that saves 8 instructions for each reply that has the
    // expected form.
    #[inline(always)]
    fn unmap(&mut self) {
        if self.mapped != 0 {
            // SAFETY: By the type invariant, `mapped` entries are mapped for this direction. `pd`
            // keeps the device alive.
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

    /// Deregisters the region, which must not be used afterwards. Does nothing if it was called
    /// before. Returns false if the device refuses; the key may then still give access to memory.
    /// May sleep.
    fn deregister(&mut self) -> bool {
        if core::mem::replace(&mut self.ended, true) {
            return true;
        }
        if self.may_be_queued() {
            // The device may still use the region, so the region is never freed. The protection
            // domain must exist as long as the region, so a reference to it is leaked.
            // LOG: A fault of this module: the region is never freed. Report it.
            pr_err!("a region was dropped while a send queue may have its registration\n");
            self.cover_nothing();
            core::mem::forget(self.pd.clone());
            return true;
        }
        // SAFETY: By the type invariant, the region is valid. No thread and no send queue uses it
        // afterwards.
        unsafe { bindings::ib_dereg_mr_user(self.mr.as_ptr(), ptr::null_mut()) == 0 }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.deregister();
        // Deregistration ends the peer's access, so unmapping afterwards is safe in every state.
        self.unmap();
    }
}
