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

/// Replaces the function with which the security flavour releases the pages of a call. Installed
/// when the driver borrows a part of the call ([`Call::lend`](super::Call::lend)). Waits until the
/// peer can no longer access the pages, then releases them. May sleep.
///
/// This function has two callers. Both run in the request's own task without locks. The first
/// caller is the RPC client when it encodes the request again. `prepare_request` also waits for the
/// leases, but the RPC client may call it much later or never, because encoding may fail and be
/// repeated. So this function must itself wait. The second caller is the code that ends the
/// request. That code has already waited for the leases.
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
