// SPDX-License-Identifier: GPL-2.0

//! How large the queues of a connection are.

use crate::wire::header::MAX_SEGMENTS;

/// The largest payload of one request, in bytes: the NFS client's maximum.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Work requests of a call with one region: registration, Send, invalidation.
const CALL_WRS: u32 = 3;

/// Work requests of the longest message: the registrations of two chunks of the most segments, and
/// the Send.
// CAST: 16.
const MESSAGE_WRS: u16 = 2 * MAX_SEGMENTS as u16 + 1;

/// Work requests for all else: further regions, replies to callbacks, refusals, the probe.
const SPARE_WRS: u32 = 160;

/// How many messages of the largest size the send ring holds at least.
const LEAST_MESSAGES: usize = 4;

/// How many messages of the largest size the send ring holds, up to [`RING_ENOUGH`].
const RING_MESSAGES: usize = 16;

/// The largest useful send ring, in bytes.
const RING_ENOUGH: usize = 256 << 10;

/// The most Receives that are posted at once.
const MAX_BATCH: u32 = 32;

/// The limits of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most work requests of a send or of a receive queue (`ib_device_attr.max_qp_wr`).
    pub queue_wrs: u32,
    /// Most entries of a completion queue (`ib_device_attr.max_cqe`).
    pub completions: u32,
    /// A message with registrations takes one work request more, a fence.
    pub fences: bool,
}

/// The sizes that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueDemand {
    /// Calls that sunrpc can have in flight.
    pub slots: usize,
    /// Calls of the server that may come at once.
    pub callbacks: u16,
    /// The longest message that is sent, in bytes.
    pub send_size: usize,
}

/// Sizes of the queues of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSizes {
    /// Calls in flight; calls ask for this many credits. At least one.
    pub credits: u32,
    /// The send ring, in bytes.
    pub send_bytes: usize,
    /// The least size of the send ring, in bytes.
    pub least_send_bytes: usize,
    /// Work requests of the send queue.
    pub send_wrs: u32,
    /// Work requests of the longest message.
    pub message_wrs: u16,
    /// Receives that are posted: one for each reply and each callback (V1-018, BC-07).
    pub recv_count: u16,
    /// Receives that may wait to be posted again, besides those that are posted.
    pub recv_batch: u16,
}

impl QueueSizes {
    /// Returns the sizes that are wanted, or less where the device offers less. Each queue needs
    /// one more entry than its size, for the drain; [`QueueLimits`] leave room for it. Both queues
    /// together have at most as many entries as a completion queue.
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
            // CAST: at most `MAX_BATCH`.
            recv_batch: batch as u16,
        }
    }

    /// How many regions of `pages` pages of `page_size` bytes may be in use at once: each call may
    /// have two chunks of the largest payload.
    pub fn regions(&self, pages: u32, page_size: usize) -> usize {
        // An unaligned payload is in one page more than it is long.
        let needed = MAX_PAYLOAD.checked_div(page_size).unwrap_or(0);
        let needed = needed.saturating_add(1);
        let chunk = needed.div_ceil(usize::try_from(pages).unwrap_or(usize::MAX).max(1));
        // CAST: widening.
        (self.credits as usize)
            .saturating_mul(2)
            .saturating_mul(chunk)
    }
}

/// Returns how many pages of `page_size` bytes hold as much as `pages` pages of 4 KiB; at least
/// one.
pub fn pages_of(pages: u32, page_size: usize) -> u32 {
    const UNIT: u64 = 4096;
    let bytes = u64::from(pages).saturating_mul(UNIT);
    // CAST: widening.
    let whole = bytes.div_ceil((page_size as u64).max(1)).max(1);
    u32::try_from(whole).unwrap_or(u32::MAX)
}

/// The largest payload that one chunk can carry, in bytes, if a region has at most `pages` pages of
/// `page_size` bytes.
pub fn max_payload(pages: u32, page_size: usize) -> usize {
    let pages = usize::try_from(pages).unwrap_or(usize::MAX);
    // An unaligned payload is in one page more than it is long.
    let whole = pages.saturating_mul(MAX_SEGMENTS).saturating_sub(1);
    MAX_PAYLOAD.min(whole.saturating_mul(page_size))
}
