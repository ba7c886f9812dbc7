// SPDX-License-Identifier: GPL-2.0

//! Faults of the server and of the host, for which no rail must be blamed. Also faults of rails
//! that are hard to detect.
//!
//! This command prints the figures for `Documentation/reliability.rst`:
//! `cargo test --test it rail_sim::faults -- --nocapture`.

use super::*;

/// Number of connections of the mount in most cases.
const CONNECTIONS: usize = 8;

/// Number of rounds of a repeated fault. `BETWEEN` is the time between two rounds.
const ROUNDS: u64 = 8;
const BETWEEN: u64 = 5 * MINUTE;

/// Time within which the rails must be balanced again if no rail was at fault.
const EVEN_WITHIN: u64 = 15_000;

/// Number of hosts that lose a rail at the same moment. `SPREAD` is the minimum time between the
/// first and the last return of a connection to that rail, in milliseconds.
const HOSTS: u64 = 200;
const SPREAD: u64 = 10_000;

/// A time that is longer than any wait of the simulation.
const FOR_EVER: u64 = 120 * MINUTE;

impl World {
    /// Makes the server close all connections. Only clients with calls in flight then report that
    /// their rails have perhaps failed.
    fn closes_all(&mut self) {
        let now = self.time();
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if let (State::Up { .. }, Some(seat)) = (&client.state, &client.seat) {
                if client.busy {
                    self.rails.doubted(seat, now);
                }
                self.lost(index, false);
            }
        }
    }

    /// Makes the server silent. As a result all connections end, one after the other within
    /// `spread` milliseconds.
    fn loses_all(&mut self, spread: u64) {
        let count = self.clients.len() as u64;
        for (index, client) in self.clients.iter_mut().enumerate() {
            client.ends = Some(self.now + (index as u64 * 5 % count) * spread / count);
            if let State::Up { silent_since, .. } = &mut client.state {
                silent_since.get_or_insert(self.now);
            }
        }
    }

    /// Runs the simulation until all clients are connected and the rails are balanced. Returns the
    /// number of milliseconds that this takes.
    fn even_after(&mut self) -> u64 {
        let begin = self.now;
        while !(self.is_even() && self.all_up()) {
            assert!(self.now - begin < FOR_EVER);
            self.run(STEP);
        }
        self.now - begin
    }
}

/// Checks that the rails were balanced soon enough after each fault. Prints rows of a table.
fn even_soon(what: &str, took: &[Vec<u64>]) {
    for took in took {
        println!("{what}: even after {} s", seconds(took));
    }
    let all = || took.iter().flatten();
    assert!(
        all().all(|ms| *ms <= EVEN_WITHIN),
        "{what}: {:?}",
        all().max()
    );
}

/// Formats durations, which are in milliseconds, as a list of seconds.
fn seconds(each: &[u64]) -> String {
    let each = each.iter().map(|ms| format!("{:.1}", *ms as f64 / 1000.0));
    each.collect::<Vec<_>>().join(", ")
}

/// Repeats a fault. Returns for each round the time until the rails were balanced again.
fn rounds(rails: usize, seed: u64, fault: impl Fn(&mut World)) -> Vec<u64> {
    let mut world = World::new(rails, CONNECTIONS, seed);
    let round = |_| {
        world.run(BETWEEN);
        fault(&mut world);
        world.even_after()
    };
    (0..ROUNDS).map(round).collect()
}

fn restart(world: &mut World) {
    world.server = Server::Refuses;
    world.closes_all();
    world.run(20_000);
    world.server = Server::Accepts;
}

// Rails: no rail is treated as faulty if the server restarts, even if it restarts many times. At
// each restart the server closes its connections, and refuses new connections for 20 s.
#[test]
fn a_server_restart_is_held_against_no_rail() {
    for rails in [2, 3] {
        let took = (0..4).map(|seed| rounds(rails, seed, restart));
        even_soon(
            &format!("restart, {rails} rails"),
            &took.collect::<Vec<_>>(),
        );
    }
}

// Rails: no rail is treated as faulty after a power cycle of the server. All connections end
// because the server is silent. When they end, the server either works again, or stays off for one
// more minute.
#[test]
fn a_power_cycle_is_held_against_no_rail() {
    for away in [0, MINUTE] {
        let power_cycle = |world: &mut World| {
            world.loses_all(1000);
            if away > 0 {
                world.server = Server::IsOff;
                world.run(away);
                world.server = Server::Accepts;
            }
            world.run(1000);
        };
        let took = (0..4).map(|seed| rounds(2, seed, power_cycle));
        even_soon(
            &format!("power cycle, {away} ms"),
            &took.collect::<Vec<_>>(),
        );
    }
}

// Rails: no rail is treated as faulty after a power cycle of the server, even if idle connections
// detect the silence later than busy connections.
#[test]
fn a_power_cycle_that_is_noticed_late_is_held_against_no_rail() {
    let power_cycle = |world: &mut World| {
        world.loses_all(8000);
        world.run(8000);
    };
    let took = (0..4).map(|seed| rounds(2, seed, power_cycle));
    even_soon("power cycle, noticed late", &took.collect::<Vec<_>>());
}

// Rails: no rail is treated as faulty after the host was suspended. When the host resumes, it
// detects immediately that all its connections and attempts have timed out.
#[test]
fn a_host_that_stood_still_blames_no_rail() {
    let stands_still = |world: &mut World| {
        world.now += 30_000;
        world.loses_all(0);
        world.run(STEP);
    };
    let took = (0..4).map(|seed| rounds(2, seed, stands_still));
    even_soon("host stood still", &took.collect::<Vec<_>>());
}

/// Runs the simulation for `time` milliseconds. Returns the lengths of the periods in which no busy
/// connection used rail 0, in milliseconds. A period that has not ended is left out.
fn absences(world: &mut World, time: u64) -> Vec<u64> {
    let (mut left, mut away) = (None, Vec::new());
    let end = world.now + time;
    while world.now < end {
        world.run(STEP);
        let clients = world.clients.iter();
        let on = clients.filter(|client| client.busy && client.on == 0);
        match (left, on.count()) {
            (None, 0) => left = Some(world.now),
            (Some(since), 1..) => {
                away.push(world.now - since);
                left = None;
            }
            _ => {}
        }
    }
    away
}

// Rails: if connections over a rail can be established but end soon, the rail is avoided for a
// longer time after each failure, up to an hour.
#[test]
fn a_rail_that_kills_what_uses_it_is_away_longer_each_time() {
    const HOUR: u64 = 60 * MINUTE;
    let each = [(1, 2000), (2, 20_000), (3, 60_000)].map(|(seed, after)| {
        let mut world = World::new(2, 4, seed);
        for client in &mut world.clients {
            client.busy = true;
        }
        world.breaks(0, Fault::Kills(after));
        let away = absences(&mut world, 9 * HOUR);
        println!("black hole after {after} ms: away for {} s", seconds(&away));
        (world, away)
    });
    for (mut world, away) in each {
        let grows = |pair: &[u64]| pair[1] > pair[0] || pair[1] >= HOUR;
        assert!(away.len() > 6 && away.windows(2).all(grows), "{away:?}");
        assert!(away.iter().all(|ms| *ms <= HOUR + HOUR / 4 + MINUTE));
        // The rail now works for longer than the period for which it was last avoided. So after its
        // next failure, the rail is avoided only for the shortest period.
        world.mends(0);
        world.run(3 * HOUR);
        assert!(world.is_even());
        world.breaks(0, Fault::Port);
        world.run(1000);
        world.mends(0);
        let again = absences(&mut world, 2 * MINUTE);
        assert!(again.iter().all(|ms| *ms <= 2 * MINUTE), "{again:?}");
    }
}

// Rails: many hosts lose a rail at the same moment, and later the rail works again for all of them
// at the same moment. The hosts do not all return to the rail at the same moment.
#[test]
fn many_hosts_do_not_return_at_once() {
    let spreads = [3, 20, 40, 48, 55, 70, 200].map(|down| {
        let returns = (0..HOSTS).map(|seed| {
            let mut world = World::new(2, 2, seed);
            world.run(seed % 20 * STEP);
            world.now = 100_000;
            world.breaks(1, Fault::Port);
            // The address disappears and returns together with the port.
            world.rails.update(&pairs(1), world.time());
            world.run(down * 1000);
            world.mends(1);
            world.rails.update(&pairs(2), world.time());
            100 * (down * 10) + world.even_after()
        });
        let mut returns: Vec<u64> = returns.collect();
        returns.sort_unstable();
        let (first, last) = (returns[0], returns[returns.len() - 1]);
        let within = |from: &u64| {
            let soon = *from..*from + 1000;
            returns.iter().filter(|ms| soon.contains(*ms)).count()
        };
        let at_once = returns.iter().map(within);
        println!(
            "{HOSTS} hosts, rail out for {down} s: back {} s after, at most {} in a second",
            seconds(&[first, returns[returns.len() / 2], last]),
            at_once.max().unwrap(),
        );
        last - first
    });
    assert!(spreads.iter().all(|ms| *ms >= SPREAD), "{spreads:?}");
}

// Rails: no rail is treated as faulty if a request of the connection manager or a probe is lost.
#[test]
fn a_lost_datagram_blames_no_rail() {
    for seed in 0..8 {
        let mut world = World::new(2, CONNECTIONS, seed);
        for lost in [1, 0] {
            // In the first round a packet of a connection attempt is lost. In the second round a
            // packet of a probe is lost.
            world.loses = 1;
            let index = seed as usize % CONNECTIONS;
            if lost == 1 {
                world.lost(index, false);
            } else {
                let seat = world.clients[index].seat.as_ref().unwrap();
                world.rails.doubted(seat, world.time());
            }
            for _ in 0..300 {
                world.run(STEP);
                let mut views = world.rails.views(world.time());
                assert!(views.all(|view| view.standing != Standing::Dead), "{seed}");
            }
            assert_eq!(world.loses, 0);
            assert!(world.all_up());
            if lost == 1 {
                let mut views = world.rails.views(world.time());
                assert!(views.all(|view| view.standing == Standing::Live), "{seed}");
            }
        }
    }
}
