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

/// Time for which a rail must have been live to be settled, indexed by its deaths in a row.
const HOLD_DOWN: [Millis; 7] = [
    Millis::from_secs(10),
    Millis::from_secs(120),
    Millis::from_secs(240),
    Millis::from_secs(480),
    Millis::from_secs(960),
    Millis::from_secs(1920),
    Millis::from_secs(3600),
];

/// No connection returns to a rail for this long after its death, however short it was dead.
pub(super) const REST: Millis = Millis::from_secs(60);

/// Each pause is longer at random: by up to a quarter, or by up to this if that is more.
const SPREAD: Millis = Millis::from_secs(12);

/// If connections have used a rail for this long, and for its last hold-down, its next death counts
/// as the first.
const FORGET: Millis = Millis::from_secs(600);

/// Failures of two rails have one reason only if they are no further apart than this: in between an
/// attempt over each of the others may have been made.
pub(super) const TOGETHER: Millis = Millis::from_secs(120);

/// A failure this soon after a rail failed says nothing about another reason: a server closes its
/// connections one after the other.
const OUTLIVED: Millis = Millis::from_secs(2);

/// The pause before the first probe of a dead rail; it doubles with each further probe.
const FIRST_PROBE: Millis = Millis::from_secs(1);

/// The longest pause between two probes.
const LAST_PROBE: Millis = Millis::from_secs(20);

/// A message that comes this soon after a rail died may have been under way before.
const UNDER_WAY: Millis = Millis::from_secs(1);

/// What is known of a dead rail.
#[derive(Clone, Copy, Debug)]
struct Dead {
    since: Time,
    /// Time of the last attempt or probe over this rail without success.
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
    /// Number of deaths that followed each other soon.
    in_a_row: usize,
    /// Time since which connections use the rail; `None` if it is unused since it became live.
    used: Option<Time>,
}

/// A failure for which the rail may be to blame, until that is decided.
#[derive(Clone, Copy, Debug)]
struct Trial {
    since: Time,
    /// The history before the failure.
    before: Record,
    /// A connection over another rail outlived the failure.
    outlived: bool,
    /// All rails failed, and no connection outlived that.
    excused: bool,
}

/// The state of a rail.
#[derive(Clone, Debug)]
pub(super) struct Health {
    dead: Option<Dead>,
    /// The time since which a live rail is doubted.
    doubted: Option<Time>,
    /// The time since which a live rail is suspected.
    suspected: Option<Time>,
    /// True if a connection was ever made over this rail.
    proven: bool,
    record: Record,
    trial: Option<Trial>,
}

impl Health {
    /// Makes a live rail, which is settled at once if it was there from the start.
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

    /// Records that the rail is in the tables again.
    pub(super) fn came_back(&mut self, random: &mut Random, now: Time) {
        let [least, ..] = HOLD_DOWN;
        self.settle_after(least, random, now);
        self.look_soon(now);
    }

    /// Delays the return of connections by this pause, and some time more at random.
    fn settle_after(&mut self, pause: Millis, random: &mut Random, now: Time) {
        let settles = now.after(pause).after(jitter(random, pause));
        self.record.settles = self.record.settles.max(settles);
    }

    /// Records a failure for which it may be to blame. Returns its history before that.
    fn accuse(&mut self, now: Time) -> Record {
        // The rail may fail again before the reason of the first failure is known.
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

    /// Records a failure for which the rail is to blame.
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
            // No connection had returned to the rail.
            before.in_a_row
        };
        // No connection was moved away from a rail that never worked.
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

    /// Records the end of a connection or attempt for which it may be to blame. `moved`:
    /// connections leave it for that reason.
    pub(super) fn doubt(&mut self, moved: bool, random: &mut Random, now: Time) {
        if self.is_live() {
            self.accuse(now);
            self.doubted = Some(now);
            if moved {
                self.settle_after(REST, random, now);
            }
        }
    }

    /// Records that a message arrived at `heard` over another rail, on a connection that exists
    /// since `carries`.
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

    /// Whether it failed not long ago, while no connection over another rail went on.
    pub(super) fn is_on_trial(&self, now: Time) -> bool {
        self.trial.is_some_and(|trial| trial.is_open(now))
    }

    /// Records that all rails failed, so that this rail is not to blame.
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

    /// Records that nothing comes from the server, for which the rail may be to blame.
    pub(super) fn suspect(&mut self, now: Time) {
        if self.is_live() {
            self.suspected = Some(now);
        }
    }

    /// Returns true if the rail is suspected.
    pub(super) const fn is_suspected(&self) -> bool {
        self.suspected.is_some()
    }

    /// Whether a loss speaks against it.
    pub(super) const fn is_doubted(&self) -> bool {
        self.doubted.is_some()
    }

    /// Drops the suspicion.
    pub(super) fn drop_suspicion(&mut self) {
        self.suspected = None;
    }

    /// Drops every doubt: the rail works, or it is dead.
    fn trust(&mut self) {
        self.doubted = None;
        self.suspected = None;
    }

    /// The time since which it has been dead, doubted or suspected.
    fn distrusted(&self) -> Option<Time> {
        let dead = self.dead.map(|dead| dead.since);
        dead.or(self.doubted).or(self.suspected)
    }

    /// Records that an attempt takes the rail, which may be dead.
    pub(super) fn chosen(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.tried = now;
        }
    }

    /// Records that a connection uses it.
    pub(super) fn carries(&mut self, now: Time) {
        self.proven = true;
        self.record.used.get_or_insert(now);
    }

    /// Records that a connection was made over it. `late`: other rails have worked for a while
    /// since all failed.
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

    /// Whether a dead or doubted rail is to be probed now.
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
            // A shift of ten already gives more than the longest pause.
            let factor = 1u64.wrapping_shl(dead.probes.min(10));
            let pause = Millis::new(FIRST_PROBE.get().saturating_mul(factor)).min(LAST_PROBE);
            dead.next_probe = now.after(random.upper_half(pause));
        }
    }

    /// Records a sign that a dead rail works again: it is probed at once.
    pub(super) fn look_soon(&mut self, now: Time) {
        if let Some(dead) = &mut self.dead {
            dead.next_probe = now;
        }
    }

    /// Whether a message came over a dead or doubted rail, late enough that it cannot have been
    /// under way before.
    pub(super) fn is_belied(&self, heard: Time) -> bool {
        self.distrusted()
            .is_some_and(|since| heard > since.after(UNDER_WAY))
    }

    /// Whether the rail is not known to be dead.
    pub(super) const fn is_live(&self) -> bool {
        self.dead.is_none()
    }

    /// Whether the rail is neither dead nor doubted.
    pub(super) const fn is_clear(&self) -> bool {
        self.is_live() && !self.is_doubted()
    }

    /// Whether the rail is live, and neither doubted nor suspected.
    pub(super) const fn is_trusted(&self) -> bool {
        self.is_clear() && self.suspected.is_none()
    }

    /// Whether the rail is live, and healthy connections may move to it.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.is_trusted() && now >= self.record.settles
    }

    /// When a dead or doubted rail was last tried.
    pub(super) fn tried(&self) -> Time {
        let dead = self.dead.map(|dead| dead.tried);
        dead.or(self.doubted).unwrap_or_default()
    }

    /// The time since which the rail has been live, doubted or dead.
    pub(super) fn since(&self) -> Time {
        self.distrusted().unwrap_or(self.record.live_since)
    }
}

impl Trial {
    /// Whether it may still turn out that the rail was not to blame.
    fn is_open(&self, now: Time) -> bool {
        !self.outlived && (self.excused || now.since(self.since) < TOGETHER)
    }
}

/// How long a rail must have been live to be settled, by the number of its deaths in a row.
fn hold_down(deaths: usize) -> Millis {
    let [.., longest] = HOLD_DOWN;
    HOLD_DOWN.get(deaths).copied().unwrap_or(longest)
}

/// The random time that is added to a pause of this length.
fn jitter(random: &mut Random, pause: Millis) -> Millis {
    let quarter = Millis::new(pause.get() >> 2);
    Millis::new(random.below(quarter.max(SPREAD).get()))
}
