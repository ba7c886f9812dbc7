// SPDX-License-Identifier: GPL-2.0

//! What the kernel crate has in some versions only, or under another signature: nothing else in
//! this crate knows of versions.

use kernel::ffi::c_int;
use xprtrdma_bindings as bindings;

pub(crate) const EAFNOSUPPORT: c_int = -(bindings::EAFNOSUPPORT as c_int);
pub(crate) const EBADSLT: c_int = -(bindings::EBADSLT as c_int);
pub(crate) const ENOBUFS: c_int = -(bindings::ENOBUFS as c_int);
pub(crate) const ENOTCONN: c_int = -(bindings::ENOTCONN as c_int);
pub(crate) const EOPNOTSUPP: c_int = -(bindings::EOPNOTSUPP as c_int);
/// As in C, where it is a member of an enumeration without a name.
pub(crate) const IPPROTO_TCP: c_int = 6;

/// Orders all memory accesses before it and after it, among processors.
#[inline]
pub(crate) fn smp_mb() {
    // SAFETY: A barrier asks for nothing.
    unsafe { bindings::smp_mb() };
}
