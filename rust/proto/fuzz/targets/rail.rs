// SPDX-License-Identifier: GPL-2.0

//! A fuzz target that makes many connections over rails that appear, fail and disappear. It also
//! reads tables of rails from arbitrary text. The target checks the properties on which a driver
//! may rely.

use super::source::Source;
use std::{
    collections::{
        HashMap,
        HashSet, //
    },
    net::{
        IpAddr,
        Ipv4Addr, //
    },
};
use xprtrdma_proto::{
    rail::{
        table::{
            Locals,
            Servers, //
        },
        Local,
        Move,
        Name,
        Pairs,
        Probe,
        Probed,
        Rail,
        Rails,
        Seat,
        Standing,
        View,
        MAX_RAILS, //
    },
    time::{
        Millis,
        Time, //
    },
};

/// Maximum number of connections. More connections would show nothing new.
const MOST: usize = 40;

const MINUTE: Millis = Millis::from_secs(60);

/// Failures of rails within this time may have a common cause.
const TOGETHER: Millis = Millis::from_secs(120);

/// A connection or an attempt: its current rail, and the rail to which it is moving.
struct Member {
    seat: Seat,
    on: Rail,
    to: Option<Rail>,
}

struct World {
    rails: Rails,
    now: Time,
    members: Vec<Member>,
    probes: Vec<(Probe, Rail)>,
    /// The rails that have been in the list since the list was last empty.
    known: HashSet<IpAddr>,
    /// The rails over which a connection was made.
    proven: HashSet<IpAddr>,
    /// Time at which each rail last died, according to the connections that used it.
    died: HashMap<IpAddr, Time>,
    /// For each rail, the beginning and the end of the last period in which the rail was dead or
    /// doubted.
    bad: HashMap<IpAddr, (Time, Time)>,
    /// The rails that were neither dead nor doubted after the last step.
    was_good: HashSet<IpAddr>,
    /// Time at which all rails last failed, computed as in `Rails`.
    all_failed: Option<Time>,
}

/// Runs the target. The first byte selects whether the remaining bytes are text or events.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    if source.bool() {
        text(source.rest());
        return;
    }
    let mut world = World {
        rails: Rails::new(source.u64()),
        now: Time::from_millis(u64::from(source.u32())),
        members: Vec::new(),
        probes: Vec::new(),
        known: HashSet::new(),
        proven: HashSet::new(),
        died: HashMap::new(),
        bad: HashMap::new(),
        was_good: HashSet::new(),
        all_failed: None,
    };
    while !source.is_empty() {
        world.step(&mut source);
        world.note_bad();
        world.check();
    }
    world.finish();
}

/// Checks that any text is either accepted or refused. The message of a refusal must begin with a
/// quotation mark.
fn text(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Locals::parse(&text) {
        Ok(locals) => assert!(!locals.is_off() || !locals.admits(&end(1, 0))),
        Err(refusal) => assert!(refusal.to_string().starts_with('"')),
    }
    match Servers::parse(&text) {
        Ok(servers) => {
            for word in text.split(|c: char| c == '=' || c == ',' || c.is_whitespace()) {
                let Ok(addr) = word.parse::<IpAddr>() else {
                    continue;
                };
                assert!(servers.others(addr).count() > 0);
                for other in servers.others(addr) {
                    assert!(servers.others(other).any(|back| back == addr));
                }
            }
        }
        Err(refusal) => assert!(refusal.to_string().starts_with('"')),
    }
}

fn is_live(view: &View) -> bool {
    !matches!(view.standing, Standing::Dead | Standing::Gone)
}

/// Returns the local end of a rail: the address, the device and the port that are derived from
/// `number`. Each device has two ports.
fn end(number: u8, prefix_len: u8) -> Local {
    Local {
        addr: IpAddr::V4(Ipv4Addr::new(10, number, 0, 2)),
        prefix_len,
        device: Name::new(&format!("rxe{}", number / 2)).expect("a name"),
        port: 1 + u32::from(number % 2),
    }
}

impl World {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(15) {
            0 | 1 => self.pass(source),
            2 => self.list(source),
            3..=5 => self.take(source),
            6 => {
                if let Some(member) = self.any(source) {
                    let member = self.members.swap_remove(member);
                    self.rails.leave(member.seat);
                }
            }
            7 => {
                if let Some(member) = self.any(source) {
                    let member = &self.members[member];
                    self.rails.connected(&member.seat, self.now);
                    self.proven.insert(member.on.local);
                }
            }
            8 if source.below(4) == 0 => {
                let down = end(source.below(12), 16).addr;
                let was_live = |view: &View| view.rail.local == down && is_live(view);
                if self.views().iter().any(was_live) && self.proven.contains(&down) {
                    self.died.insert(down, self.now);
                }
                self.rails.port_down(down, self.now);
                let views = self.views();
                let mut of_port = views.iter().filter(|view| view.rail.local == down);
                assert!(of_port.all(|v| matches!(v.standing, Standing::Dead | Standing::Gone)));
            }
            8 => self.fail(source),
            9 | 10 => self.move_one(source),
            11 => {
                if let Some(member) = self.any(source) {
                    let member = &mut self.members[member];
                    self.rails.stay(&mut member.seat, self.now);
                    member.to = None;
                }
            }
            12 => {
                let found = self.rails.probe(self.now);
                // `Rails::probe` may have declared a suspected rail dead.
                for view in self.views() {
                    self.note_death(view.rail);
                }
                if let Some((probe, rail)) = found {
                    let is = |view: &View, of| view.standing == of;
                    let views = self.views();
                    // A rail that is neither dead nor doubted is probed only to compare it with a
                    // doubted rail. So the probed rail is dead, or at least one rail is doubted.
                    let compares = views.iter().any(|view| is(view, Standing::Doubted));
                    assert!(compares || self.standing(rail) == Standing::Dead);
                    let same = self.probes.iter().filter(|(_, other)| *other == rail);
                    assert!(same.count() < 2);
                    self.probes.push((probe, rail));
                }
            }
            13 => self.doubt(source),
            _ => {
                if let Some((probe, rail)) = self.probes.pop() {
                    let outcome = match source.below(4) {
                        0 | 1 => Probed::Connected,
                        2 => Probed::Failed,
                        _ => Probed::NotTried,
                    };
                    self.rails.probed(probe, outcome, self.now);
                    match outcome {
                        Probed::Connected => {
                            self.proven.insert(rail.local);
                        }
                        Probed::Failed => self.note_death(rail),
                        Probed::NotTried => {}
                    }
                }
            }
        }
    }

    fn pass(&mut self, source: &mut Source<'_>) {
        let span = match source.below(3) {
            0 => Millis::new(u64::from(source.u8())),
            1 => Millis::new(u64::from(source.u16())),
            _ => Millis::from_secs(u64::from(source.u8())),
        };
        self.now = self.now.after(span);
    }

    fn list(&mut self, source: &mut Source<'_>) {
        let bits = source.u16();
        let ends: Vec<Local> = (0..12u8)
            .filter(|n| bits >> n & 1 != 0)
            .map(|n| end(n, 16))
            .collect();
        let table = Locals::parse("auto").expect("a table");
        let server = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
        let pairs = Pairs::new(ends.iter().copied(), &table, server, &Servers::NONE);
        assert_eq!(pairs.iter().count(), ends.len().min(MAX_RAILS));
        self.known.extend(pairs.iter().map(|rail| rail.local));
        self.rails.update(&pairs, self.now);
        if ends.is_empty() {
            let (members, probes) = (&self.members, &self.probes);
            let held = members
                .iter()
                .flat_map(|member| [Some(member.on), member.to]);
            let held = held.flatten().chain(probes.iter().map(|(_, rail)| *rail));
            self.known = held.map(|rail| rail.local).collect();
            let used = |addr| members.iter().any(|member| member.on.local == addr);
            self.died.retain(|addr, _| used(*addr));
            self.proven.retain(|addr| used(*addr));
        }
    }

    fn any(&self, source: &mut Source<'_>) -> Option<usize> {
        usize::from(source.u8()).checked_rem(self.members.len())
    }

    fn views(&self) -> Vec<View> {
        self.rails.views(self.now).collect()
    }

    fn standing(&self, rail: Rail) -> Standing {
        let views = self.views();
        let view = views.iter().find(|view| view.rail == rail);
        view.map_or(Standing::Gone, |view| view.standing)
    }

    fn take(&mut self, source: &mut Source<'_>) {
        if self.members.len() >= MOST {
            return;
        }
        let again = source.bool().then(|| self.any(source)).flatten();
        let last = again.map(|member| self.members.swap_remove(member));
        let after_death = source.bool();
        let (last, reserved) = match last {
            Some(member) if member.to.is_some() => (Some(member.seat), member.to),
            Some(member) => {
                self.rails.leave(member.seat);
                (None, None)
            }
            None => (None, None),
        };
        let views = self.views();
        let Some((seat, choice)) = self.rails.take(last, after_death, self.now) else {
            assert!(views.iter().all(|view| view.standing == Standing::Gone));
            return;
        };
        let chosen = views.iter().find(|view| view.rail == choice.rail);
        let chosen = chosen.expect("a rail that is there");
        let count = |standing| views.iter().filter(|v| v.standing == standing).count();
        let listed = views.len() - count(Standing::Gone);
        let is_reserved = reserved == Some(choice.rail);
        match chosen.standing {
            Standing::Live => {}
            Standing::Returning => assert!(count(Standing::Live) == 0 || is_reserved),
            Standing::Doubted => {
                assert_eq!(count(Standing::Live) + count(Standing::Returning), 0);
            }
            Standing::Dead => assert_eq!(listed, count(Standing::Dead)),
            Standing::Gone => panic!("a rail that is gone was chosen"),
        }
        let tried_in_turn = matches!(chosen.standing, Standing::Dead | Standing::Doubted);
        if reserved.is_none() && !tried_in_turn {
            let fewest = views.iter().filter(|v| v.standing == chosen.standing);
            assert_eq!(fewest.map(|view| view.load).min(), Some(chosen.load));
        }
        let is_trusted = matches!(chosen.standing, Standing::Live | Standing::Returning);
        assert_eq!(choice.at_once, after_death && is_trusted);
        // An attempt has a time limit if a second rail is known, even if that rail is dead.
        assert_eq!(choice.limit.is_some(), self.known.len() > 1);
        self.members.push(Member {
            seat,
            on: choice.rail,
            to: None,
        });
    }

    fn note_death(&mut self, rail: Rail) {
        let died = self.rails.views(self.now).find(|view| view.rail == rail);
        let proven = self.proven.contains(&rail.local);
        let is_new = |view: View| view.standing == Standing::Dead && view.since == self.now;
        if proven && died.is_some_and(is_new) {
            self.died.insert(rail.local, self.now);
        }
    }

    fn fail(&mut self, source: &mut Source<'_>) {
        let Some(member) = self.any(source) else {
            return;
        };
        let rail = self.members[member].on;
        let seat = &self.members[member].seat;
        let others = match source.below(4) {
            0 => self.rails.failed(seat, self.now),
            1 => {
                let others = self.rails.lost(seat, self.now);
                let is_dead = !self.views().iter().any(|v| v.rail == rail && is_live(v));
                // If all rails failed at a time when the connection already existed, its loss does
                // not change the state of its rail. So the rail may still be live.
                assert!(is_dead || self.all_failed.is_some());
                others
            }
            which => {
                let whole_device = which == 2;
                let others = self.rails.port_failed(seat, whole_device, self.now);
                let at_port = |view: &View| {
                    let of = (view.rail.device, view.rail.port);
                    of.0 == rail.device && (whole_device || of.1 == rail.port)
                };
                let mut live = self.views().into_iter().filter(is_live);
                assert!(!live.any(|view| at_port(&view)));
                others
            }
        };
        let live = self.views().into_iter().filter(is_live);
        assert_eq!(others, live.filter(|view| view.rail != rail).count() > 0);
        for view in self.views() {
            self.note_death(view.rail);
        }
    }

    fn doubt(&mut self, source: &mut Source<'_>) {
        let Some(member) = self.any(source) else {
            return;
        };
        let (kind, now) = (source.below(3), self.now);
        let on = self.members[member].on;
        let before = self.standing(on);
        let seat = &mut self.members[member].seat;
        let others = match kind {
            0 => {
                self.rails.doubted(seat, now);
                None
            }
            1 => Some(self.rails.refused(seat, now)),
            _ => Some(self.rails.unanswered(seat, now)),
        };
        self.note_death(on);
        let after = self.standing(on);
        match before {
            Standing::Dead | Standing::Gone => assert_eq!(after, before),
            // If all rails failed at a time when the connection already existed, its loss does not
            // change the state of its rail. So the rail may still be trusted.
            _ if kind == 0 && self.all_failed.is_some() => {}
            // If no other rail was trusted, the attempt had no short time limit. So an unanswered
            // attempt means that the rail is dead.
            _ if kind == 2 && after == Standing::Dead => {}
            _ => assert_eq!(after, Standing::Doubted),
        }
        let is_trusted = |v: &View| matches!(v.standing, Standing::Live | Standing::Returning);
        let trusted = self.views().iter().any(|v| v.rail != on && is_trusted(v));
        if after == Standing::Doubted {
            assert!(others.is_none_or(|others| others == trusted));
        }
    }

    /// Records after each step which rails are bad: dead, doubted, or not in the list. The failure
    /// of a rail that is not in the list might not be detected.
    fn note_bad(&mut self) {
        let (now, views) = (self.now, self.views());
        let is_good = |v: &&View| matches!(v.standing, Standing::Live | Standing::Returning);
        let good = views.iter().filter(is_good).map(|view| view.rail.local);
        let good: HashSet<IpAddr> = good.collect();
        for addr in (0..12).map(|n| end(n, 16).addr) {
            if !good.contains(&addr) {
                let is_new = self.was_good.contains(&addr);
                let bad = self.bad.entry(addr).or_insert((now, now));
                *bad = if is_new { (now, now) } else { (bad.0, now) };
            }
        }
        self.was_good = good;
        let mut listed = views.iter().filter(|v| v.standing != Standing::Gone);
        let failed = |view: &View| {
            let bad = self.bad.get(&view.rail.local);
            bad.is_some_and(|(_, until)| now.since(*until) < TOGETHER)
        };
        if listed.all(failed) {
            self.all_failed = Some(now);
        }
    }

    fn move_one(&mut self, source: &mut Source<'_>) {
        let Some(index) = self.any(source) else {
            return;
        };
        let before = self.views();
        let (now, member) = (self.now, &mut self.members[index]);
        let busy = source.bool();
        let silence = u64::from(source.u16());
        let heard = Time::from_millis(now.as_millis().saturating_sub(silence / 8));
        if silence % 2 == 1 {
            let again = self.rails.watch(&mut member.seat, busy, heard, now);
            assert!(again.is_none_or(|again| again >= Millis::new(250)));
        }
        let on = before.iter().find(|view| view.rail == member.on).copied();
        let Some(way) = self.rails.moves(&mut member.seat, busy, heard, now) else {
            return;
        };
        assert_eq!(member.to, None);
        let after: Vec<View> = self.rails.views(now).collect();
        let load = |views: &[View], rail| {
            let view = views.iter().find(|view: &&View| view.rail == rail);
            view.map_or(0, |view| view.load)
        };
        let more = |view: &&View| view.load == load(&before, view.rail) + 1;
        let to = *after.iter().find(more).expect("a target");
        assert!(to.rail != member.on);
        match to.standing {
            Standing::Live if way == Move::Flee => {}
            Standing::Live => {
                let died = self.died.get(&to.rail.local);
                let rested = died.is_none_or(|died| now.since(*died) >= MINUTE);
                // A connection may move from a live rail to a rail that died within the last minute
                // in only one case: the new rail failed together with all other rails, so no rail
                // was at fault.
                let begun = self.bad.get(&to.rail.local).map(|(since, _)| *since);
                assert!(rested || begun.is_some_and(|begun| self.all_failed >= Some(begun)));
            }
            // A connection moves to a rail in the state `Returning` only if its previous rail was
            // not live.
            Standing::Returning => assert_ne!(on.map(|view| view.standing), Some(Standing::Live)),
            other => panic!("moved to a rail that is {}", other.name()),
        }
        self.members[index].to = Some(to.rail);
    }

    fn check(&self) {
        let loads: u32 = self.views().iter().map(|view| view.load).sum();
        assert_eq!(loads as usize, self.members.len());
    }

    fn finish(mut self) {
        for member in self.members.drain(..) {
            self.rails.leave(member.seat);
        }
        for (probe, _) in self.probes.drain(..) {
            self.rails.probed(probe, Probed::Failed, self.now);
        }
        self.rails.update(&Pairs::NONE, self.now);
        assert_eq!(self.rails.views(self.now).count(), 0);
        assert!(self.rails.take(None, false, self.now).is_none());
    }
}
