// SPDX-License-Identifier: GPL-2.0

//! Decides when a connection moves to another rail.

use super::{
    super::seat::{
        Move,
        Seat, //
    },
    number,
    Entry,
    Rails,
    SILENT, //
};
use crate::time::{
    Millis,
    Time, //
};

/// `PAUSE` is the usual interval between two moves. If the moves that are due would take longer
/// than `ALL_MOVES` in total, the interval is shorter, but at least `LEAST_PAUSE`.
const PAUSE: Millis = Millis::new(250);
const LEAST_PAUSE: Millis = Millis::new(50);
const ALL_MOVES: Millis = Millis::from_secs(10);

/// Idle connections move first. A busy connection may move only if no idle connection has moved for
/// this long. This is enough time to ask every connection whether it is idle.
const IDLE_FIRST: Millis = Millis::from_secs(3);

/// A busy connection leaves a live rail only after its calls have completed. If the calls take too
/// long, the connection stays on its rail for this time. The time doubles with each further failure
/// to move, up to `LONGEST_STAY`.
const STAY: Millis = Millis::from_secs(30);
const LONGEST_STAY: Millis = Millis::from_secs(600);

impl Rails {
    /// Returns how this connection must move to another rail, or `None` if it stays on its rail.
    ///
    /// - `busy` says that calls are in flight on the connection.
    /// - `heard` is the time of the last message from the server.
    ///
    /// A connection that must move is counted as a user of its new rail from now on. The next
    /// connection attempt uses that rail, unless [`Rails::stay`] is called before the attempt.
    pub fn moves(&mut self, seat: &mut Seat, busy: bool, heard: Time, now: Time) -> Option<Move> {
        if self.get(seat.on)?.health.is_belied(heard) {
            self.worked(seat.on, now);
        }
        let carries = *seat.carries.get_or_insert(now);
        for (index, place) in (0u8..).zip(&mut self.entries) {
            if let Some(entry) = place.as_mut().filter(|_| index != seat.on) {
                entry.health.compare(carries, heard);
            }
        }
        let silent = now.since(heard) >= SILENT;
        let excess = self.excess(now);
        if excess == 0 {
            self.waits_since = None;
        }
        let own = self.get(seat.on)?;
        let (load, listed) = (own.load, own.listed);
        let fled = !own.health.is_live();
        let waits = !fled && (now < seat.rests || (busy && now < seat.stays));
        if seat.to.is_some() || (fled && busy && !silent) || waits {
            // A busy connection that gets its replies may stay, even if its rail counts as dead.
            return None;
        }
        let is_target = |(index, entry): &(u8, &Entry)| {
            let health = &entry.health;
            let well = health.is_settled(now) || (fled && health.is_trusted());
            *index != seat.on && entry.listed && well
        };
        let targets = self.indexed().filter(is_target);
        let (to, least) = targets
            .map(|(index, entry)| (index, entry.load))
            .min_by_key(|(_, load)| *load)?;
        if !fled {
            if listed && load < least.saturating_add(2) {
                return None;
            }
            let since = *self.waits_since.get_or_insert(now);
            let waits_for_idle = busy && now.since(since) < IDLE_FIRST;
            if waits_for_idle || now < self.next_move {
                return None;
            }
            if !busy {
                self.waits_since = Some(now);
            }
            let pause = ALL_MOVES.get().checked_div(excess.into());
            let pause = Millis::new(pause.unwrap_or(0)).clamp(LEAST_PAUSE, PAUSE);
            self.next_move = now.after(pause);
        }
        self.count_for(seat.on, to);
        seat.to = Some(to);
        Some(if fled { Move::Flee } else { Move::Shift })
    }

    /// Records that the connection does not move, because its calls take too long. No new calls
    /// were sent during the wait for these calls, so such waits should be rare. For some time after
    /// this call, [`Rails::moves`] does not ask the connection to leave a live rail while it is
    /// busy. This time grows with each call.
    pub fn stay(&mut self, seat: &mut Seat, now: Time) {
        // `STAY` shifted by ten bits already exceeds `LONGEST_STAY`, so no larger shift is needed.
        let factor = 1u64.wrapping_shl(seat.stayed.min(10));
        let stay = Millis::new(STAY.get().saturating_mul(factor)).min(LONGEST_STAY);
        seat.stays = now.after(stay);
        seat.stayed = seat.stayed.saturating_add(1);
        if let Some(to) = seat.to.take() {
            if let Some(entry) = self.get_mut(seat.on) {
                entry.load = entry.load.saturating_add(1);
            }
            if let Some(entry) = self.get_mut(to) {
                entry.load = entry.load.saturating_sub(1);
            }
            self.release(to);
        }
    }

    fn count_for(&mut self, on: u8, to: u8) {
        if let Some(entry) = self.get_mut(on) {
            entry.load = entry.load.saturating_sub(1);
        }
        self.count(to);
    }

    /// Returns the minimum number of moves after which the rails are balanced:
    ///
    /// - Any two settled rails have the same number of connections, or differ by one.
    /// - Rails that left the tables have no connections.
    fn excess(&self, now: Time) -> u32 {
        let settled = |entry: &&Entry| entry.listed && entry.health.is_settled(now);
        let targets = || self.entries.iter().flatten().filter(settled);
        let movable = |entry: &&Entry| !entry.listed || entry.health.is_live();
        let loads = || self.entries.iter().flatten().filter(movable);
        let sum = |sum: u32, more| sum.saturating_add(more);
        let all = loads().map(|entry| entry.load).fold(0, sum);
        let rails = number(targets());
        let Some(share) = all.checked_div(rails) else {
            return 0;
        };
        let has_rest = all.saturating_sub(share.saturating_mul(rails)) != 0;
        let most = share.saturating_add(has_rest.into());
        let over = loads().map(|entry| {
            let fair = if entry.listed { most } else { 0 };
            entry.load.saturating_sub(fair)
        });
        let under = targets().map(|entry| share.saturating_sub(entry.load));
        over.fold(0, sum).max(under.fold(0, sum))
    }
}
