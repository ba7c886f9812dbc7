// SPDX-License-Identifier: GPL-2.0

//! The times of calls, which a driver takes while they are wanted.

use crate::{
    call::Pinned,
    transport::Transport, //
};
pub use xprtrdma_base::measuring::{
    is_measured,
    measure, //
};

/// Times of a call that the RPC client has recorded, in nanoseconds on the clock of
/// [`now_ns`](crate::util::now_ns).
///
/// # Examples
///
/// ```
/// # use xprtrdma_sunrpc::{call::Pinned, latency::{is_measured, Times}, transport::Transport};
/// /// Nanoseconds from the call to its reply.
/// fn round_trip<T: Transport>(call: &Pinned<T>) -> Option<u64> {
///     is_measured().then(|| {
///         let Times { given, answered, .. } = call.times();
///         answered.saturating_sub(given)
///     })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// When the task began.
    pub begun: u64,
    /// When the request was last given to [`Transport::send`].
    pub given: u64,
    /// When [`Xprt::lookup`](crate::xprt::Xprt::lookup) last found the request for a reply.
    pub answered: u64,
}

impl<T: Transport> Pinned<T> {
    /// Returns the times of the call. They need not be in order if it is sent again.
    #[inline]
    pub fn times(&self) -> Times {
        let rqst = self.rqst();
        // SAFETY: A task waits for the pin before it lets go of its request, so a pinned one has a
        // task. The words may be written now, when the request is sent again; each is read
        // once, as a whole.
        let [begun, given, taken] = unsafe {
            let task = (*rqst).rq_task;
            [
                (&raw const (*task).tk_start).read_volatile(),
                (&raw const (*rqst).rq_xtime).read_volatile(),
                (&raw const (*rqst).rq_rtt).read_volatile(),
            ]
        }
        // CAST: The monotonic clock is never negative.
        .map(|ns| ns as u64);
        Times {
            begun,
            given,
            answered: given.wrapping_add(taken),
        }
    }
}
