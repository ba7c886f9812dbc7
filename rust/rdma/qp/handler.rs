// SPDX-License-Identifier: GPL-2.0

//! Who is told of completions ([`QpHandler`]), and what a work completion says.

use super::{
    Qp,
    Received, //
};
use crate::mr::LocalInvalidation;
use kernel::{
    sync::ArcBorrow,
    workqueue::Queue, //
};
use xprtrdma_bindings as bindings;

/// What a work completion said, for logs and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// The work request was flushed because the queue pair had failed before.
    pub const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    /// A message was longer than the Receive posted for it.
    pub const LOCAL_LENGTH: Self = Self(bindings::ib_wc_status_IB_WC_LOC_LEN_ERR);
    /// The peer does not acknowledge.
    pub const RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR);
    /// The peer has no Receive for our message.
    pub const RNR_RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR);
}

/// Handles the completions of one [`Qp`].
///
/// All methods but [`QpHandler::queue`] are called in process context, never concurrently with each
/// other: from a work item on that queue, or from [`Qp::attend`]. They may sleep, but that delays every
/// other completion of the connection. The exception: [`QpHandler::broken`] may also come from the work item
/// that rings the doorbell, beside the others.
pub trait QpHandler: Sized + Send + Sync + 'static {
    /// Where completions are handled and doorbells are rung: always the same.
    ///
    /// If reclaiming memory may have to wait for a message, this must be a queue with a rescuer, and
    /// none on which a [`QpOwner`] is dropped: that waits for completions, which a rescuer at work
    /// there could not handle.
    fn queue(&self) -> &Queue;

    /// A message arrived.
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>);

    /// The invalidations posted with `token` have completed, and all before them.
    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation);

    /// The probe posted with [`SendBatch::post_probe`] was acknowledged by the peer's device.
    fn probed(qp: ArcBorrow<'_, Qp<Self>>);

    /// Something that we sent was acknowledged by the peer's device.
    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>);

    /// There is room in the send queue again after a [`SendError::Full`].
    fn send_space(qp: ArcBorrow<'_, Qp<Self>>);

    /// A work request failed: the connection is dead. Called once.
    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus);
}
