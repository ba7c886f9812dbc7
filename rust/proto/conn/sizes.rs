// SPDX-License-Identifier: GPL-2.0

//! The sizes of a connection's queues.

use crate::wire::header::MAX_SEGMENTS;

/// The largest payload of one request, in bytes: the NFS client's maximum.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Number of work requests for a call with one memory region: registration, Send, invalidation.
const CALL_WRS: u32 = 3;

/// Number of work requests that the longest message needs: the Send, and one registration for each
/// segment. The longest message has two chunks, each with the maximum number of segments.
// CAST: `MAX_SEGMENTS` is a small constant that fits into `u16`.
const MESSAGE_WRS: u16 = 2 * MAX_SEGMENTS as u16 + 1;

/// The send queue of a connection has [`CALL_WRS`] work requests for each call, and this number of
/// additional work requests. The additional work requests are used for further regions of calls,
/// replies to callbacks, refusals and keepalive probes.
const SPARE_WRS: u32 = 160;

/// The send ring holds at least this number of messages of the largest size.
const LEAST_MESSAGES: usize = 4;

/// The send ring holds this number of messages of the largest size, or fewer if these messages need
/// more than [`RING_ENOUGH`] bytes.
const RING_MESSAGES: usize = 16;

/// The largest useful send ring, in bytes.
const RING_ENOUGH: usize = 256 << 10;

/// Maximum number of Receives that are posted together.
const MAX_BATCH: u32 = 32;

/// The limits of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Maximum number of work requests in a send or receive queue (`ib_device_attr.max_qp_wr`).
    pub queue_wrs: u32,
    /// Maximum number of entries in a completion queue (`ib_device_attr.max_cqe`).
    pub completions: u32,
    /// Whether a message with registrations needs one more work request, for a fence.
    pub fences: bool,
}

/// What the driver wants to send and receive on a connection: the number of messages and their
/// length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDemand {
    /// Number of calls that sunrpc can have in flight.
    pub slots: usize,
    /// Number of callbacks that the server may have in flight.
    pub callbacks: u16,
    /// The longest message that is sent, in bytes.
    pub send_size: usize,
}

/// Sizes of the queues of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Maximum number of calls in flight, at least one. Calls ask for this number of credits.
    pub credits: u32,
    /// Wanted size of the send ring, in bytes.
    pub send_bytes: usize,
    /// Minimum size of the send ring, in bytes.
    pub least_send_bytes: usize,
    /// Number of work requests in the send queue.
    pub send_wrs: u32,
    /// Number of work requests that the longest message needs.
    pub message_wrs: u16,
    /// Number of Receives that are posted: one for each reply and each callback (V1-018, BC-07).
    pub recv_count: u16,
    /// Number of Receives that may wait to be posted again, in addition to `recv_count`.
    pub recv_batch: u16,
}

impl QueueSizes {
    /// Returns the sizes that `demand` asks for, reduced to the `limits` of the device. One entry
    /// of each queue is not included, because it is needed to drain the queue. The entries of the
    /// send and receive queues together fit into one completion queue.
    pub fn new(limits: &QueueLimits, demand: &QueueDemand) -> Self {
        let depth = limits.queue_wrs.min(limits.completions / 2);
        let depth = depth.saturating_sub(1);
        let callbacks = u32::from(demand.callbacks);
        let most = u32::from(u16::MAX).saturating_sub(callbacks);
        let wanted = u32::try_from(demand.slots).unwrap_or(u32::MAX).min(most);
        let batch = (wanted.saturating_add(callbacks) / 8).clamp(1, MAX_BATCH);
        let room = depth.saturating_sub(callbacks.saturating_add(batch));
        let credits = wanted.min(room).max(1);
        let least_send_bytes = demand.send_size.saturating_mul(LEAST_MESSAGES);
        let send_bytes = demand.send_size.saturating_mul(RING_MESSAGES);
        let fence = u16::from(limits.fences);
        let call_wrs = CALL_WRS.saturating_add(fence.into());
        let send_wrs = credits.saturating_mul(call_wrs).saturating_add(SPARE_WRS);
        Self {
            credits,
            send_bytes: send_bytes.min(RING_ENOUGH).max(least_send_bytes),
            least_send_bytes,
            send_wrs: send_wrs.min(depth),
            message_wrs: MESSAGE_WRS.saturating_add(fence),
            recv_count: u16::try_from(credits.saturating_add(callbacks)).unwrap_or(u16::MAX),
            // CAST: `batch` is at most `MAX_BATCH`, which fits into `u16`.
            recv_batch: batch as u16,
        }
    }

    /// Returns the maximum number of regions that are in use at the same time. A region has `pages`
    /// pages of `page_size` bytes. A call may have two chunks, and each chunk may carry the largest
    /// payload.
    pub fn regions(&self, pages: u32, page_size: usize) -> usize {
        // An unaligned payload spans one page more than an aligned payload of the same length.
        let needed = MAX_PAYLOAD.checked_div(page_size).unwrap_or(0);
        let needed = needed.saturating_add(1);
        let chunk = needed.div_ceil(usize::try_from(pages).unwrap_or(usize::MAX).max(1));
        // CAST: Widens the number without loss.
        (self.credits as usize)
            .saturating_mul(2)
            .saturating_mul(chunk)
    }
}

/// Returns the number of pages of `page_size` bytes that hold as much as `pages` pages of 4 KiB.
/// The result is at least 1.
pub fn pages_of(pages: u32, page_size: usize) -> u32 {
    const UNIT: u64 = 4096;
    let bytes = u64::from(pages).saturating_mul(UNIT);
    // CAST: Widens the number without loss.
    let whole = bytes.div_ceil((page_size as u64).max(1)).max(1);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// Returns the largest payload that one chunk can carry, in bytes, if a region has at most `pages`
/// pages of `page_size` bytes.
pub fn max_payload(pages: u32, page_size: usize) -> usize {
    let pages = usize::try_from(pages).unwrap_or(usize::MAX);
    // An unaligned payload spans one page more than an aligned payload of the same length.
    let whole = pages.saturating_mul(MAX_SEGMENTS).saturating_sub(1);
    MAX_PAYLOAD.min(whole.saturating_mul(page_size))
}
