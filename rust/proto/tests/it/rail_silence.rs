// SPDX-License-Identifier: GPL-2.0

//! Silence on connections whose acknowledgements say nothing about the peer (iWARP), in simulated
//! time: a rail that passes no packets, a slow server, and a server that is too busy to accept
//! connections.

use crate::rail_sim::{
    number,
    pairs,
    standing, //
};
use xprtrdma_proto::{
    rail::{
        Choice,
        Probe,
        Probed,
        Rail,
        Rails,
        Seat,
        Standing, //
    },
    time::Time, //
};

/// A step of the simulation, in milliseconds.
const STEP: u64 = 50;

/// Duration in milliseconds of a probe over a rail that works.
const CONNECT: u64 = 300;
/// Duration in milliseconds of a probe that the server does not accept.
const REFUSED: u64 = 4000;
/// Duration in milliseconds of a probe over a rail that passes no packets. It is TCP's time limit
/// for a connection attempt.
const TCP: u64 = 31_000;

/// Time that a server needs to accept all waiting connection requests after it begins to accept
/// connections again.
const BACKLOG: u64 = 500;

/// Maximum time between two checks of a connection by the driver.
const LOOK: u64 = 1000;

const MINUTE: u64 = 60_000;

struct Client {
    seat: Option<Seat>,
    on: Rail,
    heard: u64,
    next_look: u64,
    moved: Option<u64>,
}

struct World {
    now: u64,
    rails: Rails,
    clients: Vec<Client>,
    /// The connection requests that probes sent. Each entry contains the time of the request, and
    /// whether the rail worked at that time.
    probes: Vec<(Probe, Rail, u64, bool)>,
    /// Whether calls are in flight.
    busy: bool,
    /// Whether the rail with this number works.
    works: [bool; 2],
    /// Interval between the server's replies, in milliseconds; `None` if the server does not reply.
    replies: Option<u64>,
    /// Whether the server accepts connections.
    accepts: bool,
    accepts_since: u64,
    /// Time that the server needs to accept one connection. The server accepts connections one
    /// after the other, in the order of the requests.
    pass: Option<u64>,
    probed: usize,
    died: bool,
}

impl World {
    fn new(clients: usize, seed: u64) -> Self {
        let mut rails = Rails::new(seed);
        rails.update(&pairs(2), Time::from_millis(0));
        let clients = (0..clients as u64).map(|n| {
            let (seat, Choice { rail, .. }) = rails.take(None, false, Time::default()).unwrap();
            rails.connected(&seat, Time::default());
            Client {
                seat: Some(seat),
                on: rail,
                heard: 0,
                next_look: (n * 350 + seed * 50) % LOOK,
                moved: None,
            }
        });
        let clients = clients.collect();
        let mut world = Self {
            now: 0,
            rails,
            clients,
            probes: Vec::new(),
            busy: true,
            works: [true; 2],
            replies: Some(STEP),
            accepts: true,
            accepts_since: 0,
            pass: None,
            probed: 0,
            died: false,
        };
        world.run(3000);
        assert_eq!(world.probed, 0);
        world
    }

    fn run(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now += STEP;
            let now = Time::from_millis(self.now);
            let mut places = self.pass.map_or(usize::MAX, |pass| {
                // A real server also spends time on the requests that were abandoned while they
                // waited in its queue. The simulated server does not.
                usize::from(self.now % pass == 0)
            });
            for (probe, rail, begun, worked) in std::mem::take(&mut self.probes) {
                // After a busy time, the server accepts the requests on the first rail later than
                // those on the second rail.
                let waited = self.accepts_since + BACKLOG * (1 - number(rail.local) as u64);
                let waited = worked && self.accepts && self.now >= begun.max(waited) + CONNECT;
                let accepted = waited && places > 0;
                places -= usize::from(accepted);
                let limit = if worked { REFUSED } else { TCP };
                if worked && accepted {
                    self.rails.probed(probe, Probed::Connected, now);
                } else if self.now >= begun + limit {
                    self.rails.probed(probe, Probed::Failed, now);
                } else {
                    self.probes.push((probe, rail, begun, worked));
                }
            }
            for index in 0..self.clients.len() {
                self.client(index, now);
            }
            let mut views = self.rails.views(now);
            self.died |= views.any(|view| view.standing == Standing::Dead);
        }
    }

    fn client(&mut self, index: usize, now: Time) {
        let client = &mut self.clients[index];
        let replied = self.replies.is_some_and(|span| self.now % span == 0);
        if self.busy && replied && self.works[number(client.on.local)] {
            client.heard = self.now;
        }
        if self.now < client.next_look {
            return;
        }
        let heard = Time::from_millis(client.heard);
        let seat = client.seat.as_mut().unwrap();
        let again = self.rails.watch(seat, self.busy, heard, now);
        client.next_look = self.now + again.map_or(LOOK, |again| again.get().min(LOOK));
        while let Some((probe, rail)) = self.rails.probe(now) {
            self.probed += 1;
            let works = self.works[number(rail.local)];
            self.probes.push((probe, rail, self.now, works));
        }
        let client = &mut self.clients[index];
        let seat = client.seat.as_mut().unwrap();
        if self.rails.moves(seat, self.busy, heard, now).is_some() {
            let (seat, choice) = self.rails.take(client.seat.take(), false, now).unwrap();
            self.rails.connected(&seat, now);
            client.seat = Some(seat);
            client.on = choice.rail;
            client.heard = self.now;
            client.moved = Some(self.now);
        }
    }

    fn on(&self, rail: usize) -> usize {
        let on = |client: &&Client| number(client.on.local) == rail;
        self.clients.iter().filter(on).count()
    }

    fn nobody_moved(&self) -> bool {
        self.clients.iter().all(|client| client.moved.is_none())
    }

    fn all_live(&self) -> bool {
        let mut views = self.rails.views(Time::from_millis(self.now));
        views.all(|view| view.standing == Standing::Live)
    }
}

// Rails: silence is detected within eight seconds, even if acknowledgements say nothing about the
// peer. The result does not depend on when the driver checks the connections. Connections on the
// working rail stay on that rail. The failed rail is used again when it works.
#[test]
fn silence_is_noticed_where_acknowledgements_prove_nothing() {
    for clients in [1, 2, 4, 16] {
        for seed in 0..20 {
            let mut world = World::new(clients, seed);
            let silent = number(world.clients[0].on.local);
            let share = world.on(silent);
            world.works[silent] = false;
            let begin = world.now;
            world.run(6000);
            assert_eq!(world.on(silent), 0, "{clients} {seed}");
            let moved = world.clients.iter().filter_map(|client| client.moved);
            assert!(moved.clone().all(|at| at <= begin + 5500));
            assert_eq!(moved.count(), share);
            // One probe began before the rail worked again. This probe fails afterwards, but
            // another probe shows that the rail works.
            world.works[silent] = true;
            world.run(2 * MINUTE);
            assert!(world.all_live());
            assert_eq!(world.on(silent), clients / 2);
        }
    }
}

// Rails: while a server is slow, each rail is probed now and then. No connection ends, and no
// connection changes to another rail.
#[test]
fn a_slow_server_keeps_its_connections() {
    for (replies, most) in [(None, 7), (Some(2000), 21), (Some(5000), 15)] {
        let mut world = World::new(4, 3);
        world.replies = replies;
        world.run(MINUTE);
        assert!(world.nobody_moved() && !world.died);
        assert!((2..=2 * most).contains(&world.probed), "{}", world.probed);
        world.replies = Some(STEP);
        world.run(2000);
        // The rails are live, so connections may move to them without a pause.
        assert!(world.all_live());
    }
}

// Rails: if a server is too busy to accept connections, probes of all rails fail. So no rail is
// declared dead, even if each probe fails only at the time limit of TCP.
#[test]
fn a_server_that_accepts_nothing_keeps_its_connections() {
    for works in [true, false] {
        let mut world = World::new(4, 5);
        world.replies = None;
        world.accepts = false;
        world.works = [works; 2];
        world.run(MINUTE);
        assert!(world.nobody_moved() && !world.died);
        assert!(world.probed >= 4);
        world.replies = Some(STEP);
        world.accepts = true;
        world.works = [true; 2];
        world.run(MINUTE);
        assert!(world.nobody_moved() && !world.died && world.all_live());
    }
}

// Rails: a server accepts no connections for some time, and then accepts them again, first over one
// rail and then over the other. No rail counts as dead, however long this time is.
#[test]
fn a_server_that_accepts_again_keeps_its_connections() {
    for span in (1000..25_000).step_by(STEP as usize) {
        let mut world = World::new(4, span);
        world.replies = None;
        world.accepts = false;
        world.run(span);
        world.replies = Some(STEP);
        world.accepts = true;
        world.accepts_since = world.now;
        world.run(MINUTE / 4);
        assert!(
            world.nobody_moved() && !world.died && world.all_live(),
            "{span}"
        );
    }
}

// Rails: no rail counts as dead if the server accepts connections slowly, one after the other. No
// rail counts as dead if the server accepts no connection, but sends a reply now and then.
#[test]
fn a_server_that_is_slow_to_accept_keeps_its_connections() {
    for (pass, accepts) in (500..6000)
        .step_by(50)
        .map(|ms| (ms, true))
        .chain([(100, false)])
    {
        for replies in [None, Some(pass), Some(2000)] {
            let mut world = World::new(4, pass);
            world.replies = replies;
            world.accepts = accepts;
            world.pass = Some(pass);
            world.run(MINUTE);
            assert!(
                world.nobody_moved() && !world.died,
                "{pass} {accepts} {replies:?}"
            );
        }
    }
}

// Rails: a probe that has been stuck since an earlier outage says nothing about a later outage.
#[test]
fn a_probe_from_before_is_not_judged() {
    let mut world = World::new(2, 3);
    world.works = [false; 2];
    world.run(15_000);
    world.works = [true; 2];
    world.run(MINUTE);
    assert!(world.nobody_moved() && !world.died);
}

// Rails: idle connections, and calls that were just sent, do not cause a suspicion.
#[test]
fn only_calls_that_wait_make_silence_suspicious() {
    let mut world = World::new(4, 1);
    world.busy = false;
    world.run(MINUTE);
    assert_eq!(world.probed, 0);
    let at = Time::from_millis;
    let mut rails = Rails::new(3);
    rails.update(&pairs(2), at(0));
    let (mut seat, choice) = rails.take(None, false, at(0)).unwrap();
    // Only every second check finds a call in flight. So each of these calls was sent after the
    // previous check, and no call waits for long.
    for second in 1..60 {
        let (heard, now) = (at(1000 * second - 10), at(1000 * second));
        rails.watch(&mut seat, second % 2 == 0, heard, now);
    }
    for ms in [70_000, 70_700] {
        rails.watch(&mut seat, true, at(59_000), at(ms));
        assert_eq!(standing(&rails, choice.rail, at(ms)), Standing::Live);
    }
    rails.watch(&mut seat, true, at(59_000), at(70_750));
    assert_eq!(standing(&rails, choice.rail, at(70_750)), Standing::Doubted);
    rails.leave(seat);
}

// Rails: a rail is not suspected if no other rail is live, because the connection could not move to
// another rail.
#[test]
fn a_single_rail_is_not_suspected() {
    let at = Time::from_millis;
    for listed in [1, 2] {
        let mut rails = Rails::new(3);
        rails.update(&pairs(listed), at(0));
        let (mut seat, choice) = rails.take(None, false, at(0)).unwrap();
        if listed == 2 {
            let (other, _) = rails.take(None, false, at(0)).unwrap();
            rails.failed(&other, at(0));
            rails.leave(other);
        }
        for ms in (0..MINUTE).step_by(250) {
            assert_eq!(rails.watch(&mut seat, true, at(0), at(ms)), None);
            assert_eq!(standing(&rails, choice.rail, at(ms)), Standing::Live);
        }
        rails.leave(seat);
    }
}

// Rails: a message that arrives over a suspected rail clears the suspicion. If a probe of the rail
// fails after that, the failure has no effect.
#[test]
fn a_suspicion_ends_when_something_is_heard() {
    let at = Time::from_millis;
    let mut rails = Rails::new(3);
    rails.update(&pairs(2), at(0));
    let (mut seat, choice) = rails.take(None, false, at(0)).unwrap();
    for (ms, again) in [(0, 1500), (1000, 500), (1400, 250), (2000, 250)] {
        let found = rails.watch(&mut seat, true, at(0), at(ms));
        assert_eq!(found.unwrap().get(), again);
    }
    assert_eq!(standing(&rails, choice.rail, at(2000)), Standing::Doubted);
    let probes: Vec<_> = (0..2).map(|_| rails.probe(at(2000)).unwrap()).collect();
    assert_eq!(rails.moves(&mut seat, true, at(3100), at(3100)), None);
    for (probe, rail) in probes {
        rails.probed(probe, Probed::Failed, at(4100));
        let expected = match rail == choice.rail {
            true => Standing::Live,
            // A reply on one rail does not show that the server accepts connections on the other
            // rail, so the state of the other rail is `Doubted`.
            false => Standing::Doubted,
        };
        assert_eq!(standing(&rails, rail, at(4100)), expected);
    }
    rails.leave(seat);
}

// Rails: the loss of a connection on a suspected rail is a stronger sign of a fault than silence.
#[test]
fn a_loss_on_a_suspected_rail_has_others_kept_from_it() {
    let at = Time::from_millis;
    let mut rails = Rails::new(3);
    rails.update(&pairs(2), at(0));
    let (mut seat, choice) = rails.take(None, false, at(0)).unwrap();
    rails.watch(&mut seat, true, at(0), at(1000));
    rails.watch(&mut seat, true, at(0), at(2000));
    rails.doubted(&seat, at(2500));
    while let Some((probe, _)) = rails.probe(at(2500)) {
        rails.probed(probe, Probed::Connected, at(3000));
    }
    assert_eq!(
        standing(&rails, choice.rail, at(62_000)),
        Standing::Returning
    );
    assert_eq!(standing(&rails, choice.rail, at(77_500)), Standing::Live);
    rails.leave(seat);
}
