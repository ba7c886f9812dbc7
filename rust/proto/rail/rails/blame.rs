// SPDX-License-Identifier: GPL-2.0

//! Updates the states of rails after events of attempts, connections and ports. Decides whether a
//! rail was at fault.
//!
//! A rail (a pair of a local and a server address) is at fault if it fails while other rails work.
//! If a server restarts or loses power, or if this host is paused, all rails fail, one after the
//! other. Then no rail is at fault, and connections may return to each rail as soon as the rail
//! works ([`health`](super::super::health)).

use super::{
    super::{
        health::{
            Health,
            TOGETHER, //
        },
        place::Rail,
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

/// After all rails have failed, they may recover one after the other. A rail that recovers less
/// than this time after the first rail counts as recovered together with the first rail.
const LATE: Millis = Millis::from_secs(30);

impl Rails {
    /// Records that the connection to which `seat` belongs was established.
    pub fn connected(&mut self, seat: &Seat, now: Time) {
        self.worked(seat.on, now);
        if let Some(entry) = self.get_mut(seat.on) {
            entry.health.carries(now);
        }
    }

    /// Records that the connection was lost because the peer was silent. Usually this means that
    /// the rail is dead. There is one exception: if the connection was made before all rails
    /// failed, it may have failed together with the rails. In this case the state of the rail does
    /// not change. Returns whether another rail is live.
    pub fn lost(&mut self, seat: &Seat, now: Time) -> bool {
        if !self.is_left_over(seat, now) {
            self.died(seat.on, now);
        }
        self.others_are(seat.on, Health::is_live)
    }

    /// Returns true if the connection was made before all rails failed, and may have failed
    /// together with the rails.
    fn is_left_over(&self, seat: &Seat, now: Time) -> bool {
        let before = |failed: &Time| seat.carries.is_some_and(|since| since < *failed);
        let all_failed = self.all_failed.filter(before);
        all_failed.is_some_and(|failed| now.since(failed) < TOGETHER)
    }

    /// Records a failure for which the rail is to blame: an attempt failed, or the port or the
    /// device went away. The rail is then dead. Returns whether another rail is live.
    pub fn failed(&mut self, seat: &Seat, now: Time) -> bool {
        self.died(seat.on, now);
        self.others_are(seat.on, Health::is_live)
    }

    /// Records that the attempt was refused. A refusal is an answer, so the state of the rail
    /// becomes `Doubted` and not `Dead`. Returns whether another rail is trusted.
    pub fn refused(&mut self, seat: &Seat, now: Time) -> bool {
        self.doubt(seat.on, false, now);
        self.others_are(seat.on, Health::is_trusted)
    }

    /// Records that the attempt was not answered. If the attempt was given up before the connection
    /// manager repeated the request, the state of the rail becomes `Doubted` and not `Dead`.
    /// Returns whether the caller should try another rail.
    pub fn unanswered(&mut self, seat: &mut Seat, now: Time) -> bool {
        if seat.hasty {
            seat.in_vain = true;
            self.refused(seat, now)
        } else {
            self.failed(seat, now)
        }
    }

    /// Records that the connection was lost, perhaps because its rail failed.
    pub fn doubted(&mut self, seat: &Seat, now: Time) {
        if !self.is_left_over(seat, now) {
            self.doubt(seat.on, true, now);
        }
    }

    /// Records that the port with this local address is down: every rail with this address is dead.
    pub fn port_down(&mut self, local: IpAddr, now: Time) {
        self.all_died(|rail| rail.local == local, now);
    }

    /// Records that the port of the connection's rail is down, or that its device failed if
    /// `whole_device` is true. Every rail that begins at this port or device is dead. Returns
    /// whether another rail is live.
    pub fn port_failed(&mut self, seat: &Seat, whole_device: bool, now: Time) -> bool {
        if let Some(failed) = self.get(seat.on).map(|entry| entry.rail) {
            let is_of_device = |rail: &Rail| whole_device && rail.device == failed.device;
            self.all_died(|rail| is_of_device(rail) || rail.shares_port(&failed), now);
        }
        self.others_are(seat.on, Health::is_live)
    }

    /// Records that the port of the connection's rail works again.
    pub fn port_works(&mut self, seat: &Seat, now: Time) {
        if let Some(works) = self.get(seat.on).map(|entry| entry.rail) {
            let known = self.entries.iter_mut().flatten();
            for entry in known.filter(|entry| entry.rail.shares_port(&works)) {
                entry.health.look_soon(now);
            }
        }
    }

    /// Records that every rail for which `is_dead` returns true is dead.
    fn all_died(&mut self, is_dead: impl Fn(&Rail) -> bool, now: Time) {
        for on in 0..REMEMBERED as u8 {
            if self.get(on).is_some_and(|entry| is_dead(&entry.rail)) {
                self.died(on, now);
            }
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

    /// Checks whether all rails have failed. If so, records that no rail is at fault.
    fn excuse(&mut self, now: Time) {
        if !self.listed().all(|entry| entry.health.is_on_trial(now)) {
            return;
        }
        self.all_failed = Some(now);
        for entry in self.entries.iter_mut().flatten() {
            entry.health.excuse(now);
        }
        // A rail that failed earlier may work again by now.
        if self.listed().any(|entry| entry.health.is_clear()) {
            self.recovered = Some(now);
        }
    }

    /// Records that a connection was made over this rail.
    pub(super) fn worked(&mut self, on: u8, now: Time) {
        if !self.listed().any(|entry| entry.health.is_clear()) {
            self.recovered = Some(now);
            // If one rail works again, the other rails may work again as well, so they are probed
            // soon.
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
