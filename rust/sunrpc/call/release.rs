// SPDX-License-Identifier: GPL-2.0

//! The release of a call's pages. The release waits until the peer can no longer read the pages.

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

/// Waits until the peer can no longer access the pages that the security flavour has allocated for
/// a call. Then releases these pages. [`Call::lend`](super::Call::lend) installs this function in
/// place of the security flavour's own function. May sleep.
///
/// This function is called in the request's own task, without locks, in two cases:
///
/// - The RPC client encodes the request again. In this case the leases may still exist.
///   `prepare_request` waits for their end too, but it may be called much later or never, because
///   encoding may fail and be repeated.
/// - The request ends. In this case the caller has already waited for the leases.
///
/// # Safety
///
/// Called only by the RPC client, as `rpc_rqst::rq_release_snd_buf` of a request in a slot of a
/// transport of type `T`.
pub(super) unsafe extern "C" fn release_call<T: Transport>(rqst: *mut bindings::rpc_rqst) {
    // SAFETY: By the caller's contract the request is in a slot of a transport of type `T`.
    let slot = unsafe { Slot::<T>::from_rqst(rqst) };
    if slot.is_leased() {
        // SAFETY: The request is valid. The request is on no queue and not pinned, so no other
        // thread works on it. Only this thread could encode the request again.
        unsafe {
            T::revoke(
                xprt_of::<T>(rqst),
                &Encoded::new(slot),
                Leaving::to_be_encoded(),
            )
        };
        slot.leases.wait();
    }
    // SAFETY: The request is not being sent, so only its task, which is the caller, accesses the
    // field.
    let release = unsafe { &mut *slot.release.get() }.take();
    if let Some(release) = release {
        // SAFETY: This function is the original release function of the request. No lease of the
        // memory that the function frees exists any more.
        unsafe { release(rqst) };
    }
}
