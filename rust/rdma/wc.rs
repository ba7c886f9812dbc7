// SPDX-License-Identifier: GPL-2.0

//! The status of a work completion ([`WcStatus`]).

use xprtrdma_bindings as bindings;

/// The status of a work completion. The status is logged, and determines how a failure is handled.
///
/// # Examples
///
/// ```
/// # use xprtrdma_rdma::wc::WcStatus;
/// fn is_a_reason(status: WcStatus) -> bool {
///     status != WcStatus::FLUSHED
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// The work request was flushed, because the queue pair had already failed.
    pub const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    /// A received message was longer than the buffer of the Receive that it used.
    pub const LOCAL_LENGTH: Self = Self(bindings::ib_wc_status_IB_WC_LOC_LEN_ERR);
    /// The peer did not acknowledge the work request.
    pub const RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR);
    /// The peer had posted no Receive for a message of this host.
    pub const RNR_RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR);
    /// The peer has no memory region with the given key and address, or this host has no right to
    /// access the region.
    #[cfg(any(xprtrdma_rds, xprtrdma_server))]
    pub const REMOTE_ACCESS: Self = Self(bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR);
    /// The peer's device refused the request as invalid.
    #[cfg(xprtrdma_rds)]
    pub const REMOTE_INVALID_REQUEST: Self = Self(bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR);
}
