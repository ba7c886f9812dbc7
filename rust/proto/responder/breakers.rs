// SPDX-License-Identifier: GPL-2.0

//! Calls that broke a connection (RFC 8166 4.5.3).
//!
//! A Call whose RDMA operation fails ends its connection, and the client sends it again on the next
//! one. If its memory is at fault, that never ends. So a Call that broke two connections of a
//! client is answered with an error.

use core::net::IpAddr;

use crate::{
    responder::{
        call::{
            Call,
            Sorted, //
        },
        refusal::{
            Fault,
            Refusal, //
        },
    },
    time::{
        Millis,
        Time, //
    },
    wire::header::Xid, //
};

/// The most clients that are remembered, for a driver's table of [`OfClient`].
pub const CLIENTS: usize = 16;
/// The most Calls of one client that are remembered.
pub const REMEMBERED: usize = 8;
/// How many connections a Call may break.
pub const MOST_BROKEN: u8 = 2;
/// A Call is forgotten after this time, as another one may have its xid.
pub const FORGOTTEN: Millis = Millis::from_secs(300);

/// The Calls of one client that broke a connection. It outlives the client's connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakers {
    slots: [Option<Breaker>; REMEMBERED],
}

/// A client, and its Calls that broke a connection. A slice of free places for them is a server's
/// memory of its clients: see [`broke`] and [`check`].
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
    /// Records that a connection ends because an RDMA operation of the Call with this xid failed.
    /// If there is no room, the Call that was seen longest ago is forgotten.
    pub fn broke(&mut self, xid: Xid, now: Time) {
        let times = self.times(xid, now).saturating_add(1);
        let new = Breaker {
            xid,
            times,
            last: now,
        };
        // The Call's own slot, else a free one, else the oldest.
        let slot = self.slots.iter_mut().min_by_key(|slot| match slot {
            Some(one) if one.xid == xid => (0, one.last),
            Some(one) => (2, one.last),
            None => (1, now),
        });
        if let Some(slot) = slot {
            *slot = Some(new);
        }
    }

    /// Hands the Call back, if it may be admitted.
    ///
    /// # Errors
    ///
    /// The answer to a Call that broke too many connections.
    pub fn check<'a>(
        &self,
        call: Call<'a, Sorted>,
        now: Time,
    ) -> Result<Call<'a, Sorted>, Refusal> {
        if self.times(call.xid(), now) >= MOST_BROKEN {
            return Err(Refusal::new(call.xid(), call.version(), Fault::Breaks));
        }
        Ok(call)
    }

    /// When the last connection broke.
    fn last(&self) -> Option<Time> {
        self.slots.iter().flatten().map(|one| one.last).max()
    }

    /// How many connections the Call with this xid broke.
    fn times(&self, xid: Xid, now: Time) -> u8 {
        let known = self.slots.iter().flatten();
        let mut known = known.filter(|one| one.xid == xid && !one.is_old(now));
        known.next().map_or(0, |one| one.times)
    }
}

/// Records that a connection of this client ends because an RDMA operation of the Call with this
/// xid failed. If there is no place for the client, the one that was recorded longest ago is
/// forgotten.
pub fn broke(clients: &mut [Option<OfClient>], client: IpAddr, xid: Xid, now: Time) {
    // The client's own place, else a free one, else the oldest.
    let place = clients.iter_mut().min_by_key(|place| match place {
        Some(one) if one.client == client => (0, None),
        Some(one) => (2, one.breakers.last()),
        None => (1, None),
    });
    let Some(place) = place else { return };
    let mut breakers = match place {
        Some(one) if one.client == client => one.breakers,
        _ => Breakers::default(),
    };
    breakers.broke(xid, now);
    *place = Some(OfClient { client, breakers });
}

/// Hands a Call of this client back, if it may be admitted.
///
/// # Errors
///
/// The answer to a Call that broke too many connections of the client.
pub fn check<'a>(
    clients: &[Option<OfClient>],
    client: IpAddr,
    call: Call<'a, Sorted>,
    now: Time,
) -> Result<Call<'a, Sorted>, Refusal> {
    let mut known = clients.iter().flatten();
    match known.find(|one| one.client == client) {
        Some(one) => one.breakers.check(call, now),
        None => Ok(call),
    }
}

/// Returns whether every Call is forgotten.
pub fn are_forgotten(clients: &[Option<OfClient>], now: Time) -> bool {
    let mut known = clients.iter().flatten();
    known.all(|one| {
        let last = one.breakers.last();
        last.is_none_or(|last| now.since(last) >= FORGOTTEN)
    })
}
