// SPDX-License-Identifier: GPL-2.0

//! The release of a call's pages, which waits until the peer cannot read them.

use super::{
    encoded::Encoded,
    wait::Leaving, //
};
use crate::{
    slot::Slot,
    transport::Transport,
    xprt::xprt_of, //
};
use xprtrdma_bindings as bindings;

/// Stands in for the function with which the security flavour releases the pages of a call that was
/// lent ([`Call::lend`](super::Call::lend)). Releases them when the peer cannot reach them any
/// more. Sleeps.
///
/// The RPC client calls it when it encodes the request again, long before `prepare_request`, and
/// perhaps without coming that far: encoding may fail and be tried again later. The second
/// caller is the end of the request, which has waited already. Both are the request's task,
/// without locks.
///
/// # Safety
///
/// Called by the RPC client only, as `rpc_rqst::rq_release_snd_buf` of a request in a slot of a
/// transport of type `T`.
pub(super) unsafe extern "C" fn release_call<T: Transport>(rqst: *mut bindings::rpc_rqst) {
    // SAFETY: The request is in a slot of ours.
    let slot = unsafe { Slot::<T>::from_rqst(rqst) };
    if slot.is_leased() {
        // SAFETY: As above. The request is off all queues and not pinned, so no other thread
        // works on it; the thread that encodes it again is this one.
        unsafe {
            T::revoke(
                xprt_of::<T>(rqst),
                &Encoded::new(slot),
                Leaving::to_be_encoded(),
            )
        };
        slot.leases.wait();
    }
    // SAFETY: The request is not being sent, so its task, which calls this, has it alone.
    let release = unsafe { &mut *slot.release.get() }.take();
    if let Some(release) = release {
        // SAFETY: The function was the request's own; the memory that it frees is lent no more.
        unsafe { release(rqst) };
    }
}
