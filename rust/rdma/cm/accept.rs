// SPDX-License-Identifier: GPL-2.0

//! The [`CmId`] of a connection request.

use super::{
    cm_event,
    CmHandler,
    CmId,
    Context, //
};
use core::{
    net::SocketAddr,
    ptr::NonNull, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::Atomic,
        new_mutex,
        Arc, //
    }, //
};
use xprtrdma_base::net::addr_from_raw;
use xprtrdma_bindings as bindings;

impl Context {
    /// Creates the context for the id of a connection request. The device and the addresses of such
    /// an id are already known.
    pub(super) fn of_request(handler: Arc<dyn CmHandler>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                handler,
                has_device: Atomic::new(true),
                resolved: Atomic::new(true),
                calls <- new_mutex!((), "CmId::calls"),
            }),
            GFP_KERNEL,
        )
    }
}

/// The parameters with which a connection is accepted.
#[derive(Clone, Copy, Debug)]
pub struct AcceptParam {
    /// Private data (RFC 8797).
    pub private_data: [u8; 8],
    /// Maximum number of RDMA Reads that this host may have in flight. Must not exceed the number
    /// that the peer serves.
    pub reads: u8,
}

impl CmId {
    /// Takes over the id of a connection request. From then on, the id's events go to the handler
    /// of `context`.
    ///
    /// # Safety
    ///
    /// The CM is delivering the connection request, and the event handler will return a value that
    /// makes the CM keep the id.
    pub(super) unsafe fn adopt(
        id: NonNull<bindings::rdma_cm_id>,
        context: Pin<KBox<Context>>,
    ) -> Self {
        let raw: *const Context = &*context;
        // SAFETY: By this function's contract nothing else uses the id.
        unsafe { (*id.as_ptr()).context = raw.cast_mut().cast() };
        // SAFETY: By this function's contract nothing else uses the id.
        unsafe { (*id.as_ptr()).event_handler = Some(cm_event) };
        // INVARIANT: The id belongs to this object, and its context is `context`. The CM has
        // written the device and the addresses.
        Self {
            id,
            has_qp: Atomic::new(false),
            context,
        }
    }

    /// Accepts the connection request to which this id belongs. Receives must be posted before this
    /// call. May sleep; must not be called by the id's handler.
    ///
    /// The peer cannot access memory of this host. So the maximum number of RDMA Reads that the
    /// peer may have in flight is set to zero.
    pub fn accept(&self, param: &AcceptParam) -> Result {
        let mut raw = bindings::rdma_conn_param {
            private_data: param.private_data.as_ptr().cast(),
            private_data_len: 8,
            responder_resources: 0,
            initiator_depth: param.reads,
            // With an RNR retry count of 0, the connection breaks immediately if the peer sends
            // more messages than it has credits for.
            rnr_retry_count: 0,
            ..Default::default()
        };
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant, `id` is valid. No other thread disconnects it now. The
        // callee copies the parameters and the eight bytes of private data.
        to_result(unsafe { bindings::xprtrdma_accept(self.as_raw(), &mut raw) })
    }

    /// Returns the peer's address and port, or `None` before they are known.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        if !self.is_resolved() {
            return None;
        }
        // SAFETY: `id` is valid. The address does not change any more. `sockaddr_storage` has space
        // for either family.
        let storage = unsafe { &raw const (*self.as_raw()).route.addr.dst_addr };
        // SAFETY: The address is initialised, and its family says how long it is.
        unsafe { addr_from_raw(storage.cast()) }
    }
}
