// SPDX-License-Identifier: GPL-2.0

//! The rails to one server and the connections on them ([`Rails`]): which rail a connection takes,
//! and when a connection moves to another rail.
//!
//! # Rules kept here
//!
//! * A connection takes the live rail that has the fewest connections to this server. If all rails
//!   are dead, the connection takes the rail that was not tried for the longest time.
//! * A connection leaves a rail that died. A healthy connection moves only to balance the rails,
//!   or if its rail is no longer in the tables. Such moves are limited in rate, idle connections
//!   move first, and the new rail must have settled ([`health`](super::health)).
//! * Probes test a dead rail, so that no connection in use is risked (`probes`).
//! * A rail is at fault if it fails while other rails work. If all rails fail, no rail is at fault
//!   (`blame`).

mod blame;
mod moves;
mod probes;

use super::{
    health::{
        Health,
        REST, //
    },
    pairs::{
        Pairs,
        MAX_RAILS, //
    },
    place::Rail,
    seat::{
        Choice,
        Seat,
        Standing,
        View, //
    }, //
};
use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};
use core::net::IpAddr;

/// Number of rails that are remembered. It is twice [`MAX_RAILS`], because a rail that left the
/// administrator's tables may still be in use, or may return.
const REMEMBERED: usize = 2 * MAX_RAILS;

/// Maximum duration of an attempt while another rail is trusted. The limit is short, so that the
/// other rail is tried soon. The connection manager repeats a request only after 4.1 to 4.6
/// seconds. So an attempt that reaches this limit has sent a single request, which may have been
/// lost. This does not prove that the rail is dead.
const SHORT: Millis = Millis::from_secs(4);
/// Maximum duration of an attempt while other rails are known, but none of them is trusted. Within
/// this time the connection manager can repeat its request once, and still receive the answer.
const LONG: Millis = Millis::from_secs(10);

/// A busy connection counts as silent if it has received no message for this time. A busy
/// connection leaves a dead rail only if it is silent. Only a silent connection makes the rails
/// suspected.
const SILENT: Millis = Millis::new(1500);

/// The entry of one rail in the list.
#[derive(Clone, Debug)]
struct Entry {
    rail: Rail,
    health: Health,
    /// Whether the rail is in the list that results from the administrator's tables.
    listed: bool,
    /// Number of connections and attempts that use this rail or are about to move to it.
    load: u32,
    /// Number of seats (uses by connections) and probes that refer to this entry.
    held: u32,
    probes: Probes,
}

/// The probes of a rail.
#[derive(Clone, Copy, Debug, Default)]
struct Probes {
    /// Number of probes in flight.
    under_way: u32,
    /// Time at which the latest probe was started.
    last: Option<Time>,
    /// Start time of an unanswered probe of this suspected rail; `None` if there is no such probe.
    /// A later probe sets the field only if it is `None`. The field becomes `None` in three cases:
    /// rails are suspected again, a probe is answered, or the unanswered probe proves nothing.
    unanswered: Option<Time>,
    /// Whether a probe has been answered since the last suspicion.
    answers: bool,
    /// Whether a Send on this rail may complete before the peer has received it.
    ends_early: bool,
}

/// The rails to one server. The driver has one such object for each server, and protects it with a
/// lock.
#[derive(Clone, Debug)]
pub struct Rails {
    entries: [Option<Entry>; REMEMBERED],
    random: Random,
    /// Before this time, a connection leaves its rail only if the rail is dead.
    next_move: Time,
    /// Time at which the rails became unbalanced, or at which an idle connection last moved.
    waits_since: Option<Time>,
    /// Latest time at which a check found that all rails had failed.
    all_failed: Option<Time>,
    /// Time at which the first rail worked again after all rails had failed.
    recovered: Option<Time>,
    /// Time at which rails were last suspected.
    suspected: Option<Time>,
    /// Start time of the latest answered probe. A probe counts only if it began after rails were
    /// last suspected.
    answered: Option<Time>,
}

impl Rails {
    /// Creates an empty list of rails. `seed` determines the jitter, and should differ from host
    /// to host.
    #[inline]
    pub const fn new(seed: u64) -> Self {
        Self {
            entries: [const { None }; REMEMBERED],
            random: Random::new(seed),
            next_move: Time::from_millis(0),
            waits_since: None,
            all_failed: None,
            recovered: None,
            suspected: None,
            answered: None,
        }
    }

    // The next methods keep the list of rails up to date.

    /// Replaces the list of rails by `pairs`.
    pub fn update(&mut self, pairs: &Pairs, now: Time) {
        // If no rail is left, the state of the rails need not be remembered.
        let forget = pairs.iter().next().is_none();
        for place in &mut self.entries {
            if let Some(entry) = place {
                entry.listed &= pairs.iter().any(|rail| *rail == entry.rail);
                if forget && entry.held == 0 {
                    *place = None;
                }
            }
        }
        let from_start = self.entries.iter().flatten().next().is_none();
        for rail in pairs.iter() {
            self.list(*rail, from_start, now);
        }
    }

    fn list(&mut self, rail: Rail, from_start: bool, now: Time) {
        let Self {
            entries, random, ..
        } = self;
        let known = entries.iter_mut().flatten();
        if let Some(entry) = known.into_iter().find(|entry| entry.rail == rail) {
            if !entry.listed {
                entry.listed = true;
                entry.health.came_back(random, now);
            }
            return;
        }
        // Picks a free entry, or else the oldest unused entry whose rail left the administrator's
        // tables.
        let age = |place: &&mut Option<Entry>| match place {
            None => Some(Time::default()),
            Some(entry) if entry.listed || entry.held > 0 => None,
            Some(entry) => Some(entry.health.since()),
        };
        let places = entries.iter_mut();
        let usable = places.filter_map(|place| Some((age(&place)?, place)));
        // If every entry is in the administrator's tables or in use, this rail is not added now.
        if let Some((_, place)) = usable.min_by_key(|(age, _)| *age) {
            *place = Some(Entry {
                rail,
                health: Health::new(from_start, random, now),
                listed: true,
                load: 0,
                held: 0,
                probes: Probes::default(),
            });
        }
    }

    // The next methods are for attempts and their connections.

    /// Chooses a rail for a connection attempt. Releases `last`, the seat of the previous attempt
    /// or connection. `after_death` says that this previous attempt or connection ended because
    /// its rail died. Returns `None` if there are no rails.
    pub fn take(
        &mut self,
        last: Option<Seat>,
        after_death: bool,
        now: Time,
    ) -> Option<(Seat, Choice)> {
        let reserved = last.as_ref().and_then(|seat| seat.to);
        let in_vain = last.as_ref().is_some_and(|seat| seat.in_vain);
        if let Some(last) = last {
            self.leave(last);
        }
        let is_good = |entry: &Entry| entry.listed && entry.health.is_trusted();
        let reserved = reserved.filter(|on| self.get(*on).is_some_and(is_good));
        let on = match reserved {
            Some(on) => on,
            None => self.best(now)?,
        };
        // `known` counts all remembered rails, and not only the listed rails. A rail whose port is
        // down is not listed, but may return.
        let known = number(self.entries.iter().flatten());
        let mut seat = Seat::new(on);
        seat.hasty = self.others_are(on, Health::is_trusted);
        if in_vain {
            // The previous attempt was not answered. Its rail may soon seem to work again, but the
            // new connection must not return to that rail soon. So the connection stays on the new
            // rail for some time, unless the new rail dies.
            seat.rests = now.after(REST);
        }
        self.count(on);
        let entry = self.get_mut(on)?;
        entry.health.chosen(now);
        let choice = Choice {
            rail: entry.rail,
            at_once: after_death && entry.health.is_trusted(),
            limit: match (known, seat.hasty) {
                (0 | 1, _) => None,
                (_, true) => Some(SHORT),
                (_, false) => Some(LONG),
            },
        };
        Some((seat, choice))
    }

    /// Chooses the rail for an attempt.
    fn best(&mut self, now: Time) -> Option<u8> {
        // If several rails are equally good, one of them is chosen at random. Otherwise a host with
        // one connection to each of many servers would use the same device for all connections.
        let count = number(self.listed());
        // CAST: The random number is less than `count`, which is a `u32`.
        let first = self.random.below(count.into()) as u32;
        let turn = |rank: u32| rank.wrapping_add(first).checked_rem(count);
        let listed = self.indexed().filter(|(_, entry)| entry.listed);
        let best = (0..count).zip(listed).min_by_key(|(rank, (_, entry))| {
            let health = &entry.health;
            let standing = if health.is_settled(now) {
                0
            } else if health.is_trusted() {
                1
            } else if health.is_live() {
                2
            } else {
                3
            };
            (standing, health.tried(), entry.load, turn(*rank))
        })?;
        Some(best.1 .0)
    }

    /// Counts a connection that was made before rails were configured. The connection counts as a
    /// user of the rail that has the addresses of the connection. Returns `None` if no rail has
    /// these addresses.
    pub fn adopt(&mut self, local: IpAddr, server: IpAddr, now: Time) -> Option<Seat> {
        let is_its = |(_, entry): &(u8, &Entry)| {
            entry.listed && (entry.rail.local, entry.rail.server) == (local, server)
        };
        let (on, _) = self.indexed().find(is_its)?;
        self.count(on);
        self.get_mut(on)?.health.carries(now);
        Some(Seat::new(on))
    }

    /// Ends the use of a rail by one connection.
    pub fn leave(&mut self, seat: Seat) {
        if let Some(entry) = self.get_mut(seat.to.unwrap_or(seat.on)) {
            entry.load = entry.load.saturating_sub(1);
        }
        self.release(seat.on);
        if let Some(to) = seat.to {
            self.release(to);
        }
    }

    /// Adds one connection to the counts of this rail.
    fn count(&mut self, on: u8) {
        if let Some(entry) = self.get_mut(on) {
            entry.load = entry.load.saturating_add(1);
            entry.held = entry.held.saturating_add(1);
        }
    }

    /// Returns the number of rails in the administrator's tables.
    pub fn how_many(&self) -> u32 {
        number(self.listed())
    }

    /// Returns true if a rail leads to this server address.
    pub fn lead_to(&self, server: IpAddr) -> bool {
        self.listed().any(|entry| entry.rail.server == server)
    }

    /// Returns true if there is more than one rail.
    pub fn are_several(&self) -> bool {
        self.listed().nth(1).is_some()
    }

    // The next method shows the rails to administrators.

    /// Returns the state of each rail that is in the administrator's tables or is still used.
    pub fn views(&self, now: Time) -> impl Iterator<Item = View> + '_ {
        let entries = self.entries.iter().flatten();
        let shown = entries.filter(|entry| entry.listed || entry.load > 0);
        shown.map(move |entry| View {
            rail: entry.rail,
            standing: match (entry.listed, entry.health.is_live()) {
                (false, _) => Standing::Gone,
                (true, false) => Standing::Dead,
                (true, true) if entry.health.is_settled(now) => Standing::Live,
                (true, true) if entry.health.is_trusted() => Standing::Returning,
                (true, true) => Standing::Doubted,
            },
            since: entry.health.since(),
            load: entry.load,
        })
    }

    // The next methods search the list of rails for entries.

    fn get(&self, index: u8) -> Option<&Entry> {
        self.entries.get(usize::from(index))?.as_ref()
    }

    fn get_mut(&mut self, index: u8) -> Option<&mut Entry> {
        self.entries.get_mut(usize::from(index))?.as_mut()
    }

    fn indexed(&self) -> impl Iterator<Item = (u8, &Entry)> {
        (0..REMEMBERED as u8).filter_map(|index| Some((index, self.get(index)?)))
    }

    fn listed(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().flatten().filter(|entry| entry.listed)
    }

    /// Returns true if `so` is true for at least one rail other than `than` in the administrator's
    /// tables.
    fn others_are(&self, than: u8, so: impl Fn(&Health) -> bool) -> bool {
        self.indexed()
            .any(|(index, entry)| index != than && entry.listed && so(&entry.health))
    }

    fn release(&mut self, on: u8) {
        if let Some(entry) = self.get_mut(on) {
            entry.held = entry.held.saturating_sub(1);
        }
    }
}

/// Counts the items. `Iterator::count` is not used because its overflow check may panic.
fn number<T>(of: impl Iterator<Item = T>) -> u32 {
    of.fold(0, |count, _| count.saturating_add(1))
}
