// SPDX-License-Identifier: GPL-2.0

//! Network namespaces and socket addresses.

use core::{
    net::SocketAddr,
    ptr, //
};
use kernel::types::Opaque;
use xprtrdma_bindings::{
    self as bindings,
    net,
    sockaddr,
    sockaddr_in,
    sockaddr_in6,
    AF_INET,
    AF_INET6, //
};

/// A network namespace (`struct net`).
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::net::Net;
/// let inode = Net::with_current(|net| net.number());
/// ```
#[repr(transparent)]
pub struct Net(Opaque<net>);

impl Net {
    /// Borrows a namespace.
    ///
    /// # Safety
    ///
    /// `raw` is valid and a reference to it is held for all of `'a`.
    pub unsafe fn from_raw<'a>(raw: *mut net) -> &'a Self {
        // SAFETY: The caller's contract guarantees the pointer. `Net` is transparent over
        // `Opaque<net>`.
        unsafe { &*raw.cast() }
    }

    /// Calls `f` with the network namespace of the current task. If the task is exiting and has
    /// left its namespace, calls `f` with the initial namespace.
    pub fn with_current<R>(f: impl FnOnce(&Self) -> R) -> R {
        // SAFETY: The function has no requirements.
        let raw = unsafe { bindings::xprtrdma_current_net() };
        // SAFETY: The initial namespace exists for ever. The current task refers to its namespace.
        // Only the task itself can leave the namespace, and the task does not do so during this
        // call.
        f(unsafe { Self::from_raw(raw) })
    }

    /// Returns a pointer to the `struct net`.
    pub fn as_raw(&self) -> *mut net {
        self.0.get()
    }

    /// Returns the inode number of the namespace, by which programs such as lsns(8) identify it.
    pub fn number(&self) -> u32 {
        // SAFETY: A reference to a `Net` exists only while the namespace is valid. The number of a
        // namespace is constant.
        unsafe { bindings::xprtrdma_netns_number(self.0.get()) }
    }
}

/// Converts a C socket address. Returns `None` if its family is neither IPv4 nor IPv6.
///
/// # Safety
///
/// `addr` is valid. It points to a `sockaddr_in` if its family is `AF_INET`, and to a
/// `sockaddr_in6` if its family is `AF_INET6`.
pub unsafe fn addr_from_raw(addr: *const sockaddr) -> Option<SocketAddr> {
    use core::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

    // SAFETY: Every socket address begins with its family.
    match u32::from(unsafe { (*addr).sa_family }) {
        AF_INET => {
            // SAFETY: The family says that this is a `sockaddr_in`.
            let sin = unsafe { &*addr.cast::<sockaddr_in>() };
            let ip = Ipv4Addr::from(sin.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(sin.sin_port)).into())
        }
        AF_INET6 => {
            // SAFETY: The family says that this is a `sockaddr_in6`.
            let sin6 = unsafe { &*addr.cast::<sockaddr_in6>() };
            // SAFETY: All members of the union are plain bytes.
            let ip = Ipv6Addr::from(unsafe { sin6.sin6_addr.in6_u.u6_addr8 });
            let port = u16::from_be(sin6.sin6_port);
            let flow = u32::from_be(sin6.sin6_flowinfo);
            Some(SocketAddrV6::new(ip, port, flow, sin6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Calls `f` with a C socket address for `addr`. The pointer is valid only during the call.
pub fn with_raw<R>(addr: &SocketAddr, f: impl FnOnce(*const sockaddr) -> R) -> R {
    match addr {
        SocketAddr::V4(a) => {
            let mut sin = sockaddr_in {
                sin_family: AF_INET as u16,
                sin_port: a.port().to_be(),
                ..Default::default()
            };
            sin.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
            f(ptr::from_ref(&sin).cast())
        }
        SocketAddr::V6(a) => {
            let mut sin6 = sockaddr_in6 {
                sin6_family: AF_INET6 as u16,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: a.flowinfo().to_be(),
                sin6_scope_id: a.scope_id(),
                ..Default::default()
            };
            // CAST: In every member of the union an IPv6 address is 16 bytes in network byte order.
            sin6.sin6_addr.in6_u.u6_addr8 = a.ip().octets();
            f(ptr::from_ref(&sin6).cast())
        }
    }
}
