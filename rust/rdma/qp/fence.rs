// SPDX-License-Identifier: GPL-2.0

//! The fence in front of registrations ([`Fence`]).

use crate::{
    mr::IdleMr,
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// A work request that a device begins only when everything before it is acknowledged.
///
/// Of use on devices that execute a registration again
/// ([`executes_again`](crate::device::executes_again)): the registrations behind it are then the
/// oldest in the queue, so they are done with before the Send behind them leaves, and sending the
/// queue again begins behind them. So none is executed again, which would cost the connection. The
/// price is that calls wait for the acknowledgements of others; so it is used from the first such
/// loss on ([`Repetitions`](crate::device::Repetitions)). It must be in front of the registrations
/// of each message that is posted by itself, for those of a second message would be behind the Send
/// of the first. Messages that are posted together share one: all their registrations are in front
/// of all their Sends.
///
/// No memory depends on it (see [`executes_again`](crate::device::executes_again)). Posted by
/// itself it tells when registrations have left the queue for good
/// ([`Qp::retire_registrations`](super::Qp::retire_registrations)).
///
/// It is the invalidation of a region that is never registered. What the device asks of one was
/// read in its source:
///
/// * **rxe**: `rxe_wqe_is_fenced` holds every local invalidation back until it is the oldest work
///   request, and `rxe_completer` takes it and the registrations behind it off the queue before
///   the next one is begun. `rxe_invalidate_mr` wants the region's last key and no certain state;
///   a new region has the key of its allocation and is free.
pub(super) struct Fence {
    wr: bindings::ib_send_wr,
    /// The region that is invalidated; dropped after the queue pair is destroyed.
    mr: IdleMr,
}

impl Fence {
    /// Makes the fence of a queue pair in this domain, if it may need one. May sleep.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Option<Self>> {
        if !pd.executes_again() {
            return Ok(None);
        }
        let mr = IdleMr::alloc(pd, 1, false)?;
        let wr = work_request(mr.key());
        Ok(Some(Self { wr, mr }))
    }

    /// Whether it belongs in front of the registrations of each message.
    pub(super) fn is_needed(&self) -> bool {
        self.mr.pd().fences()
    }

    /// Sets the completion entry of the work request; called before it is used.
    pub(super) fn bind(&mut self, cqe: *mut bindings::ib_cqe) {
        // CAST: The union's first member is the pointer, as 64 bits.
        self.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
    }

    /// Returns the work request, linked in front of `next`, which begins registrations.
    #[inline]
    pub(super) fn before(&mut self, next: *mut bindings::ib_send_wr) -> &mut bindings::ib_send_wr {
        self.wr.next = next;
        &mut self.wr
    }

    /// A copy of the work request, for a message that waits, or to be posted alone.
    pub(super) fn copy(&self) -> bindings::ib_send_wr {
        let mut copy = work_request(self.mr.key());
        copy.__bindgen_anon_1.bindgen_union_field = self.wr.__bindgen_anon_1.bindgen_union_field;
        copy
    }
}

fn work_request(key: u32) -> bindings::ib_send_wr {
    let mut wr = bindings::ib_send_wr {
        opcode: bindings::ib_wr_opcode_IB_WR_LOCAL_INV,
        ..Default::default()
    };
    wr.ex.bindgen_union_field = key;
    wr
}
