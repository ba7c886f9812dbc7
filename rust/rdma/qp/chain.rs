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
    /// The work request, which has the type of a registration. A Send uses only the first part of
    /// this structure.
    wr: bindings::ib_reg_wr,
    sge: bindings::ib_sge,
}

impl QueuedWr {
    /// Returns the pointer for the `next` field of the preceding work request.
    fn link(&mut self) -> *mut bindings::ib_send_wr {
        // CAST: A registration begins with the part that all types of work requests share.
        ptr::from_mut(&mut self.wr).cast()
    }
}

/// The messages that wait for the doorbell: first the registrations of all messages, then all
/// Sends.
///
/// In this order each Send is after the registrations of its regions, and one fence before the
/// chain is sufficient for all registrations.
///
/// The chain contains copies of the registrations, because the work requests that are stored in a
/// region may be needed for its invalidation. Each copy refers to its region. So the region counts
/// as posted as soon as the copy is in the chain. Its memory is returned only after the
/// invalidation is known to be complete, or after the queue pair is drained. A region that is
/// dropped earlier is leaked.
///
/// # Invariants
///
/// - The first `len` entries of `places` are in use. The work requests of a list are linked in the
///   order of their entries, and the `next` of the last one is null.
/// - Each entry in use belongs to one of the two lists. `registrations` begins with a fence if a
///   fence was needed when the list was started.
/// - `places` never grows, because pointers refer to its entries.
pub(super) struct SendChain {
    places: KVec<QueuedWr>,
    pub(super) len: usize,
    registrations: Option<List>,
    sends: Option<List>,
    /// The completion entries of Sends and of registrations.
    send_cqe: *mut bindings::ib_cqe,
    reg_cqe: *mut bindings::ib_cqe,
    pub(super) messages: u32,
    /// If more entries than this are in use, the doorbell is rung immediately. So there are always
    /// enough free entries for the longest possible message.
    pub(super) full: usize,
}

/// The indices of the first and of the last work request of a list.
#[derive(Clone, Copy)]
struct List {
    first: usize,
    last: usize,
}

// SAFETY: The entries refer to memory of the chain itself or of the queue pair, or to a region that
// its owner keeps. Any thread may use this memory and these regions.
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
        // INVARIANT: No entry is in use.
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

    /// Sets the completion entries. Must be called before the first message is added.
    pub(super) fn bind(&mut self, send: *mut bindings::ib_cqe, reg: *mut bindings::ib_cqe) {
        self.send_cqe = send;
        self.reg_cqe = reg;
    }

    /// Adds the registrations of `regions` and a Send of `sge`. If these are the first
    /// registrations in the chain, adds `fence` before them. Returns `ENOSPC`, and does nothing, if
    /// the chain does not have enough free entries.
    ///
    /// `doorbell` is a pair of numbers: the number of the doorbell for which these work requests
    /// wait, and the number of the last invalidation on the send queue.
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
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
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
        // INVARIANT: The new entries are linked above. The links to the earlier entries follow
        // below.
        let end = begin + wrs - 1;
        if end > begin {
            self.registrations = Some(self.join(self.registrations, begin, end - 1));
        }
        self.sends = Some(self.join(self.sends, end, end));
        self.len += wrs;
        self.messages += 1;
        Ok(())
    }

    /// Appends the entries from `first` to `last`, which are already linked, to `list`. Returns the
    /// longer list.
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

    /// Empties the chain. Returns its first work request, which is valid until the next message is
    /// added.
    pub(super) fn take(&mut self) -> Option<*const bindings::ib_send_wr> {
        self.messages = 0;
        // INVARIANT: No entry is in use.
        self.len = 0;
        let sends = self.sends.take()?;
        let all = match self.registrations.take() {
            Some(registrations) => self.join(Some(registrations), sends.first, sends.last),
            None => sends,
        };
        Some(self.places.get_mut(all.first)?.link())
    }
}
