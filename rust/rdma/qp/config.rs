// SPDX-License-Identifier: GPL-2.0

//! The sizes of a queue pair ([`QpConfig`]).

/// Sizes of a [`Qp`](super::Qp).
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Number of bytes in the send ring, which is physically contiguous memory.
    pub send_bytes: usize,
    /// Minimum number of bytes in the send ring if contiguous memory is short. The number is at
    /// least four times the length of the longest message.
    pub least_send_bytes: usize,
    /// Number of work requests in the send queue.
    pub send_wrs: u32,
    /// Limit for the number of work requests since the last signalled post. The post that reaches
    /// the limit is signalled.
    pub signal_every: u32,
    /// Maximum number of work requests for a message with its registrations.
    pub message_wrs: u16,
    /// Maximum number of work requests that wait for the doorbell. If there are more, the doorbell
    /// is rung at once.
    pub waiting_wrs: u16,
    /// Number of Receives to keep posted.
    pub recv_count: u16,
    /// Maximum number of Receives that wait to be posted again.
    pub recv_batch: u16,
    /// Maximum number of Receives that may be added while the connection is in use.
    pub recv_more: u16,
    /// Number of bytes in one Receive buffer.
    pub recv_size: usize,
}
