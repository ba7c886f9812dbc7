// SPDX-License-Identifier: GPL-2.0

//! Time stamps of calls. A driver reads them only while measuring is switched on.

use crate::{
    call::Pinned,
    transport::Transport, //
};
pub use xprtrdma_base::measuring::{
    is_measured,
    measure,
    switch_file,
    write_histogram, //
};

/// The time stamps that the RPC client has recorded for a call, in nanoseconds on the clock of
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
    /// The time at which the RPC task was created.
    pub begun: u64,
    /// The time at which the request was last passed to [`Transport::send`].
    pub given: u64,
    /// The time at which [`Xprt::lookup`](crate::xprt::Xprt::lookup) last found this request for a
    /// reply.
    pub answered: u64,
}

impl<T: Transport> Pinned<T> {
    /// Returns the time stamps of the call. The time stamps might be out of order if the call is
    /// sent again.
    #[inline]
    pub fn times(&self) -> Times {
        let rqst = self.rqst();
        // SAFETY: A task waits until its request is unpinned before it releases the request, so a
        // pinned request has a task. If the request is sent again, another thread may write the
        // time stamps at the same time. Each time stamp is read with a single access.
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
