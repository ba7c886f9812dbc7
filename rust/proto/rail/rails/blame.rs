// SPDX-License-Identifier: GPL-2.0

//! What attempts, connections and ports say about rails, and whether the rails were at fault.
//!
//! A rail is at fault if it fails while others do well. A server that restarts or loses its power,
//! and a host that stood still, make all rails fail, one after the other; then none is held back
//! when it works again ([`health`](super::super::health)).

use super::{
    super::{
        health::{
            Health,
            TOGETHER, //
        },
        seat::Seat, //
    },
    Rails,
    REMEMBERED, //
};
use crate::time::{
    Millis,
    Time, //
};
use core::net::IpAddr;

/// A rail that works again later than the first one by this much did not come back together with
/// it.
const LATE: Millis = Millis::from_secs(30);

impl Rails {
    /// Records that the connection was made.
    pub fn connected(&mut self, seat: &Seat, now: Time) {
        self.worked(seat.on, now);
        if let Some(entry) = self.get_mut(seat.on) {
            entry.health.carries(now);
        }
    }

    /// Records that the connection was lost for silence: its rail is dead, unless the rail has
    /// worked since all rails had failed and the connection is older than that. Returns whether
    /// another rail is live.
    pub fn lost(&mut self, seat: &Seat, now: Time) -> bool {
        if !self.is_left_over(seat, now) {
            self.died(seat.on, now);
        }
        self.others_are(seat.on, Health::is_live)
    }

    /// Whether the connection is older than the failure of all rails, and may have failed with
    /// them.
    fn is_left_over(&self, seat: &Seat, now: Time) -> bool {
        let before = |failed: &Time| seat.carries.is_some_and(|since| since < *failed);
        let all_failed = self.all_failed.filter(before);
        all_failed.is_some_and(|failed| now.since(failed) < TOGETHER)
    }

    /// Records that the attempt failed, or that the port or the device went away, with the rail to
    /// blame: the rail is dead. Returns whether another rail is live.
    pub fn failed(&mut self, seat: &Seat, now: Time) -> bool {
        self.died(seat.on, now);
        self.others_are(seat.on, Health::is_live)
    }

    /// Records that the attempt was refused, which is an answer: the rail is only doubted. Returns
    /// whether another one is trusted.
    pub fn refused(&mut self, seat: &Seat, now: Time) -> bool {
        self.doubt(seat.on, false, now);
        self.others_are(seat.on, Health::is_trusted)
    }

    /// Records that the attempt was not answered. That proves little if it was given up before the
    /// request was repeated. Returns whether another rail is worth an attempt.
    pub fn unanswered(&mut self, seat: &mut Seat, now: Time) -> bool {
        if seat.hasty {
            seat.in_vain = true;
            self.refused(seat, now)
        } else {
            self.failed(seat, now)
        }
    }

    /// Records that the connection was lost, perhaps because of its rail.
    pub fn doubted(&mut self, seat: &Seat, now: Time) {
        if !self.is_left_over(seat, now) {
            self.doubt(seat.on, true, now);
        }
    }

    /// Records that a port is down: every rail that begins there is dead.
    pub fn port_down(&mut self, local: IpAddr, now: Time) {
        for on in 0..REMEMBERED as u8 {
            if self.get(on).is_some_and(|entry| entry.rail.local == local) {
                self.died(on, now);
            }
        }
    }

    /// Records that the port of the connection's rail works again.
    pub fn port_works(&mut self, seat: &Seat, now: Time) {
        if let Some(entry) = self.get_mut(seat.on) {
            entry.health.look_soon(now);
        }
    }

    pub(super) fn died(&mut self, on: u8, now: Time) {
        let Self {
            entries, random, ..
        } = self;
        if let Some(Some(entry)) = entries.get_mut(usize::from(on)) {
            entry.health.failed(random, now);
            self.excuse(now);
        }
    }

    fn doubt(&mut self, on: u8, moved: bool, now: Time) {
        let Self {
            entries, random, ..
        } = self;
        if let Some(Some(entry)) = entries.get_mut(usize::from(on)) {
            entry.health.doubt(moved, random, now);
            self.excuse(now);
        }
    }

    /// Looks whether all rails have failed.
    fn excuse(&mut self, now: Time) {
        if !self.listed().all(|entry| entry.health.is_on_trial(now)) {
            return;
        }
        self.all_failed = Some(now);
        for entry in self.entries.iter_mut().flatten() {
            entry.health.excuse(now);
        }
        // A rail may work again already.
        if self.listed().any(|entry| entry.health.is_clear()) {
            self.recovered = Some(now);
        }
    }

    /// Records that a connection was made over this rail.
    pub(super) fn worked(&mut self, on: u8, now: Time) {
        if !self.listed().any(|entry| entry.health.is_clear()) {
            self.recovered = Some(now);
            // The other rails may work as well.
            for entry in self.entries.iter_mut().flatten() {
                entry.health.look_soon(now);
            }
        }
        let late = self.recovered;
        let late = late.is_some_and(|first| now.since(first) >= LATE);
        let Self {
            entries, random, ..
        } = self;
        if let Some(Some(entry)) = entries.get_mut(usize::from(on)) {
            entry.health.worked(late, random, now);
        }
    }
}
