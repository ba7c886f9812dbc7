// SPDX-License-Identifier: GPL-2.0

//! Probes of rails, dead or doubted.

use super::{
    super::{
        place::Rail,
        seat::{
            Probe,
            Probed, //
        },
    },
    Entry,
    Rails, //
};
use crate::time::Time;

impl Rails {
    /// A rail, dead or doubted, that is to be probed now.
    pub fn probe(&mut self, now: Time) -> Option<(Probe, Rail)> {
        // A connection on a dead rail is an attempt, which will tell; one on a doubted rail may be
        // idle.
        let is_due = |(_, entry): &(u8, &Entry)| {
            let attempted = entry.load != 0 && !entry.health.is_live();
            entry.listed && !entry.probing && !attempted && entry.health.wants_probe(now)
        };
        let (on, _) = self.indexed().find(is_due)?;
        let Self {
            entries, random, ..
        } = self;
        let entry = entries.get_mut(usize::from(on))?.as_mut()?;
        entry.health.probing(random, now);
        entry.probing = true;
        entry.held = entry.held.saturating_add(1);
        Some((Probe { on }, entry.rail))
    }

    /// A probe is over.
    pub fn probed(&mut self, probe: Probe, outcome: Probed, now: Time) {
        match outcome {
            Probed::Connected => self.worked(probe.on, now),
            Probed::Failed => self.died(probe.on, now),
            Probed::NotTried => {}
        }
        if let Some(entry) = self.get_mut(probe.on) {
            entry.probing = false;
        }
        self.release(probe.on);
    }
}
