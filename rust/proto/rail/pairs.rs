// SPDX-License-Identifier: GPL-2.0

//! Which rails there are to a server ([`Pairs`]).

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

/// The most rails to one server.
pub const MAX_RAILS: usize = 8;

/// The rails to a server, as the local addresses and the tables make them now.
///
/// A local end makes a rail with each address of the server in its own network. If the server has
/// no address there, the local end makes one with the first address of its family: the network is
/// routed. If a port of a device has several addresses in one network, the first counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Pairs {
    rails: [Option<Rail>; MAX_RAILS],
    left_out: u32,
}

impl Pairs {
    /// No rails.
    pub const NONE: Self = Self {
        rails: [None; MAX_RAILS],
        left_out: 0,
    };

    /// Makes the rails of those local ends that `table` admits. They lead to the server with the
    /// address `mount`, and to its other addresses according to `servers`.
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

    /// The rails.
    pub fn iter(&self) -> impl Iterator<Item = &Rail> {
        self.rails.iter().flatten()
    }

    /// Number of rails that were left out for lack of room.
    pub const fn left_out(&self) -> u32 {
        self.left_out
    }
}

/// Whether the address is in the network of this local end.
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
