// SPDX-License-Identifier: GPL-2.0

//! Simulates many connections over several rails. Rails fail and work again. The time is simulated,
//! too. The tests measure how soon each connection works again, how evenly the connections are
//! spread, and how many times a connection moves.
//!
//! The simulated world knows which rails work. The policy knows only what connections and probes
//! report, with realistic delays.

mod faults;

use std::net::{
    IpAddr,
    Ipv4Addr, //
};
use xprtrdma_proto::{
    rail::{
        table::{
            Locals,
            Servers, //
        },
        Choice,
        Local,
        Move,
        Name,
        Pairs,
        Probe,
        Probed,
        Rail,
        Rails,
        Seat,
        Standing, //
    },
    time::Time, //
};

/// Duration of one step of the simulation, in milliseconds.
const STEP: u64 = 50;

/// Duration of an attempt or a probe over a rail that works.
const CONNECT: u64 = 300;

/// Interval at which a busy connection is checked.
const BEAT: u64 = 1000;
/// Time until a busy connection detects silence.
const SILENCE: u64 = 6000;
/// Time until an idle connection detects silence.
const IDLE_SILENCE: u64 = 34_000;

/// Maximum duration of a probe.
const PROBE: u64 = 10_000;

/// The longest pause before an attempt if no rail is live.
const BACK_OFF: u64 = 2000;

/// One minute in milliseconds.
const MINUTE: u64 = 60_000;

/// Maximum time until the connection manager repeats a request.
const REPEATS: u64 = 4608;

/// How a rail fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// The port goes down, and the device reports that.
    Port,
    /// No packets pass over the rail.
    Silent,
    /// Connections over the rail can be established, but each connection ends after this time.
    Kills(u64),
}

/// How the server responds to connection requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Server {
    Accepts,
    Refuses,
    IsOff,
}

enum State {
    Down,
    /// The client has chosen a rail and waits before the attempt. `limit` is the time limit of the
    /// attempt.
    Waiting {
        until: u64,
        limit: u64,
    },
    Attempt {
        until: u64,
        outcome: Outcome,
    },
    Up {
        since: u64,
        silent_since: Option<u64>,
    },
}

/// The outcome of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Connected,
    Refused,
    Silence,
}

struct Client {
    seat: Option<Seat>,
    on: usize,
    state: State,
    busy: bool,
    after_death: bool,
    /// The beginning and the end of the last period in which the client had no connection.
    outage: (u64, u64),
    /// Time at which the client's connection ends, even if its rail still works.
    ends: Option<u64>,
    /// Times at which the client's connection moved to another rail.
    moves: Vec<u64>,
}

impl Client {
    fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. })
    }
}

struct World {
    now: u64,
    rails: Rails,
    broken: Vec<Option<Fault>>,
    server: Server,
    /// Number of connection requests that will be lost from now on.
    loses: usize,
    clients: Vec<Client>,
    probes: Vec<(Probe, usize, u64, Outcome)>,
    random: u64,
}

pub(crate) fn pairs(rails: usize) -> Pairs {
    let ends: Vec<Local> = (0..rails)
        .map(|n| Local {
            addr: IpAddr::V4(Ipv4Addr::new(10, n as u8, 0, 2)),
            prefix_len: 24,
            device: Name::new(&format!("rxe{n}")).unwrap(),
            port: 1,
        })
        .collect();
    let server = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
    Pairs::new(
        ends.iter().copied(),
        &Locals::parse("auto").unwrap(),
        server,
        &Servers::NONE,
    )
}

fn probed(works: bool) -> Probed {
    match works {
        true => Probed::Connected,
        false => Probed::Failed,
    }
}

pub(crate) fn standing(rails: &Rails, rail: Rail, now: Time) -> Standing {
    let mut views = rails.views(now);
    views.find(|view| view.rail == rail).unwrap().standing
}

pub(crate) fn number(rail: IpAddr) -> usize {
    match rail {
        IpAddr::V4(addr) => addr.octets()[1].into(),
        IpAddr::V6(_) => unreachable!(),
    }
}

impl World {
    /// Creates a simulated world with rails and clients, and runs it for five seconds, so that the
    /// clients connect. Every second client is busy.
    fn new(rails: usize, clients: usize, seed: u64) -> Self {
        let mut policy = Rails::new(seed);
        policy.update(&pairs(rails), Time::from_millis(0));
        let client = |n| Client {
            seat: None,
            on: usize::MAX,
            state: State::Down,
            busy: n % 2 == 0,
            after_death: false,
            outage: (0, 0),
            ends: None,
            moves: Vec::new(),
        };
        let mut world = Self {
            now: 0,
            rails: policy,
            broken: vec![None; rails],
            server: Server::Accepts,
            loses: 0,
            clients: (0..clients).map(client).collect(),
            probes: Vec::new(),
            random: seed,
        };
        world.run(5000);
        world.forget();
        world
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1);
        (self.random >> 33) % end
    }

    fn forget(&mut self) {
        for client in &mut self.clients {
            client.moves.clear();
        }
    }

    fn time(&self) -> Time {
        Time::from_millis(self.now)
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += STEP;
            self.probes();
            for index in 0..self.clients.len() {
                self.client(index);
            }
        }
    }

    fn breaks(&mut self, rail: usize, fault: Fault) {
        self.broken[rail] = Some(fault);
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            if let (true, State::Up { silent_since, .. }) = (client.on == rail, &mut client.state) {
                if matches!(fault, Fault::Kills(_)) {
                    continue;
                }
                silent_since.get_or_insert(self.now);
                if fault == Fault::Port {
                    self.port_down(index);
                }
            }
        }
    }

    fn mends(&mut self, rail: usize) {
        self.broken[rail] = None;
        for client in self.clients.iter_mut().filter(|client| client.on == rail) {
            if let State::Up { silent_since, .. } = &mut client.state {
                *silent_since = None;
            }
        }
    }

    /// Reacts as the driver does when a port goes down: if another rail is live, the connection
    /// leaves its rail immediately.
    fn port_down(&mut self, index: usize) {
        let now = self.time();
        let client = &mut self.clients[index];
        let seat = client.seat.as_ref().unwrap();
        if self.rails.port_failed(seat, false, now) {
            self.lost(index, true);
        }
    }

    fn lost(&mut self, index: usize, dead: bool) {
        let now = self.time();
        let client = &mut self.clients[index];
        client.outage.0 = self.now;
        if dead {
            self.rails.lost(client.seat.as_ref().unwrap(), now);
        }
        client.after_death = dead;
        self.connect(index);
    }

    /// Chooses a rail. Then starts an attempt over this rail, or the pause before the attempt if a
    /// pause is due.
    fn connect(&mut self, index: usize) {
        let now = self.time();
        let client = &mut self.clients[index];
        client.ends = None;
        let last = client.seat.take();
        let (seat, choice) = self.rails.take(last, client.after_death, now).unwrap();
        let to = number(choice.rail.local);
        if to != client.on {
            client.moves.push(self.now);
            client.on = to;
        }
        client.seat = Some(seat);
        let limit = choice.limit.map_or(60_000, |limit| limit.get());
        if client.after_death && !choice.at_once {
            let until = self.now + BACK_OFF - self.below(BACK_OFF / 2);
            self.clients[index].state = State::Waiting { until, limit };
        } else {
            self.attempt(index, limit);
        }
    }

    /// Starts an attempt over the client's rail. The attempt takes at most `limit` milliseconds.
    fn attempt(&mut self, index: usize, limit: u64) {
        let (takes, outcome) = self.asks(self.clients[index].on, limit);
        self.clients[index].state = State::Attempt {
            until: self.now + takes,
            outcome,
        };
    }

    fn is_silent(&self, rail: usize) -> bool {
        let is_cut = matches!(self.broken[rail], Some(Fault::Port | Fault::Silent));
        is_cut || self.server == Server::IsOff
    }

    /// Simulates a connection request over a rail. Returns the duration of the request, which is at
    /// most `limit`, and its outcome.
    fn asks(&mut self, rail: usize, limit: u64) -> (u64, Outcome) {
        if self.is_silent(rail) {
            // The connection manager repeats the request, and the repeated request may be answered.
            return (limit, Outcome::Connected);
        }
        let mut takes = CONNECT;
        if self.loses > 0 {
            self.loses -= 1;
            takes += REPEATS;
        }
        match self.server {
            _ if takes > limit => (limit, Outcome::Silence),
            Server::Refuses => (takes, Outcome::Refused),
            _ => (takes, Outcome::Connected),
        }
    }

    fn client(&mut self, index: usize) {
        let now = self.time();
        let client = &mut self.clients[index];
        match client.state {
            State::Down => self.connect(index),
            State::Waiting { until, limit } if self.now >= until => self.attempt(index, limit),
            State::Attempt { until, outcome } if self.now >= until => {
                let cut = self.is_silent(self.clients[index].on);
                let client = &mut self.clients[index];
                let seat = client.seat.as_mut().unwrap();
                if outcome == Outcome::Connected && !cut {
                    self.rails.connected(seat, now);
                    client.state = State::Up {
                        since: self.now,
                        silent_since: None,
                    };
                    client.outage.1 = self.now;
                } else {
                    match outcome {
                        Outcome::Refused => self.rails.refused(seat, now),
                        _ => self.rails.unanswered(seat, now),
                    };
                    client.after_death = true;
                    self.connect(index);
                }
            }
            State::Up {
                since,
                silent_since,
            } => {
                let killed = match self.broken[client.on] {
                    Some(Fault::Kills(after)) => client.busy && self.now >= since + after,
                    _ => client.ends.is_some_and(|end| self.now >= end),
                };
                if killed {
                    return self.lost(index, true);
                }
                let limit = if client.busy { SILENCE } else { IDLE_SILENCE };
                if silent_since.is_some_and(|since| self.now >= since + limit) {
                    return self.lost(index, true);
                }
                if (self.now + index as u64 * 150) % BEAT < STEP {
                    self.beat(index, silent_since.unwrap_or(self.now));
                }
            }
            _ => {}
        }
    }

    fn beat(&mut self, index: usize, heard: u64) {
        let now = self.time();
        let client = &mut self.clients[index];
        let busy = client.busy;
        let heard = Time::from_millis(heard);
        if self
            .rails
            .moves(client.seat.as_mut().unwrap(), busy, heard, now)
            .is_some()
        {
            client.after_death = false;
            client.outage.0 = self.now;
            self.connect(index);
        }
        if let Some((probe, rail)) = self.rails.probe(now) {
            let rail = number(rail.local);
            let (takes, outcome) = self.asks(rail, PROBE);
            self.probes.push((probe, rail, self.now + takes, outcome));
        }
    }

    fn probes(&mut self) {
        let now = self.time();
        let probes = std::mem::take(&mut self.probes);
        for (probe, rail, until, outcome) in probes {
            if self.now >= until {
                let works = outcome == Outcome::Connected && !self.is_silent(rail);
                self.rails.probed(probe, probed(works), now);
            } else {
                self.probes.push((probe, rail, until, outcome));
            }
        }
    }

    fn on(&self, rail: usize) -> usize {
        self.clients
            .iter()
            .filter(|client| client.on == rail)
            .count()
    }

    fn is_even(&self) -> bool {
        let counts = (0..self.broken.len()).map(|rail| self.on(rail));
        let (least, most) = counts.fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
        most - least <= 1
    }

    fn all_up(&self) -> bool {
        self.clients.iter().all(Client::is_up)
    }

    fn longest_outage(&self) -> u64 {
        let spans = self
            .clients
            .iter()
            .map(|client| client.outage.1 - client.outage.0);
        spans.max().unwrap()
    }
}

// Rails: connections of a mount are spread evenly from the start.
#[test]
fn connections_are_spread_within_one() {
    for rails in 1..=8 {
        for clients in [1, 2, 4, 7, 16, 40] {
            assert!(World::new(rails, clients, clients as u64).is_even());
        }
    }
    // If a host has a single connection to each of many servers, these connections do not all use
    // the same rail.
    let first = (0..64)
        .filter(|seed| World::new(2, 1, *seed).on(0) == 1)
        .count();
    assert!((16..=48).contains(&first), "{first}");
}

// Rails: a connection moves at most one second after a port event, or eight seconds after silence
// begins. Within a minute after a rail has returned, the rails are balanced again. Idle connections
// move first.
#[test]
fn a_rail_that_dies_is_left_and_comes_back() {
    for (fault, within) in [(Fault::Port, 1000), (Fault::Silent, 8000)] {
        for clients in [2, 4, 16, 64] {
            for down in [30_000, 45_000, 200_000] {
                let mut world = World::new(2, clients, down + clients as u64);
                // Busy connections detect the silence.
                let notices = |client: &Client| client.busy && client.on == 0;
                if fault == Fault::Silent && !world.clients.iter().any(notices) {
                    continue;
                }
                world.breaks(0, fault);
                let begin = world.now;
                world.run(within);
                let busy = |client: &&Client| client.busy;
                assert!(world.clients.iter().filter(busy).all(Client::is_up));
                let late = |client: &Client| client.outage.1 > begin + within;
                assert!(!world.clients.iter().filter(busy).any(late));
                world.run(down - within);
                assert!(world.on(0) == 0 && world.all_up());
                world.mends(0);
                world.forget();
                world.run(MINUTE);
                assert!(
                    world.is_even() && world.all_up(),
                    "{fault:?} {clients} {down}"
                );
                // Each connection moved at most once, and the idle connections moved first.
                let moved = |busy| {
                    let of_kind = move |client: &&Client| client.busy == busy;
                    let moves = world.clients.iter().filter(of_kind);
                    moves
                        .flat_map(|client| client.moves.iter().copied())
                        .collect::<Vec<_>>()
                };
                assert!(world.clients.iter().all(|client| client.moves.len() <= 1));
                let (idle, busy) = (moved(false), moved(true));
                assert_eq!(idle.len() + busy.len(), clients / 2);
                assert!(idle.iter().max() < busy.iter().min() || busy.is_empty());
                assert!(world.longest_outage() <= 1000);
            }
        }
    }
}

// Rails: both rails die, and one of them returns.
#[test]
fn when_all_were_dead_the_first_that_works_is_found() {
    for seed in 0..20 {
        for back in 0..3 {
            let mut world = World::new(3, 6, seed);
            for rail in 0..3 {
                world.breaks(rail, [Fault::Port, Fault::Silent][rail % 2]);
                world.run(seed * 700);
            }
            world.run(40_000);
            world.mends(back);
            // The simulated time suffices for one failed attempt over each rail, for the pauses
            // between attempts, and for one successful attempt.
            world.run(2 * (10_000 + BACK_OFF) + BACK_OFF + 2 * CONNECT);
            assert!(world.all_up());
            assert_eq!(world.on(back), 6);
        }
    }
}

// Rails: if a rail fails and returns again and again, no connection moves three times within a
// minute.
#[test]
fn a_flapping_rail_moves_nobody_twice_in_a_minute() {
    for (fault, period) in [
        (Fault::Port, 1000),
        (Fault::Port, 9000),
        (Fault::Port, 25_000),
        (Fault::Port, 45_000),
        (Fault::Silent, 12_000),
        (Fault::Silent, 80_000),
    ] {
        let mut world = World::new(2, 16, period);
        let end = world.now + 20 * MINUTE;
        while world.now < end {
            world.breaks(0, fault);
            world.run(period / 2);
            world.mends(0);
            world.run(period / 2);
        }
        for client in &world.clients {
            for away in client.moves.windows(3) {
                // A fault of the rail causes at most two moves: away from the rail, and back. So
                // three moves in a row belong to at least two faults.
                assert!(away[2] - away[0] >= MINUTE, "{fault:?} {period} {away:?}");
            }
        }
        // The longer the rail keeps failing, the less often connections return to it.
        let late: usize = world
            .clients
            .iter()
            .map(|client| client.moves.len())
            .max()
            .unwrap();
        assert!(late <= 12, "{fault:?} {period} {late}");
        // After at most an hour and a quarter, connections return to the rail.
        world.run(80 * MINUTE);
        assert!(world.is_even());
    }
}

// Rails: after hours of random faults all connections work, and few moves were made.
#[test]
fn whatever_fails_the_end_is_even() {
    for seed in 1..=30u64 {
        let rails = 2 + (seed % 3) as usize;
        let mut world = World::new(rails, 5 + (seed % 7) as usize, seed);
        let mut random = seed;
        let mut next = |end: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(seed | 1);
            (random >> 33) % end
        };
        let begin = world.now;
        let mut faults = 0;
        while world.now < begin + 60 * MINUTE {
            let rail = next(rails as u64) as usize;
            if world.broken[rail].is_none() {
                let fault = [Fault::Port, Fault::Silent][next(2) as usize];
                world.breaks(rail, fault);
                faults += 1;
            } else {
                world.mends(rail);
            }
            world.run(2000 + next(MINUTE));
        }
        for rail in 0..rails {
            world.mends(rail);
        }
        for client in &world.clients {
            // Each fault of a rail causes at most two moves of a connection: away from the rail,
            // and back. If all rails are dead, the connection also tries the other rails in turn.
            assert!(client.moves.len() <= 4 * faults, "{seed}");
        }
        world.run(80 * MINUTE);
        assert!(world.is_even() && world.all_up(), "{seed}");
        let mut views = world.rails.views(world.time());
        assert!(views.all(|view| view.standing == Standing::Live));
    }
}

// Rails: if a rail is no longer configured, its connections leave the rail at a limited rate.
// Connections on the other rails do not move.
#[test]
fn a_rail_that_is_taken_off_the_list_is_left_slowly() {
    let mut world = World::new(3, 12, 7);
    world.rails.update(&pairs(2), world.time());
    world.run(20_000);
    let moves = world.clients.iter().flat_map(|client| &client.moves);
    let mut times: Vec<u64> = moves.copied().collect();
    times.sort_unstable();
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= 200),
        "{times:?}"
    );
    assert_eq!([world.on(0), world.on(1), world.on(2)], [6, 6, 0]);
    assert!(world.clients.iter().all(|client| client.moves.len() <= 1));
    assert!(world.longest_outage() <= 1000);
    // When the rail is added again, it gets its share of connections again.
    world.rails.update(&pairs(3), world.time());
    world.forget();
    world.run(MINUTE);
    assert_eq!([world.on(0), world.on(1), world.on(2)], [4, 4, 4]);
    assert_eq!(
        world
            .clients
            .iter()
            .map(|client| client.moves.len())
            .sum::<usize>(),
        4
    );
}

// Rails: a rail that failed and works again gets no connections for a minute. A rail that has never
// worked before, for example after a boot, gets connections without this delay.
#[test]
fn a_rail_that_never_worked_gets_its_share_soon() {
    for (worked, rests) in [(false, false), (true, true)] {
        let mut rails = Rails::new(5);
        let at = |seconds: u64| Time::from_millis(1000 * seconds);
        rails.update(&pairs(2), at(0));
        let (seat, choice) = rails.take(None, false, at(0)).unwrap();
        if worked {
            rails.connected(&seat, at(0));
        }
        assert!(rails.failed(&seat, at(1)));
        rails.leave(seat);
        let (probe, rail) = rails.probe(at(3)).unwrap();
        assert_eq!(rail, choice.rail);
        rails.probed(probe, Probed::Connected, at(3));
        let standing = |now| standing(&rails, rail, now);
        assert_eq!(standing(at(12)), Standing::Returning);
        // Connections return to the rail after ten seconds and a random time of up to twelve
        // seconds.
        assert_eq!(standing(at(25)) == Standing::Returning, rests);
        assert_eq!(standing(at(60)) == Standing::Returning, rests);
        assert_eq!(standing(at(73)), Standing::Live);
    }
}

// Rails: a rail is doubted if its connection ended without a known reason. An attempt over another
// rail and a probe of the doubted rail begin immediately. The outcome of the probe decides whether
// the doubted rail is dead.
#[test]
fn a_rail_is_doubted_until_it_was_tried() {
    for works in [false, true] {
        let mut rails = Rails::new(7);
        let at = |seconds: u64| Time::from_millis(1000 * seconds);
        rails.update(&pairs(2), at(0));
        let (seat, first) = rails.take(None, false, at(0)).unwrap();
        rails.connected(&seat, at(0));
        rails.doubted(&seat, at(1));
        let standing = |rails: &Rails, now| standing(rails, first.rail, now);
        assert_eq!(standing(&rails, at(1)), Standing::Doubted);
        let (seat, second) = rails.take(Some(seat), true, at(1)).unwrap();
        assert_ne!(second.rail, first.rail);
        assert!(second.at_once);
        let (probe, rail) = rails.probe(at(1)).unwrap();
        assert_eq!(rail, first.rail);
        assert!(rails.probe(at(1)).is_none());
        rails.probed(probe, probed(works), at(2));
        if works {
            // Connections left the rail because the rail was doubted. So no connection returns to
            // the rail within a minute.
            assert_eq!(standing(&rails, at(2)), Standing::Returning);
            assert_eq!(standing(&rails, at(60)), Standing::Returning);
            assert_eq!(standing(&rails, at(73)), Standing::Live);
        } else {
            assert_eq!(standing(&rails, at(2)), Standing::Dead);
        }
        // If both rails are doubted, the next connection attempt starts after a pause, and uses one
        // of the two rails.
        rails.doubted(&seat, at(3));
        let (seat, third) = rails.take(Some(seat), true, at(3)).unwrap();
        assert_eq!(third.rail == first.rail, works);
        assert_eq!(third.at_once, works);
        rails.leave(seat);
    }
}

// Rails: if a connection receives messages over a doubted rail, the rail is no longer doubted. If
// the only connection on the rail is idle, the rail is probed.
#[test]
fn a_doubt_ends_when_something_is_heard_or_probed() {
    let at = Time::from_millis;
    for idle in [false, true] {
        let mut rails = Rails::new(3);
        rails.update(&pairs(2), at(0));
        let (mut stays, Choice { rail, .. }) = rails.take(None, false, at(0)).unwrap();
        let (other, _) = rails.take(None, false, at(0)).unwrap();
        let ends = match rails.take(None, false, at(0)).unwrap() {
            (ends, choice) if choice.rail == rail => ends,
            (another, _) => {
                let (ends, choice) = rails.take(None, false, at(0)).unwrap();
                assert_eq!(choice.rail, rail);
                rails.leave(another);
                ends
            }
        };
        rails.leave(other);
        rails.doubted(&ends, at(0));
        rails.leave(ends);
        let standing = |rails: &Rails| standing(rails, rail, at(2000));
        if idle {
            assert_eq!(rails.moves(&mut stays, false, at(900), at(900)), None);
            // A cancelled probe does not show whether the rail works, so another probe follows.
            for (outcome, then, ms) in [
                (Probed::NotTried, Standing::Doubted, 1000),
                (Probed::Connected, Standing::Returning, 1250),
            ] {
                let (probe, _) = rails.probe(at(ms)).unwrap();
                rails.probed(probe, outcome, at(ms));
                assert_eq!(standing(&rails), then);
            }
        } else {
            for (heard, then) in [(900, Standing::Doubted), (1100, Standing::Returning)] {
                assert_eq!(rails.moves(&mut stays, true, at(heard), at(heard)), None);
                assert_eq!(standing(&rails), then);
            }
            assert!(rails.probe(at(2000)).is_none());
        }
        rails.leave(stays);
    }
}

// Rails: the policy limits the duration of a connection attempt only if several rails are known. A
// rail that is missing from the current list is still known: it is missing while its port is down,
// but it may return.
#[test]
fn a_rail_that_is_not_listed_may_be_back() {
    for known in [1, 2] {
        let mut rails = Rails::new(3);
        rails.update(&pairs(known), Time::default());
        rails.update(&pairs(1), Time::default());
        let (seat, choice) = rails.take(None, false, Time::default()).unwrap();
        assert_eq!(choice.limit.is_some(), known > 1);
        rails.leave(seat);
    }
}

// Rails: if a rail was doubted several times, no connection moves to that rail within a minute
// after it was last doubted.
#[test]
fn a_later_doubt_counts_for_the_rest() {
    let mut rails = Rails::new(3);
    let at = |seconds: u64| Time::from_millis(1000 * seconds);
    rails.update(&pairs(2), at(0));
    let (one, Choice { rail, .. }) = rails.take(None, false, at(0)).unwrap();
    rails.doubted(&one, at(100));
    rails.doubted(&one, at(150));
    rails.connected(&one, at(152));
    assert_eq!(standing(&rails, rail, at(209)), Standing::Returning);
    assert_eq!(standing(&rails, rail, at(230)), Standing::Live);
    rails.leave(one);
}

// Rails: the first rail fails. If the second rail still works afterwards, the first rail is treated
// as faulty, even if the second rail fails later.
#[test]
fn a_rail_that_fails_before_the_server_does_is_not_excused() {
    let at = |seconds: u64| Time::from_millis(1000 * seconds);
    for others_do_well in [true, false] {
        let mut rails = Rails::new(3);
        rails.update(&pairs(2), at(0));
        let mut seats: Vec<_> = (0..2)
            .map(|_| rails.take(None, false, at(0)).unwrap())
            .collect();
        for (seat, _) in &mut seats {
            rails.connected(seat, at(0));
            assert_eq!(rails.moves(seat, true, at(1), at(1)), None);
        }
        let failed = seats[0].1.rail;
        assert!(rails.lost(&seats[0].0, at(10)));
        let heard = if others_do_well { at(13) } else { at(9) };
        assert_eq!(rails.moves(&mut seats[1].0, true, heard, at(13)), None);
        assert!(!rails.lost(&seats[1].0, at(20)));
        // From now on the server accepts connections again.
        for (seat, _) in &seats {
            rails.connected(seat, at(21));
        }
        let rests = standing(&rails, failed, at(21)) == Standing::Returning;
        assert_eq!(rests, others_do_well);
        for (seat, _) in seats {
            rails.leave(seat);
        }
    }
}

// Rails: a connection that receives its replies stays on its rail, even if other connections on
// that rail ended.
#[test]
fn evidence_of_life_outweighs_the_misfortune_of_others() {
    let mut rails = Rails::new(3);
    let now = Time::from_millis(0);
    let late = Time::from_millis(2000);
    rails.update(&pairs(2), now);
    let mut seats: Vec<_> = (0..4)
        .map(|_| rails.take(None, false, now).unwrap())
        .collect();
    let rail = seats[0].1.rail;
    let other = seats.iter().position(|(_, choice)| choice.rail == rail);
    assert!(rails.failed(&seats[other.unwrap()].0, now));
    let (seat, _) = seats
        .iter_mut()
        .rev()
        .find(|(_, choice)| choice.rail == rail)
        .unwrap();
    assert_eq!(rails.moves(seat, true, now, now), None);
    assert_eq!(rails.moves(seat, true, now, late), Some(Move::Flee));
    rails.stay(seat, now);
    assert_eq!(rails.moves(seat, false, now, late), Some(Move::Flee));
    // The connection is counted as a user of its new rail, so that other connections do not treat
    // that rail as unused.
    assert!(rails
        .views(now)
        .any(|view| view.rail == rail && view.load == 1));
    // A message that arrives soon after the rail died may have been sent before the rail died.
    rails.stay(seat, now);
    let soon = Time::from_millis(900);
    assert_eq!(rails.moves(seat, true, soon, soon), None);
    assert!(rails
        .views(soon)
        .any(|view| view.standing == Standing::Dead));
    // A later message proves that the rail works, though no probe was sent over it.
    assert_eq!(rails.moves(seat, true, late, late), None);
    assert!(rails
        .views(late)
        .all(|view| view.standing != Standing::Dead));
    for (seat, _) in seats {
        rails.leave(seat);
    }
    assert!(rails.views(now).all(|view| view.load == 0));
}

// Rails: a busy connection waits for its calls before it moves to another rail. If the calls take
// too long, the connection stays on its rail until a pause is over. Each time this happens, the
// pause is longer, up to ten minutes.
#[test]
fn a_connection_whose_calls_take_long_is_not_asked_again_soon() {
    let mut rails = Rails::new(5);
    let at = Time::from_millis;
    rails.update(&pairs(2), at(0));
    let mut seats: Vec<Seat> = (0..2)
        .map(|_| rails.take(None, false, at(0)).unwrap().0)
        .collect();
    rails.update(&pairs(1), at(0));
    let mut moves = |rails: &mut Rails, busy, ms| {
        let each = seats.iter_mut();
        let mut found: Vec<_> = each
            .filter_map(|seat| Some((rails.moves(seat, busy, at(ms), at(ms))?, seat)))
            .collect();
        assert!(found.len() <= 1);
        found.pop().map(|(how, seat)| {
            rails.stay(seat, at(ms));
            how
        })
    };
    assert_eq!(moves(&mut rails, true, 0), None);
    assert_eq!(moves(&mut rails, true, 3000), Some(Move::Shift));
    assert_eq!(moves(&mut rails, true, 32_999), None);
    let mut at_ms = 33_000;
    for pause in [60, 120, 240, 480, 600, 600] {
        assert_eq!(moves(&mut rails, true, at_ms), Some(Move::Shift));
        at_ms += 1000 * pause;
        assert_eq!(moves(&mut rails, true, at_ms - 1), None);
    }
    // If the connection is idle, it may move before the pause is over.
    assert_eq!(moves(&mut rails, false, at_ms - 1), Some(Move::Shift));
    for seat in seats {
        rails.leave(seat);
    }
}

// Rails: healthy connections move to other rails one at a time, with a pause between two moves.
#[test]
fn moves_are_a_quarter_of_a_second_apart() {
    let mut rails = Rails::new(4);
    let at = Time::from_millis;
    rails.update(&pairs(3), at(0));
    let mut seats: Vec<Seat> = (0..12)
        .map(|_| rails.take(None, false, at(0)).unwrap().0)
        .collect();
    rails.update(&pairs(2), at(0));
    let mut moved = |ms| {
        let moves = seats
            .iter_mut()
            .map(|seat| rails.moves(seat, false, at(ms), at(ms)));
        moves.flatten().count()
    };
    let found = [0, 100, 249, 250, 400, 499, 500, 2000, 4000].map(&mut moved);
    assert_eq!(found, [1, 0, 0, 1, 0, 0, 1, 1, 0]);
    for seat in seats {
        rails.leave(seat);
    }
}

// Rails: a connection that existed before rails were configured is counted as a connection of the
// rail that it uses.
#[test]
fn rails_that_are_listed_later_take_connections_in() {
    let mut rails = Rails::new(9);
    let now = Time::from_millis(0);
    rails.update(&pairs(2), now);
    let [first, second] = [0, 1].map(|n| IpAddr::V4(Ipv4Addr::new(10, n, 0, 2)));
    let server = IpAddr::V4(Ipv4Addr::new(10, 200, 0, 1));
    assert!(rails.adopt(server, first, now).is_none());
    let adopt = |_| rails.adopt(first, server, now).unwrap();
    let mut seats: Vec<Seat> = (0..3).map(adopt).collect();
    assert_eq!(
        rails.moves(&mut seats[0], false, now, now),
        Some(Move::Shift)
    );
    let (seat, choice) = rails.take(Some(seats.swap_remove(0)), false, now).unwrap();
    assert_eq!(choice.rail.local, second);
    for seat in seats.into_iter().chain([seat]) {
        rails.leave(seat);
    }
    assert!(rails.views(now).all(|view| view.load == 0));
}

// Rails: a rail is a pair of addresses that can reach each other.
#[test]
fn local_ends_and_servers_make_pairs() {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let end = |addr: &str, prefix_len, device: &str| Local {
        addr: ip(addr),
        prefix_len,
        device: Name::new(device).unwrap(),
        port: 1,
    };
    let ends = [
        end("192.0.2.2", 24, "a"),
        end("192.0.2.3", 24, "a"),
        end("198.51.100.2", 24, "b"),
        end("203.0.113.2", 32, "c"),
        end("2001:db8::2", 64, "d"),
    ];
    let auto = Locals::parse("auto").unwrap();
    let table = "192.0.2.1=198.51.100.1=2001:db8::1=2001:db8::9";
    let servers = Servers::parse(table).unwrap();
    let pairs = |mount: &str, locals: &Locals, servers: &Servers| {
        let pairs = Pairs::new(ends.iter().copied(), locals, ip(mount), servers);
        assert_eq!(pairs.left_out(), 0);
        let text = |rail: &xprtrdma_proto::rail::Rail| {
            format!("{} {} {}", rail.device.as_str(), rail.local, rail.server)
        };
        pairs.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(
        pairs("192.0.2.1", &auto, &servers),
        [
            "a 192.0.2.2 192.0.2.1",
            "b 198.51.100.2 198.51.100.1",
            "c 203.0.113.2 192.0.2.1",
            "d 2001:db8::2 2001:db8::1",
            "d 2001:db8::2 2001:db8::9",
        ]
    );
    assert_eq!(
        pairs("192.0.2.1", &auto, &Servers::NONE),
        [
            "a 192.0.2.2 192.0.2.1",
            "b 198.51.100.2 192.0.2.1",
            "c 203.0.113.2 192.0.2.1",
        ]
    );
    let some = Locals::parse("192.0.2.3 d").unwrap();
    assert_eq!(
        pairs("2001:db8:5::1", &some, &Servers::NONE),
        ["d 2001:db8::2 2001:db8:5::1"]
    );
    assert!(pairs("192.0.2.1", &Locals::OFF, &servers).is_empty());
    let many: Vec<Local> = (0..11)
        .map(|n| end("10.0.0.1", 0, &format!("rxe{n}")))
        .collect();
    let all = Pairs::new(many.iter().copied(), &auto, ip("10.9.9.9"), &Servers::NONE);
    assert_eq!((all.iter().count(), all.left_out()), (8, 3));
}
