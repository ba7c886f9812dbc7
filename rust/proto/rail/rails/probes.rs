// SPDX-License-Identifier: GPL-2.0

//! Probes of rails, dead or doubted, and suspicion for silence.
//!
//! Where the device's acknowledgements say nothing of the peer (iWARP), silence on a busy
//! connection is all that tells of a rail on which nothing comes through, and it tells as much of a
//! server that takes its time. So all rails are probed then. One whose probe is not answered is
//! dead if the server has answered over another one before: the server's software, which may have
//! been too busy to accept a connection, was not then.
//!
//! The time that a probe takes is judged by the clock, for it may end late: siw waits for its TCP
//! connection, and rdma_cm for the adapter to give up.

use super::{
    super::{
        place::Rail,
        seat::{
            Probe,
            Probed,
            Seat, //
        },
    },
    Entry,
    Rails,
    REMEMBERED,
    SILENT, //
};
use crate::time::{
    Millis,
    Time, //
};

/// A busy connection has been seen to be so for this long before its silence counts: the call may
/// be new.
const WAITS: Millis = Millis::new(750);

/// How long the probe of a suspected rail may take.
const ANSWER: Millis = Millis::new(3500);

/// When the server has answered over one rail, it has over others, if they work, this much later.
const MARGIN: Millis = Millis::from_secs(1);

/// A suspicion that has not been decided by then is dropped: no rail was found to work.
const DROP: Millis = Millis::from_secs(5);

/// Rails are not suspected again so soon, by a connection on which something came since, and in one
/// and the same silence.
const PAUSE: Millis = Millis::from_secs(3);
const LONG_PAUSE: Millis = Millis::from_secs(10);

/// Somebody looks again so soon, and no sooner, while a rail is suspected or may be soon.
const SOON: Millis = Millis::new(250);

impl Rails {
    /// Looks whether a connection is silent without a reason: for those whose device says nothing
    /// of the peer. `busy`: calls are in flight on it; `heard`: when something was last received.
    /// Returns when to look again, if that matters.
    pub fn watch(&mut self, seat: &mut Seat, busy: bool, heard: Time, now: Time) -> Option<Millis> {
        let waits = seat.waits.filter(|since| busy && heard <= *since);
        seat.waits = waits.or(busy.then_some(now));
        let own = self.get(seat.on).filter(|own| own.listed)?;
        let may_be = own.health.is_trusted() && self.others_live(seat.on) && !self.are_suspected();
        if let Some(waits) = seat.waits.filter(|_| may_be) {
            let rested = self.suspected.map_or(now, |last| {
                last.after(if heard > last { PAUSE } else { LONG_PAUSE })
            });
            let due = waits.after(WAITS).max(heard.after(SILENT)).max(rested);
            if now < due {
                return Some(due.since(now).max(SOON));
            }
            self.suspected = Some(now);
            self.answered = None;
            for entry in self.entries.iter_mut().flatten() {
                if entry.listed {
                    entry.health.suspect(now);
                }
            }
        }
        self.get(seat.on)?.health.is_suspected().then_some(SOON)
    }

    fn are_suspected(&self) -> bool {
        self.listed().any(|entry| entry.health.is_suspected())
    }

    /// Whether the server has answered over some rail long enough ago for it to have answered over
    /// all that work.
    fn has_answered(&self, now: Time) -> bool {
        self.answered
            .is_some_and(|first| now.since(first) >= MARGIN)
    }

    /// Decides about suspected rails.
    fn judge(&mut self, now: Time) {
        let has_answered = self.has_answered(now);
        let since = self.suspected.unwrap_or(now);
        for on in 0..REMEMBERED as u8 {
            let suspected = |entry: &&mut Entry| entry.health.is_suspected();
            let Some(entry) = self.get_mut(on).filter(suspected) else {
                continue;
            };
            let is_late = |begun| now.since(begun) >= ANSWER;
            if has_answered && entry.probing.is_some_and(is_late) {
                self.died(on, now);
            } else if now.since(since) >= DROP {
                entry.health.trust();
            }
        }
    }

    /// A rail, dead or doubted, that is to be probed now.
    pub fn probe(&mut self, now: Time) -> Option<(Probe, Rail)> {
        self.judge(now);
        // A connection on a dead rail is an attempt, which will tell; one on a doubted rail may be
        // idle.
        let is_due = |(_, entry): &(u8, &Entry)| {
            let attempted = entry.load != 0 && !entry.health.is_live();
            entry.listed && entry.probing.is_none() && !attempted && entry.health.wants_probe(now)
        };
        let (on, _) = self.indexed().find(is_due)?;
        let Self {
            entries, random, ..
        } = self;
        let entry = entries.get_mut(usize::from(on))?.as_mut()?;
        entry.health.probing(random, now);
        entry.probing = Some(now);
        entry.held = entry.held.saturating_add(1);
        Some((Probe { on }, entry.rail))
    }

    /// A probe is over.
    pub fn probed(&mut self, probe: Probe, outcome: Probed, now: Time) {
        match outcome {
            Probed::Connected => self.worked(probe.on, now),
            Probed::Failed => self.failed_probe(probe.on, now),
            Probed::NotTried => {}
        }
        if let Some(entry) = self.get_mut(probe.on) {
            entry.probing = None;
        }
        self.release(probe.on);
    }

    fn failed_probe(&mut self, on: u8, now: Time) {
        let Some(entry) = self.get_mut(on) else {
            return;
        };
        let is_trusted = entry.health.is_trusted();
        let is_suspected = entry.health.is_suspected();
        // It may have ended late, or something else came through meanwhile. One that is suspected
        // is probed again until the server has answered.
        if !is_trusted && (!is_suspected || self.has_answered(now)) {
            self.died(on, now);
        }
    }
}
