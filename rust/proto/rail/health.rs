// SPDX-License-Identifier: GPL-2.0

//! Whether a rail works, and when it may have its connections back ([`Health`]).
//!
//! A rail is live until it is known to be dead, and dead until something was connected over it. A
//! live rail that was dead is chosen again when no better one is there, but connections that do
//! well elsewhere return only when it has *settled*: when it has been live for the hold-down, and a
//! minute has passed since it died. So no connection is moved twice in a minute. A rail that did
//! not work from the start, as after a boot, need not wait for the minute. The hold-down grows with
//! each death of a settled rail, up to an hour, until connections have used the rail for as long.
//! Each pause is longer by chance, so that the hosts of a network do not return all at once.
//!
//! A live rail is *doubted* when a connection with calls in flight ended over it and nothing says
//! why, when an attempt was refused, or when a short attempt was not answered. It is probed as soon
//! as a connection to the server is looked after, and chosen only before dead ones, until the probe
//! or an attempt has told. One that is *suspected*, for silence alone, is treated likewise, but
//! with less right: no connection has left it, so none is kept from it later, and a probe in vain
//! does not suffice to call it dead ([`Rails::watch`](super::Rails::watch)).
//!
//! What is said against a rail is on *trial* until it is known whether the rail was at fault. A
//! connection over another rail that outlives the failure proves that it was. If all rails fail and
//! none is outlived, the server or this host was at fault, and each rail has its former record back
//! as soon as it works.

use crate::{
    random::Random,
    time::{
        Millis,
        Time, //
    },
};

/// How long a rail has been live when it settles, by the number of deaths in a row.
const HOLD_DOWN: [Millis; 7] = [
    Millis::from_secs(10),
    Millis::from_secs(120),
    Millis::from_secs(240),
    Millis::from_secs(480),
    Millis::from_secs(960),
    Millis::from_secs(1920),
    Millis::from_secs(3600),
];

/// A death is followed by no return for so long, not even after a short one.
pub(super) const REST: Millis = Millis::from_secs(60);

/// Each pause is longer by up to a quarter, or up to this if that is more.
const SPREAD: Millis = Millis::from_secs(12);

/// A rail that connections have used for so long, and for its last hold-down, dies for the first
/// time again.
const FORGET: Millis = Millis::from_secs(600);

/// Failures of two rails are of one kind only within this: an attempt over each of the others may
/// be between them.
pub(super) const TOGETHER: Millis = Millis::from_secs(120);

/// What comes so soon after a rail failed says nothing about another cause: a server closes its
/// connections one after the other.
const OUTLIVED: Millis = Millis::from_secs(2);

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
    /// When it was last tried in vain.
    tried: Time,
    probes: u32,
    next_probe: Time,
}

/// What a rail has done that decides when connections return to it.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// When it last became live.
    live_since: Time,
    settles: Time,
    /// When it last died after it had worked.
    died: Option<Time>,
    /// How many deaths followed each other soon.
    in_a_row: usize,
    /// Since when connections use it; `None` if none has since it became live.
    used: Option<Time>,
}

/// What is said against a rail and not decided yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    since: Time,
    /// The record before that.
    before: Record,
    /// A connection over another rail went on.
    outlived: bool,
    /// All rails failed, and none was outlived.
    excused: bool,
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
    record: Record,
    trial: Option<Trial>,
}

impl Health {
    /// A live rail that settles at once if it was there from the start.
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

    /// It is in the tables again.
    pub(super) fn came_back(&mut self, random: &mut Random, now: Time) {
        let [least, ..] = HOLD_DOWN;
        self.settle_after(least, random, now);
        self.look_soon(now);
    }

    /// It settles no sooner than after this pause, and some time more.
    fn settle_after(&mut self, pause: Millis, random: &mut Random, now: Time) {
        let settles = now.after(pause).after(jitter(random, pause));
        self.record.settles = self.record.settles.max(settles);
    }

    /// Something is said against it. Returns its record before that.
    fn accuse(&mut self, now: Time) -> Record {
        // It may fail again before it is known why it did.
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

    /// Something failed for which the rail is to blame.
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
            // No connection had returned to it.
            before.in_a_row
        };
        // No connection was moved away from one that never worked.
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

    /// A connection or an attempt ended for which it may be to blame. `moved`: connections leave it
    /// therefore.
    pub(super) fn doubt(&mut self, moved: bool, random: &mut Random, now: Time) {
        if self.is_live() {
            self.accuse(now);
            self.doubted = Some(now);
            if moved {
                self.settle_after(REST, random, now);
            }
        }
    }

    /// Over another rail something came at `heard` on a connection that is there since `carries`.
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

    /// Whether it failed not long ago, and no connection over another rail went on.
    pub(super) fn is_on_trial(&self, now: Time) -> bool {
        self.trial.is_some_and(|trial| trial.is_open(now))
    }

    /// All rails failed.
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

    /// A connection is on it.
    pub(super) fn carries(&mut self, now: Time) {
        self.proven = true;
        self.record.used.get_or_insert(now);
    }

    /// Something was connected over it. `late`: other rails have worked for a while since all
    /// failed.
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

    /// Whether it is neither dead nor doubted.
    pub(super) const fn is_clear(&self) -> bool {
        self.is_live() && !self.is_doubted()
    }

    /// Whether nothing speaks against it.
    pub(super) const fn is_trusted(&self) -> bool {
        self.is_clear() && self.suspected.is_none()
    }

    /// Whether it is live, and may have connections that do well elsewhere.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.is_trusted() && now >= self.record.settles
    }

    /// When a dead or doubted rail was last tried.
    pub(super) fn tried(&self) -> Time {
        let dead = self.dead.map(|dead| dead.tried);
        dead.or(self.doubted).unwrap_or_default()
    }

    /// Since when it has been live, doubted or dead.
    pub(super) fn since(&self) -> Time {
        self.distrusted().unwrap_or(self.record.live_since)
    }
}

impl Trial {
    /// Whether it may still turn out that the rail was not at fault.
    fn is_open(&self, now: Time) -> bool {
        !self.outlived && (self.excused || now.since(self.since) < TOGETHER)
    }
}

/// How long a rail has been live when it settles, by the number of its deaths in a row.
fn hold_down(deaths: usize) -> Millis {
    let [.., longest] = HOLD_DOWN;
    HOLD_DOWN.get(deaths).copied().unwrap_or(longest)
}

/// What is added to a pause of this length.
fn jitter(random: &mut Random, pause: Millis) -> Millis {
    let quarter = Millis::new(pause.get() >> 2);
    Millis::new(random.below(quarter.max(SPREAD).get()))
}
