// SPDX-License-Identifier: GPL-2.0

//! The order in which connections get memory while memory is short.

use std::collections::VecDeque;
use xprtrdma_proto::{
    responder::{
        budget::{
            Budget,
            Pages,
            Share,
            Wait, //
        },
        turns::{
            Member,
            Turns,
            LAPSE, //
        }, //
    },
    time::{
        Millis,
        Time, //
    }, //
};

/// Number of pages that all connections together may hold.
const ALL: u32 = 32768;
/// Number of pages of the longest Call.
const LONGEST: u32 = 2050;

/// A connection. Its client always has Calls that wait.
struct Connection {
    address: u64,
    /// Number of pages of each of its Calls.
    pages: u32,
    /// Maximum number of Calls that the connection has in process.
    calls: usize,
    share: Share,
    held: VecDeque<Pages>,
    /// Number of Calls that got their pages.
    served: u32,
    has_ended: bool,
}

/// A server that handles connections as the driver does.
struct Server {
    budget: Budget,
    turns: Turns<Vec<Option<Member<usize>>>>,
    connections: Vec<Connection>,
    now: Time,
}

impl Server {
    fn new() -> Self {
        Self {
            budget: Budget::new(ALL, LONGEST),
            turns: Turns::new((0..256).map(|_| None).collect()),
            connections: Vec::new(),
            now: Time::from_millis(1),
        }
    }

    /// Adds a connection whose client makes up to `calls` Calls of `pages` pages at a time.
    fn connect(&mut self, address: u64, pages: u32, calls: usize) -> usize {
        let number = self.turns.join(address, self.connections.len()).unwrap();
        assert_eq!(number, self.connections.len());
        self.connections.push(Connection {
            address,
            pages,
            calls,
            share: Share::new(ALL / 4, 16),
            held: VecDeque::new(),
            served: 0,
            has_ended: false,
        });
        number
    }

    /// Returns the number of pages that the connections of an address hold together.
    fn held(&self, address: u64) -> u32 {
        let of_address = self
            .connections
            .iter()
            .filter(|each| each.address == address);
        of_address.map(|each| each.share.pages()).sum()
    }

    /// Requests pages for the next Call of a connection. Returns the connections to wake.
    fn take(&mut self, number: usize) -> (Result<(), Wait>, Vec<usize>) {
        let address = self.connections[number].address;
        let held = self.held(address);
        let connection = &mut self.connections[number];
        let (pages, share) = (connection.pages, &mut connection.share);
        let wait = self.budget.wait(share, (held, ALL / 2), pages);
        let budget = &mut self.budget;
        let take = || match budget.leaves(held, ALL / 2, pages) {
            true => budget.take(share, pages),
            false => Err(Wait::Address),
        };
        let (taken, lost) = self.turns.take(number, wait, self.now, take);
        let wake = match lost {
            true => self.turns.next(address, self.now).copied().collect(),
            false => Vec::new(),
        };
        let taken = taken.map(|pages| {
            connection.served += 1;
            connection.held.push_back(pages);
        });
        (taken, wake)
    }

    /// Processes the waiting Calls of a connection, and then of the connections that were woken.
    fn pump(&mut self, number: usize) {
        let mut queue = VecDeque::from([number]);
        for _ in 0..100_000 {
            let Some(number) = queue.pop_front() else {
                return;
            };
            let connection = &self.connections[number];
            if connection.has_ended {
                continue;
            }
            while self.connections[number].held.len() < self.connections[number].calls {
                let (taken, wake) = self.take(number);
                queue.extend(wake);
                if taken.is_err() {
                    break;
                }
            }
        }
        panic!("connections wake each other for ever");
    }

    /// Finishes the oldest Call of a connection. The same thread then processes the waiting Calls
    /// of the connection. The other connections, which are woken, come later.
    fn finish(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        let Some(pages) = connection.held.pop_front() else {
            return;
        };
        self.budget.give_back(&mut connection.share, pages);
        let address = connection.address;
        let woken: Vec<_> = self.turns.next(address, self.now).copied().collect();
        self.pump(number);
        woken.into_iter().for_each(|other| self.pump(other));
    }

    /// Every connection tries again, as it does ten times in a second.
    fn retry(&mut self) {
        self.now = self.now.after(Millis::new(100));
        (0..self.connections.len()).for_each(|number| self.pump(number));
    }

    /// Finishes one Call of every connection, one after the other. Then each connection tries
    /// again.
    fn round(&mut self) {
        for number in 0..self.connections.len() {
            self.finish(number);
        }
        self.retry();
    }

    fn served(&self) -> Vec<u32> {
        self.connections.iter().map(|each| each.served).collect()
    }

    fn served_of<const N: usize>(&self, connections: [usize; N]) -> [u32; N] {
        connections.map(|number| self.connections[number].served)
    }
}

// covers: RSP-202
#[test]
fn long_calls_of_many_addresses_starve_no_other() {
    let mut server = Server::new();
    // The Calls of these connections leave two pages free. Each connection has another Call that
    // waits.
    for address in 0..16 {
        server.connect(address, LONGEST - 34 * u32::from(address == 15), 1);
        server.pump(address as usize);
    }
    assert_eq!(server.budget.free(), 2);
    let honest = server.connect(16, 17, 1);
    let long = server.connect(17, LONGEST, 1);
    server.pump(honest);
    server.pump(long);
    assert_eq!(
        (server.connections[honest].served, server.turns.waiting()),
        (0, 2)
    );
    // One Call returns its pages. Its own next Call must wait.
    server.finish(0);
    assert_eq!(server.served_of([honest, 0]), [1, 1]);
    server.finish(1);
    assert_eq!(server.served_of([long, 1]), [1, 1]);
    // From now on all connections are served in turn.
    (0..32).for_each(|_| server.round());
    let served = server.served();
    assert!(served.iter().all(|calls| *calls >= 30), "{served:?}");
}

#[test]
fn two_connections_of_an_address_starve_no_third() {
    let mut server = Server::new();
    let greedy = [server.connect(0, 256, 64), server.connect(0, 256, 64)];
    greedy.into_iter().for_each(|number| server.pump(number));
    assert_eq!(server.held(0), ALL / 2);
    let third = server.connect(0, 256, 64);
    // A connection of another address does not wait for the first address.
    let other = server.connect(1, 256, 4);
    server.pump(third);
    server.pump(other);
    assert_eq!(server.served_of([third, other]), [0, 4]);
    for _ in 0..3 {
        greedy.into_iter().for_each(|number| server.finish(number));
    }
    assert!(
        server.connections[third].served >= 1,
        "{:?}",
        server.served()
    );
    (0..200).for_each(|_| server.round());
    let served = server.served();
    assert!(served[..3].iter().all(|calls| *calls >= 150), "{served:?}");
}

#[test]
fn an_overload_of_honest_clients_is_shared_among_them() {
    for (count, pages) in [(160, 258), (32, LONGEST), (64, 1026)] {
        let mut server = Server::new();
        for address in 0..count {
            let number = server.connect(address, pages, 8);
            server.pump(number);
        }
        // A client that needs less memory waits in the same order.
        let small = server.connect(count, 17, 8);
        server.pump(small);
        (0..64).for_each(|_| server.round());
        let served = server.served();
        let (least, most) = (
            *served.iter().min().unwrap(),
            served[..small].iter().max().unwrap(),
        );
        assert!(least >= 16 && most - least <= 64, "{served:?}");
    }
}

#[test]
fn small_calls_do_not_take_the_pages_of_a_long_one() {
    let mut server = Server::new();
    for address in 0..64 {
        let number = server.connect(address, 600, 1);
        server.pump(number);
    }
    let long = server.connect(64, LONGEST, 1);
    server.pump(long);
    let mut finished = 0;
    while server.connections[long].served == 0 {
        server.finish(finished);
        finished += 1;
        assert!(finished <= 16);
    }
}

#[test]
fn a_connection_that_does_not_use_its_turn_delays_no_other_for_long() {
    let mut server = Server::new();
    for address in 0..16 {
        server.connect(address, 2048, 1);
        server.pump(address as usize);
    }
    assert_eq!(server.budget.free(), 0);
    let dead = server.connect(16, LONGEST, 1);
    server.pump(dead);
    server.connections[dead].has_ended = true;
    let (sibling, next) = (server.connect(16, 17, 1), server.connect(17, 17, 1));
    server.pump(sibling);
    server.pump(next);
    server.finish(0);
    server.retry();
    assert_eq!(server.served_of([sibling, next]), [0, 0]);
    let silent_since = server.now;
    while server.now.since(silent_since) <= LAPSE {
        server.retry();
    }
    // Now the others are served in the order in which they waited.
    assert_eq!(server.served_of([next, 0]), [1, 1]);
    server.finish(1);
    assert_eq!(server.served_of([sibling, 0]), [1, 2]);
    // The silent connection keeps its place, and leaves the order when it ends.
    server.connections[dead].has_ended = false;
    server.retry();
    assert_eq!(
        (server.connections[1].served, server.turns.waiting()),
        (1, 2)
    );
    assert!(server.turns.next(16, server.now).eq(&[1, dead]));
    assert_eq!(server.turns.leave(dead), Some(dead));
    assert_eq!(
        (server.turns.leave(dead), server.turns.waiting()),
        (None, 1)
    );
}

#[test]
fn a_connection_at_its_own_limit_delays_no_other() {
    let mut server = Server::new();
    let one = server.connect(0, 4096, 3);
    server.pump(one);
    assert_eq!(server.connections[one].served, 2);
    assert_eq!(
        (server.take(one).0, server.turns.waiting()),
        (Err(Wait::Share), 0)
    );
    let (two, three) = (server.connect(0, 4096, 3), server.connect(0, 4096, 1));
    server.pump(two);
    server.pump(three);
    assert_eq!((server.held(0), server.turns.waiting()), (ALL / 2, 1));
    // The connection that returns pages does not get them again.
    server.finish(two);
    assert_eq!(server.served_of([two, three]), [2, 1]);
    // An address at its limit delays no other address.
    assert_eq!(
        (server.take(two).0, server.turns.waiting()),
        (Err(Wait::Address), 1)
    );
    let other = server.connect(1, 2048, 1);
    server.pump(other);
    assert_eq!(server.connections[other].served, 1);
}

#[test]
fn a_connection_that_stops_waiting_lets_the_next_one_go_on() {
    let mut server = Server::new();
    for address in 0..16 {
        server.connect(address, 2048, 1);
        server.pump(address as usize);
    }
    let (first, sibling) = (server.connect(16, LONGEST, 1), server.connect(16, 17, 1));
    server.pump(first);
    server.pump(sibling);
    assert_eq!(
        (server.take(sibling).0, server.turns.waiting()),
        (Err(Wait::Address), 2)
    );
    assert!(server.turns.next(16, server.now).eq(&[first]));
    assert!(server.turns.stop_waiting(first));
    assert!(server.turns.next(16, server.now).eq(&[sibling]));
    server.pump(sibling);
    server.finish(0);
    assert_eq!(server.served_of([sibling, 0]), [1, 1]);
}

#[test]
fn the_list_of_connections_grows_and_shrinks() {
    let none = |len: usize| (0..len).map(|_| None).collect::<Vec<_>>();
    let mut turns = Turns::new(none(0));
    assert_eq!(turns.join(1, 'a'), Err('a'));
    assert!(turns.move_to(none(2)).is_empty());
    assert_eq!((turns.join(1, 'a'), turns.join(2, 'b')), (Ok(0), Ok(1)));
    assert_eq!((turns.join(3, 'c'), turns.capacity()), (Err('c'), 2));
    let now = Time::from_millis(7);
    let (taken, lost) = turns.take(1, Wait::Budget, now, || Err(Wait::Budget));
    assert_eq!(
        (taken.unwrap_err(), lost, turns.waiting()),
        (Wait::Budget, false, 1)
    );
    assert_eq!(turns.move_to(none(4)).len(), 2);
    assert!(turns.next(2, now).eq(&['b']));
    assert_eq!(turns.leave(0), Some('a'));
    // The list does not become shorter than its connections need.
    assert_eq!((turns.move_to(none(1)).len(), turns.capacity()), (1, 4));
    assert!(turns.stop_waiting(1) && !turns.stop_waiting(1) && turns.waiting() == 0);
    assert_eq!(turns.leave(1), Some('b'));
    assert_eq!((turns.move_to(none(0)).len(), turns.capacity()), (4, 0));
    assert_eq!((turns.leave(1), turns.stop_waiting(1)), (None, false));
    let mut budget = Budget::of(1);
    let (taken, _) = turns.take(1, Wait::Budget, now, || {
        budget.take(&mut Share::new(1, 1), 1)
    });
    assert_eq!(taken.unwrap().count(), 1);
}
