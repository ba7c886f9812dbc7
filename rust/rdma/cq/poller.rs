// SPDX-License-Identifier: GPL-2.0

//! The states of the thread that polls a completion queue, and why its polling ends.

/// No thread polls.
pub(super) const NOBODY: u32 = 0;
/// The polling thread sleeps, or is about to check whether it should sleep.
pub(super) const WAITS: u32 = xprtrdma_bindings::XPRTRDMA_POLLER_WAITS;
/// An event was passed to the polling thread, which has not yet begun to handle completions.
pub(super) const CALLED: u32 = 2;
/// The polling thread handles completions.
pub(super) const POLLS: u32 = 3;
/// The polling thread handles completions, and another event has arrived since it began.
pub(super) const POLLS_CALLED: u32 = 4;
/// The polling thread was told to stop before it began to handle completions. It will not begin.
pub(super) const STOPPED: u32 = 5;
/// The polling thread was told to stop while it handled completions. The thread may still handle
/// some completions.
pub(super) const POLLS_STOPPED: u32 = 6;

/// A value that the state never has. When a thread ends its polling, it compares the state with the
/// value that it expects. If they differ, it queues the work item. A thread that leaves completions
/// or events to the work item expects this value, so it always queues the work item.
pub(super) const SOMETHING_IS_LEFT: u32 = u32::MAX;

/// Why a thread no longer handles completions.
///
/// # Examples
///
/// ```
/// # use kernel::sync::atomic::{Acquire, Atomic};
/// # use xprtrdma_rdma::{cq::PollOutcome, qp::{Qp, QpHandler}};
/// /// Handles completions until a handler sets `done`. Returns false if polling ends earlier.
/// fn wait<H: QpHandler>(qp: &Qp<H>, done: &Atomic<bool>) -> bool {
///     qp.busy_poll(|| true, || done.load(Acquire)) == PollOutcome::Over
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// `is_over` returned true.
    Over,
    /// The thread must not poll, for one of these reasons: a signal is pending, the thread has to
    /// freeze, another thread or the work item already polls, or the queue pair is being shut down.
    Left,
    /// [`Cq::stop_polling`](super::Cq::stop_polling) stopped the thread, or `may` returned false.
    Stopped,
}
