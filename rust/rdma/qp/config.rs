// SPDX-License-Identifier: GPL-2.0

//! How large a queue pair is ([`QpConfig`]).

/// Sizes of a [`Qp`](super::Qp).
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Bytes of the send ring, which is one piece of memory.
    pub send_bytes: usize,
    /// Least size of the send ring if memory in one piece is short: at least four times the longest
    /// message.
    pub least_send_bytes: usize,
    /// Work requests of the send queue.
    pub send_wrs: u32,
    /// At least one of this many work requests is signalled.
    pub signal_every: u32,
    /// Work requests of the longest message, with its registrations.
    pub message_wrs: u16,
    /// If more work requests than this wait for the doorbell, it is rung.
    pub waiting_wrs: u16,
    /// Receives to keep posted.
    pub recv_count: u16,
    /// Receives that may wait at a time to be posted again.
    pub recv_batch: u16,
    /// Bytes of one Receive.
    pub recv_size: usize,
}
