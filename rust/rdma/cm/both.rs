// SPDX-License-Identifier: GPL-2.0

//! Connections of which either end reads memory of the other, with private data of any length.

use super::CmId;
use kernel::{
    error::to_result,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// What one end says to the other.
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_rdma::cm::{both::Terms, CmId};
/// /// Connects, once a route is known and Receives are posted.
/// fn connect(id: &CmId, hello: &[u8]) -> Result {
///     id.request(&Terms { private_data: hello, reads: 4, retry_count: 1 })
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Private data, of at most 56 bytes between IPv6 addresses.
    pub private_data: &'a [u8],
    /// RDMA Reads that this end may have under way, and serves, at a time.
    pub reads: u8,
    /// Retries before the connection is declared dead (0..=7).
    pub retry_count: u8,
}

impl Terms<'_> {
    fn raw(&self) -> Result<bindings::rdma_conn_param> {
        Ok(bindings::rdma_conn_param {
            private_data: self.private_data.as_ptr().cast(),
            private_data_len: self.private_data.len().try_into()?,
            responder_resources: self.reads,
            initiator_depth: self.reads,
            retry_count: self.retry_count,
            // A peer without a Receive is waited for without end.
            rnr_retry_count: 7,
            ..Default::default()
        })
    }
}

impl CmId {
    /// Sets the type of service of a connection. Before its route is resolved.
    pub fn set_service_type(&self, tos: u8) {
        let _calls = self.context.calls.lock();
        // SAFETY: `id` is valid by the type invariant.
        unsafe { bindings::rdma_set_service_type(self.as_raw(), tos.into()) };
    }

    /// Sends a connect request. Receives must be posted before. May sleep; must not be called by
    /// the id's handler.
    pub fn request(&self, terms: &Terms<'_>) -> Result {
        let mut raw = terms.raw()?;
        let _calls = self.context.calls.lock();
        // SAFETY: `id` is valid by the type invariant, and no other thread disconnects it now; the
        // callee copies the parameters and the private data.
        to_result(unsafe { bindings::rdma_connect(self.as_raw(), &mut raw) })
    }

    /// Accepts the request that the id came with. Receives must be posted before. May sleep; must
    /// not be called by the id's handler.
    pub fn grant(&self, terms: &Terms<'_>) -> Result {
        let mut raw = terms.raw()?;
        let _calls = self.context.calls.lock();
        // SAFETY: As in `request`.
        to_result(unsafe { bindings::xprtrdma_accept(self.as_raw(), &mut raw) })
    }
}
