// SPDX-License-Identifier: GPL-2.0

//! Computes the lengths of the queues of a connection.
//!
//! The desired lengths suit a large device. On a small device the queues are shorter and the grant
//! is smaller. A device that is too small is detected before any queue is created.

use crate::responder::{
    call::Call,
    refusal::{
        Fault,
        Refusal, //
    }, //
};

/// The limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of work requests on one queue.
    pub work_requests: u32,
    /// Maximum number of entries of one completion queue.
    pub completions: u32,
}

/// The lengths of a connection's queues, without the work requests for draining the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Number of work requests on the send queue.
    pub sends: u32,
    /// Number of Calls that a client may have in flight; each needs a Receive.
    pub calls: u32,
    /// Number of additional Receives, which are not part of the grant.
    pub extra: u32,
}

/// Minimum number of work requests on the send queue. A shorter queue is too short for long
/// messages.
pub const LEAST_SENDS: u32 = 64;

/// Returns the length of a send queue whose [`Queues::longest_transfer`] is enough for this
/// transfer:
///
/// - It has `pages` pages. A work request carries at most `elements` of them.
/// - The peer's memory has `segments` segments. Each of them may need one more work request.
/// - If RDMA Reads need registered memory, `regions` regions cover the pages. Each of them needs a
///   registration, and may divide a Read in two.
///
/// Devices round the length of a queue up to a power of two. So the returned length is two less
/// than a power of two: one more entry is used for draining the queue, and the rxe device leaves
/// one entry empty.
pub const fn sends(pages: u32, elements: u32, segments: u32, regions: u32) -> u32 {
    let elements = match elements {
        0 => 1,
        elements => elements,
    };
    // A transfer consists either of Writes from the pages, or of Reads into regions.
    let (writes, reads) = (pages.div_ceil(elements), regions.saturating_mul(2));
    let longer = if writes > reads { writes } else { reads };
    let transfer = longer.saturating_add(segments);
    let wanted = transfer
        .saturating_add(transfer.div_ceil(3))
        .saturating_add(4);
    match wanted.checked_next_power_of_two() {
        Some(power) => power.saturating_sub(2),
        None => u32::MAX,
    }
}

impl Queues {
    /// Returns the number of Receives on the receive queue.
    #[inline]
    pub const fn receives(&self) -> u32 {
        self.calls.saturating_add(self.extra)
    }

    /// Returns the maximum number of work requests of one transfer. A longer transfer might wait
    /// forever, because some queue entries may stay in use until later work requests are posted.
    #[inline]
    pub const fn longest_transfer(&self) -> u32 {
        self.sends.saturating_sub(self.sends.div_ceil(4))
    }

    /// Checks that the Reads or the Writes of a Call fit into the send queue. `wrs` is the number
    /// of work requests that these Reads or Writes need.
    ///
    /// # Errors
    ///
    /// Returns the error message for the Call if `wrs` is too large. The connection stays up,
    /// because after a reconnect the client would send the same Call again.
    #[inline]
    pub fn check<S>(&self, call: &Call<'_, S>, wrs: u32) -> Result<(), Refusal> {
        if wrs > self.longest_transfer() {
            return Err(call.refuse(Fault::SendQueue));
        }
        Ok(())
    }

    /// Returns queues that fit the device and are not longer than those of `self`. One work request
    /// of each queue is reserved for draining it. The send queue and the receive queue share one
    /// completion queue. If the completion queue is too short, the send queue is shortened first,
    /// because transfers can wait for a free entry. Returns `None` if [`LEAST_SENDS`] work requests
    /// and one call do not fit.
    pub fn fit(self, device: &Limits) -> Option<Self> {
        let most = device.work_requests.checked_sub(1)?;
        let all = device.completions.checked_sub(2)?;
        let receives = all.checked_sub(LEAST_SENDS)?.min(most);
        let calls = receives.checked_sub(self.extra)?.min(self.calls);
        let fitted = Self { calls, ..self };
        let sends = all.checked_sub(fitted.receives())?;
        let sends = sends.min(most).min(self.sends);
        (calls != 0 && sends >= LEAST_SENDS).then_some(Self { sends, ..fitted })
    }
}
