// SPDX-License-Identifier: GPL-2.0

//! The list of rails to a server ([`Pairs`]).

use super::{
    place::{
        Local,
        Rail, //
    },
    table::{
        Locals,
        Servers, //
    },
};
use core::{
    iter,
    net::IpAddr, //
};

/// Maximum number of rails to one server.
pub const MAX_RAILS: usize = 8;

/// The rails to a server that result from the present local addresses and the administrator's
/// tables.
///
/// A local address forms a rail with each server address in the network of the local address. If
/// the server has no address in that network, the local address forms one rail, with the first
/// server address of the same family. Packets on this rail are routed.
///
/// Several local addresses may be on one device port. Of these, only the first forms a rail with a
/// given server address.
#[derive(Debug, PartialEq, Eq)]
pub struct Pairs {
    rails: [Option<Rail>; MAX_RAILS],
    left_out: u32,
}

impl Pairs {
    /// The empty list of rails.
    pub const NONE: Self = Self {
        rails: [None; MAX_RAILS],
        left_out: 0,
    };

    /// Forms the rails that begin at the local addresses that `table` admits. The rails lead to the
    /// server's address `mount`, and to the other addresses of the same server in `servers`.
    pub fn new(
        ends: impl Iterator<Item = Local>,
        table: &Locals,
        mount: IpAddr,
        servers: &Servers,
    ) -> Self {
        let mut pairs = Self::NONE;
        let addresses = || iter::once(mount).chain(servers.others(mount));
        for end in ends.filter(|end| table.admits(end)) {
            let end = &end;
            let of_family = || addresses().filter(|addr| addr.is_ipv4() == end.addr.is_ipv4());
            let mut found = false;
            for server in of_family().filter(|addr| is_neighbour(end, *addr)) {
                found = true;
                pairs.add(end, server);
            }
            if let (false, Some(server)) = (found, of_family().next()) {
                pairs.add(end, server);
            }
        }
        pairs
    }

    fn add(&mut self, end: &Local, server: IpAddr) {
        let is_same =
            |rail: &Rail| (rail.server, rail.port, &rail.device) == (server, end.port, &end.device);
        if self.iter().any(is_same) {
            return;
        }
        match self.rails.iter_mut().find(|place| place.is_none()) {
            Some(place) => {
                *place = Some(Rail {
                    local: end.addr,
                    server,
                    device: end.device,
                    port: end.port,
                });
            }
            None => self.left_out = self.left_out.saturating_add(1),
        }
    }

    /// Returns the rails.
    pub fn iter(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().flatten()
    }

    /// Returns the number of rails that were left out because there are more than [`MAX_RAILS`].
    pub const fn left_out(&self) -> u32 {
        self.left_out
    }
}

/// Returns true if the address is in the network of this local address.
fn is_neighbour(end: &Local, addr: IpAddr) -> bool {
    let (ours, theirs, bits) = match (end.addr, addr) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            (ours.to_bits().into(), theirs.to_bits().into(), 32u32)
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
        _ => return false,
    };
    let differs: u128 = ours ^ theirs;
    let host_bits = bits.saturating_sub(end.prefix_len.into());
    differs.checked_shr(host_bits).unwrap_or(0) == 0
}
