// SPDX-License-Identifier: GPL-2.0

//! The states of the thread that polls, and how its polling ends.

/// No thread polls.
pub(super) const NOBODY: u32 = 0;
/// It sleeps, or is about to look whether it should.
pub(super) const WAITS: u32 = xprtrdma_bindings::XPRTRDMA_POLLER_WAITS;
/// An event was reported to it, and it has not begun to handle completions.
pub(super) const CALLED: u32 = 2;
/// It handles completions.
pub(super) const POLLS: u32 = 3;
/// It handles completions, and another event has come since.
pub(super) const POLLS_CALLED: u32 = 4;
/// It was told to stop before it began to handle completions, and will not begin.
pub(super) const STOPPED: u32 = 5;
/// It was told to stop while it handled completions, and may still do so.
pub(super) const POLLS_STOPPED: u32 = 6;

/// Not a state: a thread that leaves wakes the item, whatever was meant for the thread.
pub(super) const SOMETHING_IS_LEFT: u32 = u32::MAX;

/// Why a thread no longer handles completions.
///
/// # Examples
///
/// ```
/// # use kernel::sync::atomic::{Acquire, Atomic};
/// # use xprtrdma_rdma::{cq::PollOutcome, qp::{Qp, QpHandler}};
/// /// Whether a handler has set `done`, which this thread has perhaps run itself.
/// fn wait<H: QpHandler>(qp: &Qp<H>, done: &Atomic<bool>) -> bool {
///     qp.busy_poll(|| true, || done.load(Acquire)) == PollOutcome::Over
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// `is_over` was true.
    Over,
    /// A signal is pending, the thread has to freeze, another thread or the work item polls, or the
    /// queue pair is being shut down.
    Left,
    /// [`Cq::stop_polling`](super::Cq::stop_polling) stopped it, or `may` was false.
    Stopped,
}
