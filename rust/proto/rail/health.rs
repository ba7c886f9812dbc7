// SPDX-License-Identifier: GPL-2.0

//! Whether a rail works, and when it may have its connections back ([`Health`]).
//!
//! A rail is live until it is known to be dead, and dead until something was connected over it. A
//! live rail that was dead is chosen again when no better one is there, but connections that do
//! well elsewhere return only when it has *settled*: when it has been live for the hold-down, and a
//! minute has passed since it died. So nobody is moved twice in a minute. One that did not work
//! from the start, as after a boot, need not wait for the minute. The hold-down grows with each
//! death that comes soon after the one before: a rail that flaps keeps fewer and fewer promises.
//!
//! A live rail is *doubted* when a connection with calls in flight ended over it and nothing says
//! why. It is probed as soon as somebody looks after a connection to the server, and chosen only
//! before dead ones, until the probe or an attempt has told. One that is *suspected*, for silence
//! alone, is treated likewise, but with less right: nobody has left it, so nobody need be kept from
//! it later, and a probe in vain does not suffice to call it dead
//! ([`Rails::watch`](super::Rails::watch)).

use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};

/// How long a rail has been live when it settles, by the number of deaths in a row.
const HOLD_DOWN: [Millis; 6] = [
    Millis::from_secs(10),
    Millis::from_secs(60),
    Millis::from_secs(120),
    Millis::from_secs(240),
    Millis::from_secs(480),
    Millis::from_secs(600),
];

/// A death is followed by no return for so long, not even after a short one.
const REST: Millis = Millis::from_secs(60);

/// A rail that has been live for so long dies for the first time again.
const FORGET: Millis = Millis::from_secs(600);

/// The pause before the first probe of a dead rail; it doubles with each further one.
const FIRST_PROBE: Millis = Millis::from_secs(1);

/// The longest pause between two probes.
const LAST_PROBE: Millis = Millis::from_secs(20);

/// What comes so soon after a rail died may have been under way.
const UNDER_WAY: Millis = Millis::from_secs(1);

/// What is known of a dead rail.
#[derive(Clone, Copy, Debug)]
struct Dead {
    since: Time,
    /// Somebody last tried it then, in vain.
    tried: Time,
    probes: u32,
    next_probe: Time,
}

/// What is known of a rail.
#[derive(Clone, Debug)]
pub(super) struct Health {
    dead: Option<Dead>,
    /// Since when a live one is doubted.
    doubted: Option<Time>,
    /// Since when a live one is suspected.
    suspected: Option<Time>,
    /// Something was ever connected over it.
    proven: bool,
    /// When it last became live.
    live_since: Time,
    settles: Time,
    /// When it last died after it had worked.
    died: Option<Time>,
    /// How many deaths followed each other soon.
    in_a_row: usize,
}

impl Health {
    /// A live rail that settles at once if it was there from the start.
    pub(super) fn new(from_start: bool, now: Time) -> Self {
        let mut health = Self {
            dead: None,
            doubted: None,
            suspected: None,
            proven: false,
            live_since: now,
            settles: now,
            died: None,
            in_a_row: 0,
        };
        if !from_start {
            health.came_back(now);
        }
        health
    }

    /// It is in the tables again.
    pub(super) fn came_back(&mut self, now: Time) {
        let [least, ..] = HOLD_DOWN;
        self.settles = self.settles.max(now.after(least));
        self.look_soon(now);
    }

    /// Something failed for which the rail is to blame.
    pub(super) fn failed(&mut self, random: &mut Random, now: Time) {
        if self.dead.is_some() {
            return;
        }
        self.trust();
        let is_first = self.died.is_none() || now.since(self.live_since) >= FORGET;
        self.in_a_row = if is_first {
            0
        } else {
            self.in_a_row.saturating_add(1)
        };
        // Of one that never worked nobody was moved away.
        if self.proven {
            self.died = Some(now);
        }
        self.dead = Some(Dead {
            since: now,
            tried: now,
            probes: 0,
            next_probe: now.after(random.upper_half(FIRST_PROBE)),
        });
    }

    /// A connection ended for which it may be to blame.
    pub(super) fn doubt(&mut self, now: Time) {
        if self.is_live() {
            self.doubted = Some(now);
            // Connections that leave it have moved.
            self.settles = self.settles.max(now.after(REST));
        }
    }

    /// It may be to blame that nothing comes from the server.
    pub(super) fn suspect(&mut self, now: Time) {
        if self.is_live() {
            self.suspected = Some(now);
        }
    }

    /// Whether it is suspected.
    pub(super) const fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// Whether a loss speaks against it.
    pub(super) const fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }

    /// The suspicion comes to nothing.
    pub(super) fn drop_suspicion(&mut self) {
        self.suspected = None;
    }

    /// Nothing speaks against it any more, or it is dead.
    fn trust(&mut self) {
        self.doubted = None;
        self.suspected = None;
    }

    /// Since when it has been dead, doubted or suspected.
    fn distrusted(&self) -> Option<Time> {
        let dead = self.dead.map(|dead| dead.since);
        dead.or(self.doubted).or(self.suspected)
    }

    /// An attempt takes it, though it may be dead.
    pub(super) fn chosen(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.tried = now;
        }
    }

    /// A connection is on it that was made before.
    pub(super) fn carries(&mut self) {
        self.proven = true;
    }

    /// Something was connected over it.
    pub(super) fn worked(&mut self, random: &mut Random, now: Time) {
        self.proven = true;
        self.trust();
        if self.dead.take().is_none() {
            return;
        }
        let [.., longest] = HOLD_DOWN;
        let hold = HOLD_DOWN.get(self.in_a_row).copied().unwrap_or(longest);
        // Up to a quarter more, so that the clients of a network do not return all at once.
        let jitter = Millis::new(random.below(hold.get() >> 2));
        let rested = self.died.map_or(now, |died| died.after(REST));
        self.live_since = now;
        self.settles = now.after(hold).after(jitter).max(rested);
    }

    /// Whether a rail that is dead or doubted is to be tried by a probe now.
    pub(super) fn wants_probe(&self, now: Time) -> bool {
        match self.dead {
            Some(dead) => now >= dead.next_probe,
            None => !self.is_trusted(),
        }
    }

    /// A probe begins.
    pub(super) fn probing(&mut self, random: &mut Random, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.probes = dead.probes.saturating_add(1);
            // A shift of ten already makes more than the longest.
            let factor = 1u64.wrapping_shl(dead.probes.min(10));
            let pause = Millis::new(FIRST_PROBE.get().saturating_mul(factor)).min(LAST_PROBE);
            dead.next_probe = now.after(random.upper_half(pause));
        }
    }

    /// There is a sign that a dead rail lives: it is probed at once.
    pub(super) fn look_soon(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.next_probe = now;
        }
    }

    /// Whether something came over a rail that is dead or doubted, long enough after that began not
    /// to have been under way then.
    pub(super) fn is_belied(&self, heard: Time) -> bool {
        self.distrusted()
            .is_some_and(|since| heard > since.after(UNDER_WAY))
    }

    /// Whether it is not known to be dead.
    pub(super) const fn is_live(&self) -> bool {
        self.dead.is_none()
    }

    /// Whether nothing speaks against it.
    pub(super) const fn is_trusted(&self) -> bool {
        self.is_live() && self.doubted.is_none() && self.suspected.is_none()
    }

    /// Whether it is live, and may have connections that do well elsewhere.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.is_trusted() && now >= self.settles
    }

    /// When a dead rail was last tried.
    pub(super) fn tried(&self) -> Time {
        self.dead.map_or(Time::default(), |dead| dead.tried)
    }

    /// Since when it has been live, doubted or dead.
    pub(super) fn since(&self) -> Time {
        self.distrusted().unwrap_or(self.live_since)
    }
}
