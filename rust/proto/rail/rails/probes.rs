// SPDX-License-Identifier: GPL-2.0

//! Probes of dead or doubted rails, and the suspicion of rails on which a connection is silent.
//!
//! On iWARP the completion of a Send does not show that the peer received the message. So silence
//! on a busy connection is the only sign of a rail that passes no messages. But a slow server is
//! silent as well. To find out the reason for the silence, all rails are probed:
//!
//! - If a probe of one rail is not answered, but a later probe of another rail is answered, the
//!   first rail is dead. A slow server would have answered the earlier probe first, because it
//!   accepts connections in the order of their arrival.
//! - A rail that has answered is probed again, so that there is a later probe for this comparison.
//!
//! The duration of a probe is measured with the clock, because a probe may be reported late: siw
//! waits for its TCP connection, and rdma_cm waits until the adapter gives up.

use super::{
    super::{
        health::Health,
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

/// Minimum time for which a connection must be busy and receive nothing before rails are suspected.
/// A shorter silence is normal, because a call that was just sent has no reply yet.
const WAITS: Millis = Millis::new(750);

/// How long the probe of a suspected rail may take.
const ANSWER: Millis = Millis::new(3500);

/// A suspicion that is undecided for this long is dropped, because the server is probably too busy.
const DROP: Millis = Millis::from_secs(8);

/// Minimum time between two probes of a live rail.
const AGAIN: Millis = Millis::new(250);

/// Maximum number of simultaneous probes of a suspected rail. One probe is not enough: if it began
/// before the suspicion, it may never end.
const MOST: u32 = 2;

/// Minimum time between two suspicions. `PAUSE` applies if the connection has received a message
/// since the last suspicion. Otherwise `LONG_PAUSE` applies.
const PAUSE: Millis = Millis::from_secs(3);
const LONG_PAUSE: Millis = Millis::from_secs(10);

/// Interval of calls to [`Rails::watch`] while a rail is suspected or may be suspected soon.
const SOON: Millis = Millis::new(250);

impl Rails {
    /// Checks whether a busy connection receives messages. If it has received none for too long,
    /// suspects all rails. Returns the time until the next check, if another check is needed. The
    /// driver calls this only for connections whose Send completions do not show that the peer
    /// received the message.
    ///
    /// - `busy` says whether calls are in flight.
    /// - `heard` is the time of the last received message.
    pub fn watch(&mut self, seat: &mut Seat, busy: bool, heard: Time, now: Time) -> Option<Millis> {
        let waits = seat.waits.filter(|since| busy && heard <= *since);
        seat.waits = waits.or(busy.then_some(now));
        let own = self.get_mut(seat.on).filter(|own| own.listed)?;
        own.probes.ends_early = true;
        let is_live = own.health.is_live();
        let may_be = is_live && self.others_are(seat.on, Health::is_live) && !self.are_suspected();
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
                entry.probes.unanswered = None;
                entry.probes.answers = false;
            }
        }
        self.get(seat.on)?.health.is_suspected().then_some(SOON)
    }

    fn are_suspected(&self) -> bool {
        self.listed().any(|entry| entry.health.is_suspected())
    }

    /// Returns true if the server has answered a probe that began later than `begun`.
    fn was_passed_over(&self, begun: Time) -> bool {
        self.answered.is_some_and(|later| later > begun)
    }

    /// Returns true if all of these conditions hold:
    ///
    /// - The rail is suspected.
    /// - A Send on the rail may complete before the peer has received the message.
    /// - A probe of the rail is unanswered, although the server has answered a probe that began
    ///   later.
    fn is_silent(&self, entry: &Entry) -> bool {
        let unanswered = entry.probes.unanswered;
        let passed_over = unanswered.is_some_and(|begun| self.was_passed_over(begun));
        entry.health.is_suspected() && entry.probes.ends_early && passed_over
    }

    /// Checks each suspected rail. If the rail is proved to be dead, records its death. If not,
    /// drops a suspicion that is too old.
    fn judge(&mut self, now: Time) {
        let since = self.suspected.unwrap_or(now);
        for on in 0..REMEMBERED as u8 {
            let Some(entry) = self.get(on).filter(|entry| entry.health.is_suspected()) else {
                continue;
            };
            let late = entry.probes.unanswered;
            let late = late.is_some_and(|begun| now.since(begun) >= ANSWER);
            if late && self.is_silent(entry) {
                self.died(on, now);
            } else if now.since(since) >= DROP {
                if let Some(entry) = self.get_mut(on) {
                    entry.health.drop_suspicion();
                }
            }
        }
    }

    /// Returns true if a suspected rail has an unanswered probe, and no probe that began later has
    /// been answered. Only an answer to a later probe can show that the suspected rail is dead.
    fn wants_comparison(&self) -> bool {
        let suspected = self.listed().filter(|entry| entry.health.is_suspected());
        let mut unanswered = suspected.filter_map(|entry| entry.probes.unanswered);
        unanswered.any(|begun| !self.was_passed_over(begun))
    }

    /// Returns a rail that is to be probed now, or `None`. Dead, doubted and suspected rails are
    /// probed. While a suspected rail does not answer, the rails that have answered are probed
    /// again, because their later answers are needed for the comparison.
    pub fn probe(&mut self, now: Time) -> Option<(Probe, Rail)> {
        self.judge(now);
        let compares = self.wants_comparison();
        let stuck = |last: Time| self.suspected.is_some_and(|since| last < since);
        let is_due = |(_, entry): &(u8, &Entry)| {
            let (health, probes) = (&entry.health, &entry.probes);
            // If connections are assigned to a dead rail, it needs no probe, because their attempts
            // to connect show whether the rail works. A live rail may need a probe even if it has
            // connections, because they may be idle.
            let attempted = entry.load != 0 && !health.is_live();
            let rested = probes.last.is_none_or(|last| now.since(last) >= AGAIN);
            let is_free = match probes.under_way {
                0 => true,
                n => health.is_suspected() && n < MOST && probes.last.is_some_and(stuck),
            };
            let wanted = health.wants_probe(now) || (compares && probes.answers);
            let may_be = is_free && !attempted && (rested || !health.is_live());
            entry.listed && may_be && wanted
        };
        let (on, _) = self.indexed().find(is_due)?;
        let Self {
            entries, random, ..
        } = self;
        let entry = entries.get_mut(usize::from(on))?.as_mut()?;
        entry.health.probing(random, now);
        entry.probes.under_way = entry.probes.under_way.saturating_add(1);
        entry.probes.last = Some(now);
        if entry.health.is_suspected() {
            entry.probes.unanswered.get_or_insert(now);
        }
        entry.held = entry.held.saturating_add(1);
        Some((Probe { on, begun: now }, entry.rail))
    }

    /// Records the outcome of a probe.
    pub fn probed(&mut self, probe: Probe, outcome: Probed, now: Time) {
        if let Some(entry) = self.get_mut(probe.on) {
            entry.probes.under_way = entry.probes.under_way.saturating_sub(1);
        }
        match outcome {
            Probed::Connected => self.answered(&probe, now),
            Probed::Failed => self.failed_probe(&probe, now),
            Probed::NotTried => self.forget(&probe),
        }
        self.release(probe.on);
    }

    fn answered(&mut self, probe: &Probe, now: Time) {
        self.worked(probe.on, now);
        if self.suspected.is_some_and(|since| probe.begun >= since) {
            self.answered = self.answered.max(Some(probe.begun));
            if let Some(entry) = self.get_mut(probe.on) {
                entry.probes.unanswered = None;
                entry.probes.answers = true;
            }
        }
    }

    fn failed_probe(&mut self, probe: &Probe, now: Time) {
        let Some(entry) = self.get(probe.on) else {
            return;
        };
        // A failed probe alone does not prove that a rail is dead: the failure may be reported
        // late, or a message may have arrived after the probe was sent. If the rail was already
        // doubted, the failed probe shows that it is dead. A suspected rail is dead only if the
        // server has answered a later probe (`is_silent`). Until then the suspected rail is probed
        // again.
        if entry.health.is_doubted() || self.is_silent(entry) {
            self.died(probe.on, now);
        } else if now.since(probe.begun) >= ANSWER {
            // The client cancelled the probe because the server did not answer in time. No later
            // probe was answered either, so the server may just be slow. This failure proves
            // nothing about the rail.
            self.forget(probe);
        }
    }

    /// Records that this unanswered probe proves nothing about the rail.
    fn forget(&mut self, probe: &Probe) {
        if let Some(entry) = self.get_mut(probe.on) {
            let of_another = |begun: &Time| *begun != probe.begun;
            entry.probes.unanswered = entry.probes.unanswered.filter(of_another);
        }
    }
}
