// SPDX-License-Identifier: GPL-2.0

//! Messages that wait for a doorbell, as a chain of work requests ([`SendChain`]).

use super::fence::Fence;
use crate::mr::ExposedMr;
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::lend::Lender;
use xprtrdma_bindings as bindings;

/// An entry of the chain, for a waiting registration or a waiting Send.
struct QueuedWr {
    /// The work request; only the first part of a Send is used.
    wr: bindings::ib_reg_wr,
    sge: bindings::ib_sge,
}

impl QueuedWr {
    /// The pointer to this work request for the one before it.
    fn link(&mut self) -> *mut bindings::ib_send_wr {
        // CAST: A registration begins with the part that all work requests have.
        ptr::from_mut(&mut self.wr).cast()
    }
}

/// Messages that wait for the doorbell: the registrations of all of them, then their Sends.
///
/// So each Send is behind the registrations of its regions, and one fence in front of the chain
/// is enough for all registrations.
///
/// A registration is a copy, so that the region's own work requests are free for an invalidation.
/// It refers to the region itself, which counts as posted from then on: it is not given back before
/// its invalidation is proven or its queue pair drained, and is leaked if it is dropped before.
///
/// # Invariants
///
/// - The first `len` places are in use. The work requests of a list are linked in the order of
///   their places, and the last one's `next` is null.
/// - Each place in use is in one of the lists. `registrations` begins with the fence, if there was
///   one to be when it began.
/// - `places` never grows: pointers lead into it.
pub(super) struct SendChain {
    places: KVec<QueuedWr>,
    pub(super) len: usize,
    registrations: Option<List>,
    sends: Option<List>,
    /// The completion entries of Sends and of registrations.
    send_cqe: *mut bindings::ib_cqe,
    reg_cqe: *mut bindings::ib_cqe,
    pub(super) messages: u32,
    /// If more entries than this are in use, the doorbell is rung at once, so that the longest
    /// message always finds free entries.
    pub(super) full: usize,
}

/// The places of the first and of the last work request of a list.
#[derive(Clone, Copy)]
struct List {
    first: usize,
    last: usize,
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
            registrations: None,
            sends: None,
            send_cqe: ptr::null_mut(),
            reg_cqe: ptr::null_mut(),
            messages: 0,
            full,
        })
    }

    /// Sets the completion entries; called before anything is added.
    pub(super) fn bind(&mut self, send: *mut bindings::ib_cqe, reg: *mut bindings::ib_cqe) {
        self.send_cqe = send;
        self.reg_cqe = reg;
    }

    /// Adds the registrations of `regions` and a Send of `sge`. The fence goes in front if these
    /// are the first registrations. `doorbell`: the number of the doorbell that they wait for, and
    /// that of the send queue's last invalidation. `ENOSPC`: they do not fit, and the chain is as
    /// before.
    pub(super) fn push<L: Lender>(
        &mut self,
        doorbell: (u32, u64),
        fence: Option<&Fence>,
        regions: &mut [ExposedMr<L>],
        (sge, flags): (bindings::ib_sge, c_int),
    ) -> Result {
        let first = self.registrations.is_none() && !regions.is_empty();
        let fence = fence.filter(|_| first);
        let wrs = usize::from(fence.is_some()) + regions.len() + 1;
        let begin = self.len;
        let places = self.places.get_mut(begin..).ok_or(ENOSPC)?;
        let (last, front) = places
            .get_mut(..wrs)
            .and_then(<[QueuedWr]>::split_last_mut)
            .ok_or(ENOSPC)?;
        last.sge = sge;
        last.wr.wr = bindings::ib_send_wr {
            sg_list: &mut last.sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: flags,
            ..Default::default()
        };
        // CAST: The union's first member is the pointer, as 64 bits.
        last.wr.wr.__bindgen_anon_1.bindgen_union_field = self.send_cqe as u64;
        let reg_cqe = self.reg_cqe;
        let (fences, registrations) = front.split_at_mut(usize::from(fence.is_some()));
        let mut next = ptr::null_mut();
        for (place, region) in registrations.iter_mut().zip(regions).rev() {
            place.wr = region.new_reg_wr(doorbell, reg_cqe, next);
            next = place.link();
        }
        if let (Some(fence), [place]) = (fence, fences) {
            place.wr.wr = fence.copy();
            place.wr.wr.next = next;
        }
        // INVARIANT: Linked just now, except for the links to what was there before.
        let end = begin + wrs - 1;
        if end > begin {
            self.registrations = Some(self.join(self.registrations, begin, end - 1));
        }
        self.sends = Some(self.join(self.sends, end, end));
        self.len += wrs;
        self.messages += 1;
        Ok(())
    }

    /// Appends the places from `first` to `last`, which are linked, to `list`.
    fn join(&mut self, list: Option<List>, first: usize, last: usize) -> List {
        let Some(list) = list else {
            return List { first, last };
        };
        let next = self.places.get_mut(first).map(QueuedWr::link);
        if let (Some(before), Some(next)) = (self.places.get_mut(list.last), next) {
            before.wr.wr.next = next;
        }
        List { last, ..list }
    }

    /// Empties the chain; returns its first work request, which is valid until something is added.
    pub(super) fn take(&mut self) -> Option<*const bindings::ib_send_wr> {
        self.messages = 0;
        // INVARIANT: None is in use.
        self.len = 0;
        let sends = self.sends.take()?;
        let all = match self.registrations.take() {
            Some(registrations) => self.join(Some(registrations), sends.first, sends.last),
            None => sends,
        };
        Some(self.places.get_mut(all.first)?.link())
    }
}
