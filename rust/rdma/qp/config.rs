// SPDX-License-Identifier: GPL-2.0

//! The sizes of a queue pair ([`QpConfig`]).

/// Sizes of a [`Qp`](super::Qp).
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Number of bytes in the send ring, which is contiguous memory.
    pub send_bytes: usize,
    /// Minimum number of bytes in the send ring, for which the queue pair is created if contiguous
    /// memory is short. At least four times the longest message.
    pub least_send_bytes: usize,
    /// Number of work requests in the send queue.
    pub send_wrs: u32,
    /// Maximum number of work requests per signalled work request.
    pub signal_every: u32,
    /// Maximum number of work requests for a message with its registrations.
    pub message_wrs: u16,
    /// The doorbell is rung if more work requests than this wait for it.
    pub waiting_wrs: u16,
    /// Number of Receives to keep posted.
    pub recv_count: u16,
    /// Maximum number of Receives that wait to be posted again.
    pub recv_batch: u16,
    /// Number of bytes in one Receive buffer.
    pub recv_size: usize,
}
