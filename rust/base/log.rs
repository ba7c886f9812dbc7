// SPDX-License-Identifier: GPL-2.0

//! Log lines: the rate limit, the module's version, and how to print types of the `core` crate.

use kernel::{
    fmt,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// Prints a value of a `core` type, such as an address, with the kernel's formatting macros.
///
/// # Examples
///
/// ```
/// # use core::net::IpAddr;
/// # use kernel::prelude::*;
/// # use xprtrdma_base::log::Show;
/// # fn tell(address: IpAddr) {
/// pr_info!("no answer from {}\n", Show(&address));
/// # }
/// ```
pub struct Show<'a, V: core::fmt::Display>(pub &'a V);

impl<V: core::fmt::Display> fmt::Display for Show<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        core::fmt::Display::fmt(self.0, f)
    }
}

/// Returns the module's version, as `modinfo` shows it.
pub fn version() -> &'static CStr {
    // SAFETY: The function returns a string literal, which always exists.
    unsafe { CStr::from_char_ptr(bindings::xprtrdma_version()) }
}

/// Returns whether a log line may be written now. The limit is 20 lines in five seconds for the
/// whole module.
pub fn may_log() -> bool {
    // SAFETY: The function has no requirements.
    unsafe { bindings::xprtrdma_may_log() }
}
