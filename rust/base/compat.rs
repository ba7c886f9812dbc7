// SPDX-License-Identifier: GPL-2.0

//! Parts of the kernel crate that only some versions have, or that have another signature there.
//! Nothing else in the module depends on the version.

use core::borrow::Borrow;
use kernel::ffi::c_int;
use xprtrdma_bindings as bindings;

/// No interface or device has the address.
pub const EADDRNOTAVAIL: c_int = -(bindings::EADDRNOTAVAIL as c_int);
/// Address family not supported.
pub const EAFNOSUPPORT: c_int = -(bindings::EAFNOSUPPORT as c_int);
/// An error code of the RPC client: no credit.
pub const EBADSLT: c_int = -(bindings::EBADSLT as c_int);
/// No buffer space.
pub const ENOBUFS: c_int = -(bindings::ENOBUFS as c_int);
/// Not connected.
pub const ENOTCONN: c_int = -(bindings::ENOTCONN as c_int);
/// Operation not supported.
pub const EOPNOTSUPP: c_int = -(bindings::EOPNOTSUPP as c_int);
/// As in C, where it is a member of an anonymous enumeration.
pub const IPPROTO_TCP: c_int = 6;

/// Returns the number of a module's parameter, which some kernels hand out by reference.
pub fn number(value: impl Borrow<u32>) -> u32 {
    *value.borrow()
}

/// Orders all memory accesses before it against all accesses after it, among processors.
#[inline]
pub fn smp_mb() {
    // SAFETY: A barrier has no requirements.
    unsafe { bindings::smp_mb() };
}
