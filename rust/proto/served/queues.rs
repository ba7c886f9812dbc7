// SPDX-License-Identifier: GPL-2.0

//! How long the queues of a connection are.
//!
//! The wish is for a large device; a small one gets shorter queues and a smaller grant, not a
//! failure. What the device cannot do at all is told before anything is made.

use crate::responder::{
    call::Call,
    refusal::{
        Fault,
        Refusal, //
    }, //
};

/// What a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Work requests on one queue.
    pub work_requests: u32,
    /// Entries of one completion queue.
    pub completions: u32,
}

/// The queues of a connection, without the work requests that drain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// Work requests of the send queue.
    pub sends: u32,
    /// Calls that a client may have in flight, each with a Receive.
    pub calls: u32,
    /// Receives above these, which the grant does not count.
    pub extra: u32,
}

/// Work requests of the send queue without which no long message fits.
pub const LEAST_SENDS: u32 = 64;

impl Queues {
    /// Receives that there are.
    #[inline]
    pub const fn receives(&self) -> u32 {
        self.calls.saturating_add(self.extra)
    }

    /// Work requests of the longest transfer. More might wait for ever: some of the queue may stay
    /// taken until more is posted.
    pub const fn longest_transfer(&self) -> u32 {
        (self.sends / 4).saturating_mul(3)
    }

    /// Checks that the Reads or the Writes of a Call, this number of work requests, fit into the
    /// send queue.
    ///
    /// # Errors
    ///
    /// The answer to a Call that needs more. Its connection goes on: the client would send it again
    /// on the next one.
    pub fn check<S>(&self, call: &Call<'_, S>, wrs: u32) -> Result<(), Refusal> {
        if wrs > self.longest_transfer() {
            return Err(Refusal::new(call.xid(), call.version(), Fault::TooComplex));
        }
        Ok(())
    }

    /// The longest queues up to these that the device has. One work request of each queue is for
    /// the drain; all of both complete at one completion queue. Sends go first, as calls that find
    /// no room wait. `None`: not even [`LEAST_SENDS`] and one call are there.
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
