// SPDX-License-Identifier: GPL-2.0

//! The addresses in a network namespace that belong to RDMA devices ([`locals`]).
//!
//! The connection manager decides which addresses belong to a device. For this it uses the device's
//! address table with RoCE, the hardware address of the interface with InfiniBand, and the
//! interface itself with iWARP. So each address is tested by binding a temporary id to it.

use crate::{
    cm::{
        CmEvent,
        CmHandler,
        CmId, //
    },
    device::DeviceInfo, //
};
use core::net::{
    IpAddr,
    SocketAddr, //
};
use kernel::{
    alloc::flags::GFP_KERNEL,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::net::Net;
use xprtrdma_bindings::{
    self as bindings,
    xprtrdma_address, //
};

/// Maximum number of addresses of a namespace that are tested.
///
/// A host that runs containers may have thousands of addresses on interfaces without an RDMA
/// device. Each test creates an rdma_cm id, so the number of tests is limited.
const MOST: usize = 1024;

/// An address that belongs to an RDMA device.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_base::net::Net;
/// # use xprtrdma_rdma::local::{locals, Local};
/// fn usable(net: &Net) -> Result<usize> {
///     let is_usable = |local: &&Local| local.active && local.device.fast_reg;
///     Ok(locals(net)?.iter().filter(is_usable).count())
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The address: IPv4, or IPv6 that is not link-local.
    pub addr: IpAddr,
    /// Length of the address prefix in bits. All addresses on the same link have this prefix in
    /// common.
    pub prefix_len: u8,
    /// The index of the network interface.
    pub interface: u32,
    /// The RDMA device to which the address belongs, with the number of the device's port.
    pub device: DeviceInfo,
    /// Whether the device reports the port as active.
    pub active: bool,
}

/// Lists the addresses in `net` that belong to RDMA devices, ordered by interface.
///
/// Addresses are left out if their interface is down, or if they are tentative, deprecated or
/// temporary (RFC 8981). The list may be outdated when it is used. May sleep. Must not be called by
/// a [`CmHandler`] or by a [`DeviceHandler`](crate::events::DeviceHandler).
///
/// The only error is `ENOMEM`.
pub fn locals(net: &Net) -> Result<KVec<Local>> {
    list(net, |addr| !is_link_local(addr))
}

/// Lists addresses as [`locals`] does, but selects the addresses for which `wanted` returns true.
/// These may be link-local.
pub(crate) fn list(net: &Net, wanted: impl Fn(&IpAddr) -> bool) -> Result<KVec<Local>> {
    let handler = Arc::new(Ignore, GFP_KERNEL)?;
    let mut found = KVec::new();
    for raw in &addresses(net)? {
        let addr = address(raw);
        if raw.passing || addr.is_loopback() || !wanted(&addr) {
            continue;
        }
        let id = CmId::create(net, handler.clone())?;
        let mut local = SocketAddr::new(addr, 0);
        if let SocketAddr::V6(local) = &mut local {
            if is_link_local(&addr) {
                local.set_scope_id(raw.interface);
            }
        }
        match id.bind_addr(&local) {
            Ok(()) => {}
            Err(ENOMEM) => return Err(ENOMEM),
            // The address belongs to no RDMA device, or has been removed.
            Err(_) => continue,
        }
        let Some(device) = DeviceInfo::of(&id) else {
            continue;
        };
        found.push(
            Local {
                addr,
                prefix_len: raw.prefix_len,
                interface: raw.interface,
                device,
                active: id.is_port_active(),
            },
            GFP_KERNEL,
        )?;
    }
    Ok(found)
}

/// Returns the addresses of all interfaces in `net` that are up.
fn addresses(net: &Net) -> Result<KVec<xprtrdma_address>> {
    // SAFETY: The namespace is valid by its type. With a length of zero nothing is written.
    let count = unsafe { bindings::xprtrdma_addresses(net.as_raw(), core::ptr::null_mut(), 0) };
    let mut all = KVec::with_capacity(MOST.min(count as usize), GFP_KERNEL)?;
    while all.len() < all.capacity().min(MOST) {
        all.push(xprtrdma_address::default(), GFP_KERNEL)?;
    }
    // CAST: The length is at most `MOST`.
    let room = all.len() as u32;
    // SAFETY: The namespace is valid by its type. At most `room` addresses are written, for which
    // there is space.
    let count = unsafe { bindings::xprtrdma_addresses(net.as_raw(), all.as_mut_ptr(), room) };
    all.truncate(count as usize);
    Ok(all)
}

/// Returns true if the address is valid only on its own link.
fn is_link_local(addr: &IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// Converts an address that the C helper returned.
fn address(raw: &xprtrdma_address) -> IpAddr {
    if raw.ipv6 {
        raw.bytes.into()
    } else {
        let [a, b, c, d, ..] = raw.bytes;
        [a, b, c, d].into()
    }
}

/// A handler that ignores all events. An id that is only bound gets no event except the removal of
/// its device. The removal waits until the id is destroyed.
struct Ignore;

impl CmHandler for Ignore {
    fn event(&self, _: CmEvent<'_>) {}
}
