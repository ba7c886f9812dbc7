// SPDX-License-Identifier: GPL-2.0

//! The fence before registrations ([`Fence`]).

use crate::{
    mr::IdleMr,
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// A work request that a device starts only when all earlier work requests are acknowledged.
///
/// Some devices execute a registration a second time if a retransmission includes it
/// ([`executes_again`](crate::device::executes_again)). The second execution breaks the connection.
/// A fence before the registrations prevents this:
///
/// - When the fence starts, all earlier work requests have been acknowledged and have left the
///   queue.
/// - So the registrations that follow the fence are at the head of the queue. They leave the queue
///   before the device transmits the next Send.
/// - A later retransmission begins with a work request that is still in the queue. So it does not
///   include these registrations.
///
/// A fence has a cost: a call waits for the acknowledgements of other calls. So fences are used
/// only after the first repeated registration has broken a connection
/// ([`Repetitions`](crate::device::Repetitions)).
///
/// A message that is posted alone needs a fence before its registrations, because the Send of the
/// previous message may be unacknowledged. Messages that are posted together share one fence,
/// because all their registrations precede all their Sends.
///
/// The protection of memory does not depend on the fence (see
/// [`executes_again`](crate::device::executes_again)).
///
/// A fence that is posted alone has another purpose. Its completion shows that the device has
/// finished all earlier registrations
/// ([`Qp::retire_registrations`](super::Qp::retire_registrations)).
///
/// The fence is an invalidation of a region that is never registered. The source of the devices'
/// drivers shows that this has the required effect:
///
/// * **rxe**: `rxe_wqe_is_fenced` delays every local invalidation until it is the oldest work
///   request. `rxe_completer` removes the invalidation and the registrations after it from the
///   queue before the next work request starts. `rxe_invalidate_mr` requires the region's current
///   key, but no particular state. A region that was never registered has the key of its
///   allocation.
pub(super) struct Fence {
    wr: bindings::ib_send_wr,
    /// The region that is invalidated. It is dropped after the queue pair is destroyed.
    mr: IdleMr,
}

impl Fence {
    /// Creates the fence for a queue pair in this domain, if the device may need one. May sleep.
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Option<Self>> {
        if !pd.executes_again() {
            return Ok(None);
        }
        let mr = IdleMr::alloc(pd, 1, false)?;
        let wr = work_request(mr.key());
        Ok(Some(Self { wr, mr }))
    }

    /// Returns true if the fence must precede the registrations of each message.
    #[cfg_attr(xprtrdma_rds, inline)]
    pub(super) fn is_needed(&self) -> bool {
        self.mr.pd().fences()
    }

    /// Sets the completion entry of the work request. Must be called before the first use.
    pub(super) fn bind(&mut self, cqe: *mut bindings::ib_cqe) {
        // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
        self.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
    }

    /// Links the fence's work request in front of `next`, which is the first registration. Returns
    /// the fence's work request.
    #[inline]
    pub(super) fn before(&mut self, next: *mut bindings::ib_send_wr) -> &mut bindings::ib_send_wr {
        self.wr.next = next;
        &mut self.wr
    }

    /// Returns a copy of the fence's work request. Copies are used for messages that wait for a
    /// doorbell, and for fences that are posted alone.
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
