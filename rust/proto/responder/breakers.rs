// SPDX-License-Identifier: GPL-2.0

//! Calls whose failed RDMA operations broke a connection (RFC 8166 4.5.3).
//!
//! If an RDMA operation of a Call fails, the server closes the connection, and the client sends the
//! Call again on its next connection. If the client's memory causes the failure, this repeats for
//! ever. So a Call that has broken two connections of its client is answered with an error.

use core::net::IpAddr;

use crate::{
    responder::{
        place::place_for,
        refusal::Fault, //
    },
    time::{
        Millis,
        Time, //
    },
    wire::header::Xid, //
};

/// Maximum number of clients that a server remembers: the size of a driver's table of [`OfClient`].
pub const CLIENTS: usize = 16;
/// Maximum number of Calls that a server remembers for one client.
pub const REMEMBERED: usize = 8;
/// Number of connections that a Call may break before it is refused.
pub const MOST_BROKEN: u8 = 2;
/// Time after which a Call is forgotten, because a new Call may have the same xid.
pub const FORGOTTEN: Millis = Millis::from_secs(300);

/// One client's Calls that broke a connection. This record outlives the client's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    slots: [Option<Breaker>; REMEMBERED],
}

/// A client, and its Calls that broke a connection. The driver stores the clients as
/// `Option<OfClient>` in a slice, and passes the slice to [`broke`] and [`check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfClient {
    client: IpAddr,
    breakers: Breakers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Breaker {
    xid: Xid,
    times: u8,
    last: Time,
}

impl Breaker {
    fn is_old(&self, now: Time) -> bool {
        now.since(self.last) >= FORGOTTEN
    }
}

impl Breakers {
    /// Records that the Call with this xid broke a connection: an RDMA operation of the Call
    /// failed. If all slots are in use, the Call whose last failure is the oldest is forgotten.
    pub fn broke(&mut self, xid: Xid, now: Time) {
        let times = self.times(xid, now).saturating_add(1);
        let new = Breaker {
            xid,
            times,
            last: now,
        };
        let slot = place_for(&mut self.slots, |one| one.xid == xid, |one| one.last);
        if let Some(slot) = slot {
            *slot = Some(new);
        }
    }

    /// Checks that the Call with this xid may be processed.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Breaks`] if the Call broke too many connections. The Call must then be
    /// refused.
    pub fn check(&self, xid: Xid, now: Time) -> Result<(), Fault> {
        if self.times(xid, now) >= MOST_BROKEN {
            return Err(Fault::Breaks);
        }
        Ok(())
    }

    /// Returns the time at which a Call of this client last broke a connection.
    fn last(&self) -> Option<Time> {
        self.slots.iter().flatten().map(|one| one.last).max()
    }

    /// Returns how many connections the Call with this xid broke; zero if the Call is forgotten.
    fn times(&self, xid: Xid, now: Time) -> u8 {
        let known = self.slots.iter().flatten();
        let mut known = known.filter(|one| one.xid == xid && !one.is_old(now));
        known.next().map_or(0, |one| one.times)
    }
}

/// Records that this client's Call with this xid broke a connection: an RDMA operation of the Call
/// failed. If `clients` is full, the client whose last failure is the oldest is forgotten.
pub fn broke(clients: &mut [Option<OfClient>], client: IpAddr, xid: Xid, now: Time) {
    let is_own = |one: &OfClient| one.client == client;
    let place = place_for(clients, is_own, |one| one.breakers.last());
    let Some(place) = place else { return };
    let mut breakers = match place {
        Some(one) if one.client == client => one.breakers,
        _ => Breakers::default(),
    };
    breakers.broke(xid, now);
    *place = Some(OfClient { client, breakers });
}

/// Checks that the Call of this client with this xid may be processed.
///
/// # Errors
///
/// Returns [`Fault::Breaks`] if the Call broke too many connections of the client. The Call must
/// then be refused.
pub fn check(
    clients: &[Option<OfClient>],
    client: IpAddr,
    xid: Xid,
    now: Time,
) -> Result<(), Fault> {
    let mut known = clients.iter().flatten();
    match known.find(|one| one.client == client) {
        Some(one) => one.breakers.check(xid, now),
        None => Ok(()),
    }
}

/// Returns true if every recorded Call of every client is old enough to be forgotten.
pub fn are_forgotten(clients: &[Option<OfClient>], now: Time) -> bool {
    let mut known = clients.iter().flatten();
    known.all(|one| {
        let last = one.breakers.last();
        last.is_none_or(|last| now.since(last) >= FORGOTTEN)
    })
}
