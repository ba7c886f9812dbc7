// SPDX-License-Identifier: GPL-2.0

//! Items that the kernel crate lacks, or declares differently, in some kernel versions. Other code
//! in the module does not depend on the kernel version.

use core::borrow::Borrow;
use kernel::{
    error::Error,
    ffi::c_int, //
};
use xprtrdma_bindings as bindings;

/// Errno: no interface or device has the address.
pub const EADDRNOTAVAIL: c_int = -(bindings::EADDRNOTAVAIL as c_int);
/// Errno: the address family is not supported.
pub const EAFNOSUPPORT: c_int = -(bindings::EAFNOSUPPORT as c_int);
/// Errno: no credit is left. Only the RPC client uses the errno with this meaning.
pub const EBADSLT: c_int = -(bindings::EBADSLT as c_int);
/// Errno: no buffer space is available.
pub const ENOBUFS: c_int = -(bindings::ENOBUFS as c_int);
/// Errno: the transport is not connected.
pub const ENOTCONN: c_int = -(bindings::ENOTCONN as c_int);
/// Errno: the operation is not supported.
pub const EOPNOTSUPP: c_int = -(bindings::EOPNOTSUPP as c_int);
/// Errno: the peer broke the protocol.
const EPROTO: c_int = -(bindings::EPROTO as c_int);
/// Errno: the peer ended the connection.
const ECONNRESET: c_int = -(bindings::ECONNRESET as c_int);
/// Errno: the connection is shut down.
/// The number of the TCP protocol. The kernel crate lacks this constant, because C declares it in
/// an anonymous enumeration.
pub const IPPROTO_TCP: c_int = 6;

/// Returns the error `ENOBUFS`: no buffer space is available.
pub fn no_buffers() -> Error {
    Error::from_errno(ENOBUFS)
}

/// Returns the error `ENOTCONN`: the transport is not connected.
pub fn not_connected() -> Error {
    Error::from_errno(ENOTCONN)
}

/// Returns the error `EOPNOTSUPP`: the operation is not supported.
pub fn not_supported() -> Error {
    Error::from_errno(EOPNOTSUPP)
}

/// Returns the error `EPROTO`: the peer broke the protocol.
pub fn protocol_error() -> Error {
    Error::from_errno(EPROTO)
}

/// Returns the error `ECONNRESET`: the peer ended the connection.
pub fn connection_reset() -> Error {
    Error::from_errno(ECONNRESET)
}

/// Returns the value of a numeric module parameter, which some kernel versions return by reference.
pub fn number(value: impl Borrow<u32>) -> u32 {
    *value.borrow()
}

/// Orders all earlier memory accesses of this processor before all later ones, as other processors
/// see them.
#[inline]
pub fn smp_mb() {
    // SAFETY: A barrier has no requirements.
    unsafe { bindings::smp_mb() };
}
