// SPDX-License-Identifier: GPL-2.0

//! Connections on which both ends may post RDMA Reads. The private data have no fixed length.

use super::CmId;
use kernel::{
    error::to_result,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// The parameters that each end sends to its peer when they connect.
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_rdma::cm::{both::Terms, CmId};
/// /// Connects, once a route is known and Receives are posted.
/// fn connect(id: &CmId, hello: &[u8]) -> Result {
///     id.request(&Terms { private_data: hello, reads: 4, serves: 4, retry_count: 1 })
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Private data. A connection request over InfiniBand or RoCE has space for 56 bytes.
    pub private_data: &'a [u8],
    /// Maximum number of RDMA Reads that this end may have in flight.
    pub reads: u8,
    /// Maximum number of the peer's RDMA Reads that this end serves at a time. It must not exceed
    /// [`Pd::max_served`](crate::pd::Pd::max_served), or the device refuses the connection.
    pub serves: u8,
    /// Number of retries before the connection is declared dead (0..=7).
    pub retry_count: u8,
}

impl Terms<'_> {
    fn raw(&self) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len().try_into()?,
            responder_resources: self.serves,
            initiator_depth: self.reads,
            retry_count: self.retry_count,
            // If the peer has no Receive posted, the device retries without a limit.
            rnr_retry_count: 7,
            ..Default::default()
        })
    }
}

impl CmId {
    /// Sets the type of service of a connection. Must be called before route resolution.
    pub fn set_service_type(&self, tos: u8) {
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant `id` is valid.
        unsafe { bindings::rdma_set_service_type(self.as_raw(), tos.into()) };
    }

    /// Makes the peer wait for only 0.32 ms before it repeats a message for which no Receive was
    /// posted. Without this call the peer would wait for 655 ms. Must be called before
    /// [`CmId::request`] or [`CmId::grant`]. May sleep.
    pub fn set_short_pause(&self) -> Result {
        // CAST: The constant is a number of five bits, so it fits into a `u8`.
        let pause = bindings::ib_rnr_timeout_IB_RNR_TIMER_000_32 as u8;
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant `id` is valid.
        to_result(unsafe { bindings::rdma_set_min_rnr_timer(self.as_raw(), pause) })
    }

    /// Returns the GIDs of this end and of the peer. Must be called after route resolution, or for
    /// the id of a connection request. Both GIDs are zero before the address is resolved.
    pub fn gids(&self) -> ([u8; 16], [u8; 16]) {
        if !self.is_resolved() {
            return Default::default();
        }
        let mut own = bindings::ib_gid::default();
        let mut peer = bindings::ib_gid::default();
        // SAFETY: By the type invariant `id` is valid. It has a device. The callee reads addresses
        // that do not change any more, and writes both GIDs.
        unsafe { bindings::rdma_read_gids(self.as_raw(), &mut own, &mut peer) };
        let bytes = |gid: &bindings::ib_gid| {
            // SAFETY: Both members of the union consist of plain bytes.
            unsafe { *gid.raw.as_ref() }
        };
        (bytes(&own), bytes(&peer))
    }

    /// Sends a connect request. The caller must have posted Receives. May sleep; must not be called
    /// by the id's handler.
    pub fn request(&self, terms: &Terms<'_>) -> Result {
        let mut raw = terms.raw()?;
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant `id` is valid. No other thread disconnects the id, because
        // this thread holds the lock `calls`. The callee copies the parameters and the private
        // data.
        to_result(unsafe { bindings::rdma_connect(self.as_raw(), &mut raw) })
    }

    /// Accepts the connection request to which this id belongs. The caller must have posted
    /// Receives. May sleep; must not be called by the id's handler.
    pub fn grant(&self, terms: &Terms<'_>) -> Result {
        let mut raw = terms.raw()?;
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant `id` is valid. No other thread disconnects the id, because
        // this thread holds the lock `calls`. The callee copies the parameters and the private
        // data.
        to_result(unsafe { bindings::xprtrdma_accept(self.as_raw(), &mut raw) })
    }
}
