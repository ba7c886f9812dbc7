// SPDX-License-Identifier: GPL-2.0

//! Whether a rail works, and when connections may return to it ([`Health`]).
//!
//! A rail is live until it is known to be dead. A dead rail becomes live again when a connection
//! has been made over it.
//!
//! A rail is *settled* if it has been live for a minimum time (the hold-down), and died at least a
//! minute ago. The minute does not apply to a rail over which no connection was ever made, for
//! example after a boot. Healthy connections on other rails move only to a settled rail. So no
//! connection moves twice in a minute. Attempts may choose any live rail, but prefer a settled
//! rail.
//!
//! The hold-down grows each time a settled rail dies, up to an hour. It becomes short again if
//! connections use the rail for ten minutes, or for the hold-down if that is longer. A random time
//! is added to each pause, so that the hosts of a network do not all return to a rail at the same
//! time.
//!
//! A live rail is *doubted* after one of these events:
//!
//! * A connection over the rail ended with calls in flight and without a known reason.
//! * An attempt over the rail was refused.
//! * A short attempt over the rail was not answered.
//!
//! A doubted rail is probed as soon as a connection to the server is checked. Until a probe or an
//! attempt has succeeded or failed, attempts prefer trusted rails to doubted rails, and doubted
//! rails to dead rails.
//!
//! A live rail is *suspected* if it was only silent. A suspected rail is treated like a doubted
//! rail, with two differences: the suspicion does not delay later moves to the rail, and a failed
//! probe alone does not make the rail dead ([`Rails::watch`](super::Rails::watch)).
//!
//! A rail that failed is on *trial* until it is known whether the rail was at fault. If a
//! connection over another rail outlives the failure, the rail was at fault. If all rails fail, and
//! no connection outlives the failures, the server or this host was at fault. Each rail then gets
//! back its earlier history as soon as it works.

use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};

/// Time for which a rail must have been live to be settled. The index of this array is the number
/// of the rail's deaths in a row.
const HOLD_DOWN: [Millis; 7] = [
    Millis::from_secs(10),
    Millis::from_secs(120),
    Millis::from_secs(240),
    Millis::from_secs(480),
    Millis::from_secs(960),
    Millis::from_secs(1920),
    Millis::from_secs(3600),
];

/// Minimum time between the death of a rail and the return of connections to it.
pub(super) const REST: Millis = Millis::from_secs(60);

/// A random time is added to each pause. Its maximum is this time, or a quarter of the pause if
/// that is longer.
const SPREAD: Millis = Millis::from_secs(12);

/// When a rail dies, its count of deaths in a row restarts at zero if connections have used the
/// rail for this time, or for the rail's hold-down if that is longer.
const FORGET: Millis = Millis::from_secs(600);

/// Several rails can fail from one common cause only if all of them fail within this time. The time
/// suffices for one attempt over each rail.
pub(super) const TOGETHER: Millis = Millis::from_secs(120);

/// A connection has outlived the failure of another rail only if the connection receives a message
/// more than this time after the failure. A shorter time proves nothing, because a server that
/// shuts down closes its connections one after the other.
const OUTLIVED: Millis = Millis::from_secs(2);

/// The pause before the first probe of a dead rail. The pause doubles with each further probe.
const FIRST_PROBE: Millis = Millis::from_secs(1);

/// The longest pause between two probes.
const LAST_PROBE: Millis = Millis::from_secs(20);

/// A message that arrives within this time after a rail died may have been sent before the rail
/// died.
const UNDER_WAY: Millis = Millis::from_secs(1);

/// The state of a dead rail.
#[derive(Clone, Copy, Debug)]
struct Dead {
    since: Time,
    /// Time of the last attempt over this rail, or of the rail's death if no attempt followed.
    tried: Time,
    probes: u32,
    next_probe: Time,
}

/// The history of a rail, which decides when connections return to it.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Time at which the rail last became live.
    live_since: Time,
    settles: Time,
    /// Time at which the rail last died after it had worked.
    died: Option<Time>,
    /// Number of deaths in a row, without a long time of use between them.
    in_a_row: usize,
    /// Time at which the first connection used the rail after the rail last became live; `None` if
    /// no connection has used the rail since then.
    used: Option<Time>,
}

/// A failure that may be the fault of the rail. The trial ends when it is known whether the rail
/// was at fault.
#[derive(Clone, Copy, Debug)]
struct Trial {
    since: Time,
    /// The history of the rail before the failure.
    before: Record,
    /// Whether a connection over another rail outlived the failure.
    outlived: bool,
    /// Whether all rails failed, and no connection outlived their failures.
    excused: bool,
}

/// Whether a rail works, with its recent failures and its history.
#[derive(Clone, Debug)]
pub(super) struct Health {
    dead: Option<Dead>,
    /// Time at which this live rail became doubted.
    doubted: Option<Time>,
    /// Time at which this live rail became suspected.
    suspected: Option<Time>,
    /// Whether a connection was ever made over this rail.
    proven: bool,
    record: Record,
    trial: Option<Trial>,
}

impl Health {
    /// Makes a live rail. `from_start` says whether the rail was in the list from the start. If so,
    /// the rail is settled already, and healthy connections may move to it.
    pub(super) fn new(from_start: bool, random: &mut Random, now: Time) -> Self {
        let mut health = Self {
            dead: None,
            doubted: None,
            suspected: None,
            proven: false,
            record: Record {
                live_since: now,
                settles: now,
                died: None,
                in_a_row: 0,
                used: None,
            },
            trial: None,
        };
        if !from_start {
            health.came_back(random, now);
        }
        health
    }

    /// Records that the rail is in the list of rails again. Connections may return to it after the
    /// shortest hold-down.
    pub(super) fn came_back(&mut self, random: &mut Random, now: Time) {
        let [least, ..] = HOLD_DOWN;
        self.settle_after(least, random, now);
        self.look_soon(now);
    }

    /// Delays the return of connections to this rail by the time `pause` plus a random time.
    fn settle_after(&mut self, pause: Millis, random: &mut Random, now: Time) {
        let settles = now.after(pause).after(jitter(random, pause));
        self.record.settles = self.record.settles.max(settles);
    }

    /// Records a failure that may be the fault of the rail: begins a [`Trial`], or continues the
    /// current trial. Returns the history of the rail before the first failure of the trial.
    fn accuse(&mut self, now: Time) -> Record {
        // The rail may fail again while the cause of the first failure is still unknown.
        let open = self.trial.filter(|trial| trial.is_open(now));
        let before = open.map_or(self.record, |trial| trial.before);
        self.trial = Some(Trial {
            since: open.map_or(now, |trial| trial.since),
            before,
            outlived: false,
            excused: open.is_some_and(|trial| trial.excused),
        });
        before
    }

    /// Records a failure that makes the rail dead.
    pub(super) fn failed(&mut self, random: &mut Random, now: Time) {
        if self.dead.is_some() {
            return;
        }
        let before = self.accuse(now);
        self.trust();
        let record = &mut self.record;
        let worked_long = |since| now.since(since) >= FORGET.max(hold_down(before.in_a_row));
        record.in_a_row = if before.died.is_none() || before.used.is_some_and(worked_long) {
            0
        } else if now >= before.settles {
            before.in_a_row.saturating_add(1)
        } else {
            // The rail died before healthy connections could return to it, so this death does not
            // count.
            before.in_a_row
        };
        // The time of death is stored because it delays the return of connections. If the rail
        // never worked, no connection can return to it, so the time of death is not stored.
        if self.proven {
            record.died = Some(now);
        }
        self.dead = Some(Dead {
            since: now,
            tried: now,
            probes: 0,
            next_probe: now.after(random.upper_half(FIRST_PROBE)),
        });
    }

    /// Records that a connection or attempt ended, and that the rail may be the reason. If `moved`
    /// is true, connections leave the rail, and do not return to it for some time.
    pub(super) fn doubt(&mut self, moved: bool, random: &mut Random, now: Time) {
        if self.is_live() {
            self.accuse(now);
            self.doubted = Some(now);
            if moved {
                self.settle_after(REST, random, now);
            }
        }
    }

    /// Records that another rail's connection, which has existed since `carries`, received a
    /// message at `heard`.
    pub(super) fn compare(&mut self, carries: Time, heard: Time) {
        let trusted = self.is_trusted();
        let Some(trial) = &mut self.trial else {
            return;
        };
        if carries < trial.since && heard > trial.since.after(OUTLIVED) {
            trial.outlived = true;
            trial.excused = false;
            if trusted {
                self.trial = None;
            }
        }
    }

    /// Returns whether this rail failed recently, and no connection over another rail has outlived
    /// the failure.
    pub(super) fn is_on_trial(&self, now: Time) -> bool {
        self.trial.is_some_and(|trial| trial.is_open(now))
    }

    /// Records that all rails failed. So this rail is not at fault.
    pub(super) fn excuse(&mut self, now: Time) {
        let (live, trusted) = (self.is_live(), self.is_trusted());
        let Some(trial) = self.trial.as_mut().filter(|trial| trial.is_open(now)) else {
            return;
        };
        if live && trusted {
            self.record = trial.before;
            self.trial = None;
        } else {
            trial.excused = true;
        }
    }

    /// Records that the server is silent. The rail may be at fault.
    pub(super) fn suspect(&mut self, now: Time) {
        if self.is_live() {
            self.suspected = Some(now);
        }
    }

    /// Returns true if the rail is suspected.
    pub(super) const fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// Returns true if the rail is doubted.
    pub(super) const fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }

    /// Drops the suspicion of the rail.
    pub(super) fn drop_suspicion(&mut self) {
        self.suspected = None;
    }

    /// Drops the doubt and the suspicion, because it is now known whether the rail works or is
    /// dead.
    fn trust(&mut self) {
        self.doubted = None;
        self.suspected = None;
    }

    /// Returns the time at which the rail became dead, doubted or suspected; `None` if the rail is
    /// trusted.
    fn distrusted(&self) -> Option<Time> {
        let dead = self.dead.map(|dead| dead.since);
        dead.or(self.doubted).or(self.suspected)
    }

    /// Records that an attempt uses this rail, which may be dead.
    pub(super) fn chosen(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.tried = now;
        }
    }

    /// Records that a connection uses this rail.
    pub(super) fn carries(&mut self, now: Time) {
        self.proven = true;
        self.record.used.get_or_insert(now);
    }

    /// Records that a connection was made over this rail. `late` is true if all rails had failed,
    /// and at least 30 seconds have passed since the first of them worked again.
    pub(super) fn worked(&mut self, late: bool, random: &mut Random, now: Time) {
        self.proven = true;
        self.trust();
        let was_dead = self.dead.take().is_some();
        let [least, ..] = HOLD_DOWN;
        if let Some(trial) = self.trial.take_if(|trial| trial.excused) {
            self.record = trial.before;
            if late {
                self.settle_after(least, random, now);
            }
            return;
        }
        self.trial = self.trial.filter(|trial| !trial.outlived);
        if !was_dead {
            return;
        }
        let hold = hold_down(self.record.in_a_row);
        let jitter = jitter(random, hold);
        let rested = self.record.died.map_or(now, |died| died.after(REST));
        self.record.live_since = now;
        self.record.used = None;
        self.record.settles = now.after(hold).max(rested).after(jitter);
    }

    /// Returns true if a dead, doubted or suspected rail is to be probed now.
    pub(super) fn wants_probe(&self, now: Time) -> bool {
        match self.dead {
            Some(dead) => now >= dead.next_probe,
            None => !self.is_trusted(),
        }
    }

    /// Records that a probe of this rail begins.
    pub(super) fn probing(&mut self, random: &mut Random, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.probes = dead.probes.saturating_add(1);
            // Ten doublings already make the pause longer than `LAST_PROBE`, so more doublings are
            // not needed.
            let factor = 1u64.wrapping_shl(dead.probes.min(10));
            let pause = Millis::new(FIRST_PROBE.get().saturating_mul(factor)).min(LAST_PROBE);
            dead.next_probe = now.after(random.upper_half(pause));
        }
    }

    /// Requests an immediate probe, because a dead rail may work again.
    pub(super) fn look_soon(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.next_probe = now;
        }
    }

    /// Returns true if a message proves that this dead, doubted or suspected rail works. `heard` is
    /// the time at which the message arrived. The message is a proof only if the peer must have
    /// sent it after the rail became dead, doubted or suspected.
    pub(super) fn is_belied(&self, heard: Time) -> bool {
        self.distrusted()
            .is_some_and(|since| heard > since.after(UNDER_WAY))
    }

    /// Returns true if the rail is not known to be dead.
    pub(super) const fn is_live(&self) -> bool {
        self.dead.is_none()
    }

    /// Returns true if the rail is neither dead nor doubted.
    pub(super) const fn is_clear(&self) -> bool {
        self.is_live() && !self.is_doubted()
    }

    /// Returns true if the rail is neither dead nor doubted nor suspected.
    pub(super) const fn is_trusted(&self) -> bool {
        self.is_clear() && self.suspected.is_none()
    }

    /// Returns true if the rail is live, and healthy connections may move to it.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.is_trusted() && now >= self.record.settles
    }

    /// Returns the time of the last attempt over a dead rail, or the time at which a live rail
    /// became doubted. Returns zero for other rails.
    pub(super) fn tried(&self) -> Time {
        let dead = self.dead.map(|dead| dead.tried);
        dead.or(self.doubted).unwrap_or_default()
    }

    /// Returns the time at which the rail entered its present state: live, suspected, doubted or
    /// dead.
    pub(super) fn since(&self) -> Time {
        self.distrusted().unwrap_or(self.record.live_since)
    }
}

impl Trial {
    /// Returns true if it may still turn out that the rail was not at fault.
    fn is_open(&self, now: Time) -> bool {
        !self.outlived && (self.excused || now.since(self.since) < TOGETHER)
    }
}

/// Returns how long a rail with this number of deaths in a row must be live to be settled.
fn hold_down(deaths: usize) -> Millis {
    let [.., longest] = HOLD_DOWN;
    HOLD_DOWN.get(deaths).copied().unwrap_or(longest)
}

/// Returns a random time to be added to a pause of this length.
fn jitter(random: &mut Random, pause: Millis) -> Millis {
    let quarter = Millis::new(pause.get() >> 2);
    Millis::new(random.below(quarter.max(SPREAD).get()))
}
