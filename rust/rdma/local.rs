// SPDX-License-Identifier: GPL-2.0

//! The addresses of a network namespace that RDMA devices have ([`locals`]).
//!
//! The connection manager decides which they are: it takes RoCE by the addresses in a device's
//! table, InfiniBand by the interface's hardware address, iWARP by the interface. So each address
//! is bound once, to an id that goes again.

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

/// Addresses of a namespace that are looked at, most.
///
/// Each costs an id for a moment. Hosts of containers have thousands, on interfaces without an RDMA
/// device.
const MOST: usize = 1024;

/// An address that an RDMA device has.
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
    /// The address: IPv4, or IPv6 that is valid beyond the link.
    pub addr: IpAddr,
    /// Bits of the address that all hosts on the link have in common.
    pub prefix_len: u8,
    /// The number of the interface.
    pub interface: u32,
    /// The device and its port.
    pub device: DeviceInfo,
    /// The device believes that the port works.
    pub active: bool,
}

/// Lists the addresses in `net` that RDMA devices have, in the order of the interfaces.
///
/// Interfaces that are down have none, nor are those listed that are tentative, deprecated or
/// temporary (RFC 8981). It is what holds at one moment: an address may be gone when it is used.
/// May sleep. Must not be called by a [`CmHandler`] or by a
/// [`DeviceHandler`](crate::events::DeviceHandler).
///
/// `ENOMEM` is the only error.
pub fn locals(net: &Net) -> Result<KVec<Local>> {
    list(net, |addr| !is_link_local(addr))
}

/// Lists those among them that are `wanted`.
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
            // Of no RDMA device, or no address any more.
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

/// The addresses of the interfaces in `net` that are up.
fn addresses(net: &Net) -> Result<KVec<xprtrdma_address>> {
    // SAFETY: The namespace is valid by its type; there is no room to write to.
    let count = unsafe { bindings::xprtrdma_addresses(net.as_raw(), core::ptr::null_mut(), 0) };
    let mut all = KVec::with_capacity(MOST.min(count as usize), GFP_KERNEL)?;
    while all.len() < all.capacity().min(MOST) {
        all.push(xprtrdma_address::default(), GFP_KERNEL)?;
    }
    // CAST: At most `MOST`.
    let room = all.len() as u32;
    // SAFETY: The namespace is valid by its type; as many addresses may be written as there is room
    // for.
    let count = unsafe { bindings::xprtrdma_addresses(net.as_raw(), all.as_mut_ptr(), room) };
    all.truncate(count as usize);
    Ok(all)
}

/// Whether the address means something on its own link only.
fn is_link_local(addr: &IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// The address itself.
fn address(raw: &xprtrdma_address) -> IpAddr {
    if raw.ipv6 {
        raw.bytes.into()
    } else {
        let [a, b, c, d, ..] = raw.bytes;
        [a, b, c, d].into()
    }
}

/// Takes no notice: an id that is only bound has no events but the removal of its device, which
/// waits until the id is gone.
struct Ignore;

impl CmHandler for Ignore {
    fn event(&self, _: CmEvent<'_>) {}
}
