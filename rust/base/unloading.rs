// SPDX-License-Identifier: GPL-2.0

//! Unloading of the module.

use xprtrdma_bindings as bindings;

/// Checks that the module is being unloaded, and waits until no thread runs the module's code any
/// more on behalf of a transport. May sleep. If the module is not being unloaded, logs a warning
/// and blocks this thread for ever.
///
/// A registration with the RPC client or the RPC server calls this function when it is dropped. The
/// transports of the registered class hold references to the module. So no transport exists while
/// the module is being unloaded, but transports may exist at any other time. In particular, they
/// may exist when the initialisation of the module fails. The kernel then frees the module in spite
/// of the references.
///
/// The function that destroys a transport drops the transport's reference to the module. The thread
/// may be preempted before it returns from this function, so this code waits for the thread.
///
/// In the module of the KUnit suites this function does nothing. The suites register classes while
/// their module stays loaded, and destroy all transports before they drop the registration.
pub fn begin() {
    if cfg!(xprtrdma_kunit) {
        return;
    }
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_must_be_unloading() };
    // SAFETY: The function has no requirements, and this thread may sleep.
    unsafe { bindings::xprtrdma_wait_for_preempted() };
}
