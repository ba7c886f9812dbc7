// SPDX-License-Identifier: GPL-2.0

//! The destruction of a transport.

use super::{
    address::free_strings,
    SendLock,
    Xprt, //
};
use crate::transport::Transport;
use core::ptr::{
    self,
    NonNull, //
};
use xprtrdma_bindings as bindings;

/// Destroys a transport. May sleep.
///
/// # Safety
///
/// Called once, as `rpc_xprt_ops::destroy`, for a transport that the class's set-up function
/// created.
pub(crate) unsafe fn destroy<T: Transport>(raw: *mut bindings::rpc_xprt) {
    // SAFETY: By the caller's contract the transport is valid.
    let xprt = unsafe { Xprt::<T>::from_raw(NonNull::new_unchecked(raw)) };
    // SAFETY: The RPC client holds the send lock and does not release it.
    T::stop(&mut unsafe { SendLock::new(xprt) });
    xprt.wait_for_back_refs();
    // Threads that found the transport through an RPC client under RCU may still be running
    // `Transport::callback_size`. This code waits for these threads.
    // SAFETY: This is process context, so the function may sleep.
    unsafe { kernel::bindings::synchronize_rcu() };
    // SAFETY: `inner` was initialised by the set-up function, and nothing refers to it any more.
    // The reference to the module is dropped in the last step, because this code belongs to the
    // module. Before the module is unloaded, `unloading::begin` waits until this function has
    // returned.
    unsafe {
        ptr::drop_in_place(&raw mut (*raw.cast::<Xprt<T>>()).inner);
        free_strings(raw);
        let owner = bindings::xprtrdma_class.owner;
        bindings::xprt_free(raw);
        kernel::bindings::module_put(owner);
    }
}
