// SPDX-License-Identifier: GPL-2.0

//! The handler of completions ([`QpHandler`]).

use super::{
    message::Received,
    Qp, //
};
#[cfg(xprtrdma_server)]
use crate::transfer::Transfer;
use crate::{
    mr::LocalInvalidation,
    wc::WcStatus, //
};
#[cfg(xprtrdma_server)]
use kernel::prelude::*;
use kernel::{
    sync::ArcBorrow,
    workqueue::Queue, //
};
/// Handles the completions of one [`Qp`].
///
/// All methods but [`QpHandler::queue`] are called in process context, from a work item on that
/// queue or from [`Qp::busy_poll`], never concurrently with each other. They may sleep, but that
/// delays every other completion of the connection. Exception: the work item that rings the
/// doorbell may call [`QpHandler::broken`] while another method runs.
pub trait QpHandler: Sized + Send + Sync + 'static {
    /// Returns the queue on which completions are handled and doorbells rung: always the same.
    ///
    /// If memory reclaim may have to wait for a message, this must be a queue with a rescuer
    /// (`WQ_MEM_RECLAIM`). No [`QpOwner`](super::QpOwner) may be dropped on that queue: the drop
    /// waits for completions, which the rescuer could not handle while it executes the drop.
    fn queue(&self) -> &Queue;

    /// A message arrived.
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>);

    /// The invalidations posted with `token` have completed, and all work requests before them.
    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation);

    /// The probe posted with [`SendBatch::post_probe`](super::SendBatch::post_probe) was
    /// acknowledged by the peer's device.
    fn probed(qp: ArcBorrow<'_, Qp<Self>>);

    /// The peer's device has a message that was posted with
    /// [`SendBatch::post_confirmed`](super::SendBatch::post_confirmed): called once for each.
    fn confirmed(qp: ArcBorrow<'_, Qp<Self>>);

    /// The peer's device has acknowledged something that we sent.
    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>);

    /// A transfer that was posted with
    /// [`SendBatch::post_transfer`](super::SendBatch::post_transfer) has completed, and all work
    /// requests before it.
    #[cfg(xprtrdma_server)]
    fn transferred(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>);

    /// The send queue has room again after a [`SendError::Full`](super::SendError::Full).
    fn send_space(qp: ArcBorrow<'_, Qp<Self>>);

    /// A work request failed: the connection is dead. Called once.
    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus);
}
