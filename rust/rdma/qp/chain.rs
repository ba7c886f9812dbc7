// SPDX-License-Identifier: GPL-2.0

//! Messages that wait for a doorbell, as a chain of work requests ([`SendChain`]).

use super::fence::Fence;
use crate::mr::ExposedMr;
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::lend::Lender;
use xprtrdma_bindings as bindings;

/// A place for a registration or a Send that waits.
struct QueuedWr {
    /// The work request; of a Send the first part only.
    wr: bindings::ib_reg_wr,
    sge: bindings::ib_sge,
}

/// Messages that wait for the doorbell, each behind the registrations of its regions.
///
/// A registration is a copy, so that the region's own work requests are free for an invalidation.
/// It refers to the region itself, which counts as posted from then on: it is not given back before
/// its invalidation is proven or its queue pair drained, and is leaked if it is dropped before.
///
/// # Invariants
///
/// - The first `len` places are in use. Their work requests are linked in that order, and the last
///   one's `next` is null.
/// - `places` never grows: pointers lead into it.
pub(super) struct SendChain {
    places: KVec<QueuedWr>,
    pub(super) len: usize,
    pub(super) messages: u32,
    /// With more places in use nothing waits, so that the longest message still finds its own.
    pub(super) full: usize,
}

// SAFETY: What the places refer to is the chain's own, or belongs to the queue pair, or is a region
// that its owner keeps; nothing of it has thread affinity.
unsafe impl Send for SendChain {}

impl SendChain {
    pub(super) fn new(message: u16, full: u16) -> Result<Self> {
        let (message, full) = (usize::from(message), usize::from(full));
        let mut places = KVec::with_capacity(message + full, GFP_KERNEL)?;
        for _ in 0..message + full {
            let place = QueuedWr {
                wr: Default::default(),
                sge: Default::default(),
            };
            places.push(place, GFP_KERNEL)?;
        }
        // INVARIANT: None is in use.
        Ok(Self {
            places,
            len: 0,
            messages: 0,
            full,
        })
    }

    /// Adds the fence, if there are registrations, those of `regions`, and a Send of `sge`, for the
    /// doorbell with this number, all with this completion entry. `ENOSPC`: that does not fit, and
    /// the chain is as before.
    pub(super) fn push<L: Lender>(
        &mut self,
        doorbell: u32,
        fence: Option<&Fence>,
        regions: &mut [ExposedMr<L>],
        (sge, flags): (bindings::ib_sge, c_int),
        cqe: *mut bindings::ib_cqe,
    ) -> Result {
        let fence = fence.filter(|_| !regions.is_empty());
        let wrs = regions.len() + 1 + usize::from(fence.is_some());
        let (used, free) = self.places.split_at_mut(self.len);
        let places = free.get_mut(..wrs).ok_or(ENOSPC)?;
        let (last, places) = places.split_last_mut().ok_or(ENOSPC)?;
        let (front, places) = places.split_at_mut(usize::from(fence.is_some()));
        last.sge = sge;
        last.wr.wr = bindings::ib_send_wr {
            sg_list: &mut last.sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: flags,
            ..Default::default()
        };
        // CAST: The union's first member is the pointer, as 64 bits.
        last.wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        // CAST: The first member of a registration is what all work requests have.
        let mut next = ptr::from_mut(&mut last.wr).cast();
        for (place, region) in places.iter_mut().zip(regions).rev() {
            place.wr = region.new_reg_wr(doorbell, cqe, next);
            next = ptr::from_mut(&mut place.wr).cast();
        }
        if let (Some(fence), [place]) = (fence, front) {
            place.wr.wr = fence.copy();
            place.wr.wr.next = next;
            // CAST: As above.
            place.wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
            next = ptr::from_mut(&mut place.wr).cast();
        }
        if let Some(before) = used.last_mut() {
            before.wr.wr.next = next;
        }
        // INVARIANT: Linked just now.
        self.len += wrs;
        self.messages += 1;
        Ok(())
    }

    /// Empties the chain; returns its beginning, which is valid until something is added.
    pub(super) fn take(&mut self) -> Option<*const bindings::ib_send_wr> {
        self.messages = 0;
        // INVARIANT: None is in use.
        let used = self.places.get(..core::mem::take(&mut self.len))?;
        // CAST: As in `push`.
        Some(ptr::from_ref(&used.first()?.wr).cast())
    }
}
