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
use kernel::sync::ArcBorrow;
use xprtrdma_base::queue::PromptQueue;

/// Handles the completions of one [`Qp`].
///
/// All methods except [`QpHandler::queue`] are called in process context: by [`Qp::busy_poll`], or
/// by a work item on the queue that [`QpHandler::queue`] returns. They may sleep, but that delays
/// all other completions of the connection.
///
/// Only one of these methods runs at a time, with one exception: the work item that rings the
/// doorbell may call [`QpHandler::broken`] while another method runs.
pub trait QpHandler: Sized + Send + Sync + 'static {
    /// Returns the work queue for completions and doorbells. Must always return the same queue.
    ///
    /// If memory reclaim may wait for a message, the queue must have a rescuer (`WQ_MEM_RECLAIM`).
    /// No [`QpOwner`](super::QpOwner) may be dropped on the queue: the drop waits for completions,
    /// which the rescuer could not handle while it executes the drop.
    fn queue(&self) -> &PromptQueue;

    /// Handles a message that arrived.
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>);

    /// Called when the invalidations that were posted with `token`, and all earlier work requests,
    /// have completed.
    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation);

    /// Called when the peer's device has acknowledged a keepalive probe that was posted with
    /// [`SendBatch::post_probe`](super::SendBatch::post_probe).
    fn probed(qp: ArcBorrow<'_, Qp<Self>>);

    /// Called once for each message that was posted with
    /// [`SendBatch::post_confirmed`](super::SendBatch::post_confirmed), when the peer's device has
    /// received the message.
    fn confirmed(qp: ArcBorrow<'_, Qp<Self>>);

    /// Called when the peer's device has acknowledged a work request.
    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>);

    /// Called when a transfer that was posted with
    /// [`SendBatch::post_transfer`](super::SendBatch::post_transfer), and all earlier work
    /// requests, have completed.
    #[cfg(xprtrdma_server)]
    fn transferred(qp: ArcBorrow<'_, Qp<Self>>, transfer: KBox<Transfer>);

    /// Called when the send queue has space again after
    /// [`SendError::Full`](super::SendError::Full).
    fn send_space(qp: ArcBorrow<'_, Qp<Self>>);

    /// Called once, when a work request has failed: the connection is dead.
    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus);
}
