// SPDX-License-Identifier: GPL-2.0

//! The credits and limits of a responder: how many Calls a client may have in flight, and how many
//! resources these Calls may use.

use crate::responder_rig::granted;
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{
        Config,
        RngAlgorithm,
        TestRng,
        TestRunner, //
    }, //
};
use std::collections::VecDeque;
use xprtrdma_proto::{
    responder::{
        budget::{
            Budget,
            Share,
            Wait, //
        },
        grant::{
            Grant,
            GrantBounds,
            Overdrawn,
            Ticket, //
        },
    },
    Credits, //
};

const BOUNDS: GrantBounds = GrantBounds {
    least: 4,
    most: 32,
    reserved: 2,
    spare: 1,
};

/// The bounds of the server's driver.
const DRIVER: GrantBounds = GrantBounds {
    least: 8,
    most: 64,
    reserved: 8,
    spare: 16,
};

/// A connection whose driver has as many Receives as [`Grant`] requires, and one more. The Receive
/// of a Call is posted again when the Call is finished, and is counted before the next response. A
/// Call is finished immediately after its response, unless the test calls [`Served::hold`] after
/// the response.
struct Served {
    grant: Grant,
    tickets: Vec<Ticket>,
    /// Number of Receives that the connection has.
    receives: u32,
    /// Number of Receives that were posted again and are not counted yet.
    finished: u32,
    /// Number of answered Calls that are not finished, so that their Receives are not posted yet.
    held: u32,
}

impl Served {
    fn new(bounds: GrantBounds) -> Self {
        let mut served = Self {
            grant: Grant::new(bounds),
            tickets: Vec::new(),
            receives: 0,
            finished: 0,
            held: 0,
        };
        served.grow();
        served
    }

    /// Posts further Receives if the grant requires more than the connection has.
    fn grow(&mut self) {
        let more = (self.grant.receives() + 1).saturating_sub(self.receives);
        self.receives += more;
        self.grant.posted(more);
    }

    /// Returns the number of Receives that are posted.
    fn posted(&self) -> u32 {
        self.receives - self.tickets.len() as u32 - self.held
    }

    fn call(&mut self, requested: u32) -> Result<(), Overdrawn> {
        self.grant.received();
        let ticket = self.grant.begin(Some(Credits(requested)))?;
        self.tickets.push(ticket);
        self.grow();
        Ok(())
    }

    /// Takes the ticket of a Call, whose Receive is posted again after the response.
    fn ticket(&mut self, at: usize) -> Ticket {
        self.grant.posted(std::mem::replace(&mut self.finished, 1));
        self.tickets.swap_remove(at)
    }

    fn answer(&mut self) -> u32 {
        let ticket = self.ticket(self.tickets.len() - 1);
        let granted = self.grant.answer(ticket).expect("a grant");
        granted.credits().0
    }

    fn refuse(&mut self) -> u32 {
        let ticket = self.ticket(self.tickets.len() - 1);
        self.grant.refuse(ticket).credits().0
    }

    /// Leaves the last answered Call unfinished.
    fn hold(&mut self) {
        self.finished -= 1;
        self.held += 1;
    }

    /// Finishes a Call that was left unfinished.
    fn finish(&mut self) {
        self.held -= 1;
        self.finished += 1;
    }

    /// Ends three intervals with [`Grant::pause`]. If Calls arrived only in the first interval, the
    /// grant is then halved once.
    fn rest(&mut self) {
        (0..3).for_each(|_| self.grant.pause());
    }

    /// Sends `calls` Calls, and then replies to all of them. Returns the last grant.
    fn burst(&mut self, calls: u32) -> u32 {
        (0..calls).for_each(|_| self.call(100).expect("granted"));
        (0..calls).map(|_| self.answer()).last().expect("an answer")
    }
}

// covers: RSP-140, RSP-148
#[test]
fn a_grant_grows_when_all_of_it_is_used_and_shrinks_at_rest() {
    let mut served = Served::new(BOUNDS);
    assert_eq!(served.grant.granted(), 1);
    // Single Calls do not use the whole grant, so the grant does not grow further.
    for _ in 0..20 {
        assert_eq!(served.burst(1), 4);
    }
    assert_eq!(served.burst(3), 4);
    assert_eq!(served.burst(4), 8);
    assert_eq!(served.burst(7), 8);
    assert_eq!(served.burst(8), 16);
    assert_eq!(served.burst(16), 32);
    assert_eq!(served.burst(32), 32);
    for expected in [16, 8, 4, 4, 4] {
        served.rest();
        assert_eq!(served.burst(1), expected);
    }
    // A client without Calls loses half of its grant in each further interval. A client with one
    // Call in each interval keeps its grant.
    assert_eq!(
        [4, 8, 16, 32].map(|calls| served.burst(calls)).last(),
        Some(&32)
    );
    (0..20).for_each(|_| {
        served.grant.pause();
        assert_eq!(served.burst(1), 32);
    });
    (0..5).for_each(|_| served.grant.pause());
    assert_eq!(served.burst(1), 4);
    // A client whose Calls are not answered, or whose responses are not sent, is not idle.
    served.burst(4);
    served.call(100).unwrap();
    (0..20).for_each(|_| served.grant.pause());
    assert_eq!(served.answer(), 8);
    let unsent = served.grant.wait();
    (0..20).for_each(|_| served.grant.pause());
    served.grant.sent(unsent);
    assert_eq!(served.burst(1), 8);
    // At least one credit is granted, even if the configured limits are zero.
    let none = GrantBounds {
        least: 0,
        most: 0,
        ..BOUNDS
    };
    assert_eq!(Served::new(none).burst(1), 1);
}

#[test]
fn a_grant_grows_for_many_calls_one_at_a_time() {
    let mut served = Served::new(BOUNDS);
    let extra = BOUNDS.reserved + BOUNDS.spare;
    // When a Call raises the grant, the count of Calls starts again with this Call as the first
    // one. So the next rise needs 63 further Calls, and not 64.
    for (calls, expected) in [(32, 8), (63, 16), (127, 32), (1000, 32)] {
        let before = served.grant.receives();
        for _ in 1..calls {
            served.burst(1);
        }
        assert_eq!(served.grant.receives(), before);
        assert_eq!(served.burst(1), expected);
        assert_eq!(served.grant.receives(), expected + extra);
    }
    // Single Calls do not use the whole grant, and fewer than 32 of them arrive between two pauses.
    // So the grant does not grow further.
    let mut slow = Served::new(BOUNDS);
    for _ in 0..10 {
        (0..31).for_each(|_| assert_eq!(slow.burst(1), 4));
        slow.grant.pause();
    }
}

// covers: RSP-035, RSP-147
#[test]
fn a_client_gets_no_more_than_it_asks_for() {
    let mut served = Served::new(BOUNDS);
    for (requested, expected) in [(3, 3), (1, 1), (0, 1), (u32::MAX, 4), (2, 2)] {
        served.call(requested).unwrap();
        assert_eq!(served.answer(), expected);
    }
}

// covers: RSP-141, RSP-173
#[test]
fn receives_are_posted_before_the_grant_that_tells_of_them() {
    let mut grant = Grant::new(BOUNDS);
    assert_eq!(grant.receives(), 4 + 2 + 1);
    grant.posted(3);
    // Two of the three posted Receives are reserved for Replies to the server's Calls. Only the
    // third Receive, and the Receives that are posted while a Call is in process, can be granted.
    for (more, expected) in [(1, 1), (2, 2), (2, 3), (2, 4), (2, 4)] {
        grant.received();
        let ticket = grant.begin(None).unwrap();
        grant.posted(more);
        assert_eq!(grant.answer(ticket).unwrap().credits(), Credits(expected));
    }
}

#[test]
fn receives_that_complete_before_they_are_counted_are_not_granted_twice() {
    let mut grant = Grant::new(GrantBounds {
        spare: 16,
        ..BOUNDS
    });
    grant.posted(4);
    // The client ignores its credits. Six Receives complete, of which four were counted.
    let mut calls: Vec<Ticket> = (0..6)
        .map(|_| {
            grant.received();
            grant.begin(None).unwrap()
        })
        .collect();
    // The other two Receives are counted now, after their completion. So no posted Receive is left.
    // Only the five Calls in process back credits, and two of these five credits are reserved.
    grant.posted(2);
    let granted = grant.answer(calls.remove(0)).unwrap();
    assert_eq!(granted.credits(), Credits(5 - 2));
}

// covers: RSP-145
#[test]
fn nothing_is_granted_that_no_receive_waits_for() {
    let mut grant = Grant::new(BOUNDS);
    grant.posted(3);
    grant.received();
    let ticket = grant.begin(None).unwrap();
    assert_eq!(grant.answer(ticket).unwrap_err(), Overdrawn::Starved);
}

#[test]
fn an_error_needs_no_receive_of_calls_that_are_not_finished() {
    let mut served = Served::new(DRIVER);
    assert_eq!(served.burst(1), 8);
    for _ in 0..=DRIVER.spare {
        assert_eq!(served.burst(1), 8);
        served.hold();
    }
    // The Receives of the unfinished Calls are missing, so a Reply grants less. An error repeats
    // the last grant.
    served.call(100).unwrap();
    assert_eq!(served.refuse(), 8);
    assert_eq!(served.burst(1), 7);
}

#[test]
fn an_error_repeats_the_last_grant() {
    let mut served = Served::new(BOUNDS);
    // Before the first response the client has one credit.
    served.call(100).unwrap();
    assert_eq!(served.refuse(), 1);
    assert_eq!(served.burst(1), 4);
    served.rest();
    served.call(2).unwrap();
    assert_eq!(served.refuse(), 4);
}

// covers: RSP-143, RSP-144
#[test]
fn a_client_above_every_grant_loses_its_connection() {
    let mut served = Served::new(BOUNDS);
    // Before the first response the client may have one Call in flight, and one more Call that the
    // limits tolerate beyond the client's credits.
    served.call(100).unwrap();
    served.call(100).unwrap();
    assert_eq!(served.call(100), Err(Overdrawn::Overrun));
    let mut served = Served::new(BOUNDS);
    assert_eq!(served.burst(1), 4);
    for _ in 0..5 {
        served.call(100).unwrap();
    }
    assert_eq!(served.call(100), Err(Overdrawn::Overrun));
    assert_eq!(served.grant.in_process(), 5);
}

// covers: RSP-142
#[test]
fn a_smaller_grant_holds_when_the_calls_of_the_larger_one_have_come() {
    let mut served = Served::new(GrantBounds { spare: 0, ..BOUNDS });
    assert_eq!(served.burst(1), 4);
    served.call(4).unwrap();
    // The client has received a grant of four credits. So when the client requests only one credit,
    // three more Calls may already be in flight.
    served.call(1).unwrap();
    assert_eq!(served.answer(), 1);
    served.call(1).unwrap();
    served.call(1).unwrap();
    // All Calls for which the client had credits have arrived, so one more Call is refused.
    assert_eq!(served.call(1), Err(Overdrawn::Overrun));
    // If the client sends one Call more than it has credits for, this Call is refused even if the
    // grant grows again before the Call arrives.
    let mut served = Served::new(GrantBounds { spare: 0, ..BOUNDS });
    assert_eq!(served.burst(1), 4);
    served.call(1).unwrap();
    assert_eq!(served.answer(), 1);
    served.call(2).unwrap();
    assert_eq!(served.answer(), 2);
    served.call(2).unwrap();
    served.call(2).unwrap();
    assert_eq!(served.call(2), Err(Overdrawn::Overrun));
}

#[test]
fn replies_to_our_calls_find_a_receive_while_a_grant_shrinks() {
    let mut served = Served::new(BOUNDS);
    for calls in [1, 4, 8, 16, 32] {
        served.burst(calls);
    }
    assert_eq!(
        (served.grant.granted(), served.posted()),
        (32, 32 + 2 + 1 + 1)
    );
    // Ten more Calls are in flight when a response grants only one credit.
    for _ in 0..22 {
        served.call(1).unwrap();
    }
    assert_eq!(served.answer(), 1);
    // A Reply to a Call of the server uses a Receive only until the Reply is handled.
    assert!(served.posted() >= 10 + 2);
}

// covers: RSP-107
#[test]
fn calls_without_an_answer_end_the_connection_at_half_of_the_grant() {
    let mut served = Served::new(BOUNDS);
    assert_eq!(served.burst(1), 4);
    let mut lose = || {
        served.call(100).unwrap();
        let ticket = served.ticket(0);
        served.grant.drop_unanswered(ticket)
    };
    assert_eq!(lose(), Ok(()));
    assert_eq!(lose(), Err(Overdrawn::Lost));
    // If this Call were dropped without a response, the client would wait for its only credit for
    // ever. So the connection ends.
    let mut served = Served::new(BOUNDS);
    served.call(100).unwrap();
    let ticket = served.ticket(0);
    assert_eq!(served.grant.drop_unanswered(ticket), Err(Overdrawn::Lost));
}

#[test]
fn a_smaller_grant_ends_the_connection_if_all_of_it_is_lost() {
    let lost = |drops: usize, requested| {
        let mut served = Served::new(BOUNDS);
        assert_eq!([1, 4, 8].map(|calls| served.burst(calls)).last(), Some(&16));
        for _ in 0..drops {
            served.call(100).unwrap();
            let ticket = served.ticket(0);
            assert_eq!(served.grant.drop_unanswered(ticket), Ok(()));
        }
        served.call(requested).unwrap();
        let ticket = served.ticket(0);
        let granted = served.grant.answer(ticket);
        granted.map(|granted| granted.credits().0)
    };
    assert_eq!(lost(0, 1), Ok(1));
    assert_eq!(lost(1, 2), Ok(2));
    assert_eq!(lost(1, 1), Err(Overdrawn::Lost));
    assert_eq!(lost(7, 100), Ok(16));
    assert_eq!(lost(7, 8), Ok(8));
    assert_eq!(lost(7, 7), Err(Overdrawn::Lost));
    // Two of eight credits are lost. The grant of an idle client shrinks to five credits but not to
    // four, because half of a grant of four credits would be lost.
    let mut served = Served::new(BOUNDS);
    for calls in [1, 4] {
        served.burst(calls);
    }
    for _ in 0..2 {
        served.call(100).unwrap();
        let ticket = served.ticket(0);
        assert_eq!(served.grant.drop_unanswered(ticket), Ok(()));
    }
    served.rest();
    served.rest();
    assert_eq!(served.burst(1), 5);
}

/// The events on a connection with an honest client.
#[derive(Clone, Copy, Debug)]
enum Step {
    Send,
    Arrive,
    /// The server answers one of the Calls. The two flags say whether the answer is an error, and
    /// whether the Call stays unfinished until a `Finish` follows.
    Answer(u8, bool, bool),
    Finish,
    Heard,
    Rest,
    Ask(u32),
    /// The server sends a Call to the client. `Replied` means that the Reply to this Call arrives.
    Ours,
    Replied,
    /// The send queue has no space until `Room` follows.
    Full,
    Room,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Send),
        5 => Just(Step::Arrive),
        4 => (any::<u8>(), any::<bool>(), any::<bool>())
            .prop_map(|(at, refuse, hold)| Step::Answer(at, refuse, hold)),
        1 => Just(Step::Finish),
        4 => Just(Step::Heard),
        1 => Just(Step::Rest),
        1 => (0u32..40).prop_map(Step::Ask),
        1 => Just(Step::Ours),
        1 => Just(Step::Replied),
        1 => Just(Step::Full),
        2 => Just(Step::Room),
    ]
}

#[test]
fn an_honest_client_always_finds_a_receive_and_never_overruns() {
    let bounds =
        (1u32..6, 1u32..40, 0u32..3, 0u32..4).prop_map(|(least, most, reserved, spare)| {
            GrantBounds {
                least,
                most,
                reserved,
                spare,
            }
        });
    let bounds = prop_oneof![4 => bounds, 1 => Just(DRIVER)];
    let config = Config {
        cases: 3_000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&(bounds, vec(step(), 0..400)), |(bounds, steps)| {
            let mut served = Served::new(bounds);
            let (mut calls, mut answers) = (VecDeque::new(), VecDeque::new());
            let (mut unsent, mut full) = (VecDeque::new(), false);
            let (mut known, mut in_flight, mut asked, mut ours) = (1, 0, 8, 0);
            for step in steps {
                match step {
                    Step::Send if in_flight < known => {
                        in_flight += 1;
                        calls.push_back(asked);
                        // The Receives that are reserved for Replies to the server's Calls are not
                        // used for the client's Calls.
                        prop_assert!(served.posted() >= bounds.reserved + calls.len() as u32);
                    }
                    Step::Arrive => {
                        if let Some(asked) = calls.pop_front() {
                            prop_assert_eq!(served.call(asked), Ok(()));
                        }
                    }
                    Step::Answer(at, refuse, hold) if !served.tickets.is_empty() => {
                        let ticket = served.ticket(usize::from(at) % served.tickets.len());
                        let answer = if refuse {
                            Ok(served.grant.refuse(ticket))
                        } else {
                            served.grant.answer(ticket)
                        };
                        let grant = answer.expect("Receives are posted").credits().0;
                        prop_assert!(grant >= 1 && grant <= bounds.most.max(bounds.least));
                        if hold && served.held < bounds.spare {
                            served.hold();
                        }
                        // An error message does not change the number of credits that the client
                        // may use.
                        let answer = (!refuse).then_some(grant);
                        if served.grant.has_unsent() || full {
                            unsent.push_back((served.grant.wait(), answer));
                        } else {
                            answers.push_back(answer);
                        }
                    }
                    Step::Finish if served.held > 0 => served.finish(),
                    Step::Full => full = true,
                    Step::Room => {
                        full = false;
                        for (waited, answer) in unsent.drain(..) {
                            served.grant.sent(waited);
                            answers.push_back(answer);
                        }
                    }
                    Step::Heard => {
                        if let Some(grant) = answers.pop_front() {
                            in_flight -= 1;
                            known = grant.unwrap_or(known);
                        }
                    }
                    Step::Rest => served.rest(),
                    Step::Ask(credits) => asked = credits,
                    Step::Ours if ours < bounds.reserved => ours += 1,
                    Step::Replied if ours > 0 => {
                        // The Receive is posted again when the Reply has been handled, and stays
                        // counted as posted.
                        ours -= 1;
                        prop_assert!(served.posted() >= bounds.reserved + calls.len() as u32);
                    }
                    Step::Send | Step::Answer(..) | Step::Finish | Step::Ours | Step::Replied => {}
                }
            }
            Ok(())
        })
        .unwrap();
}

// covers: RSP-153
#[test]
fn a_client_that_takes_no_answer_is_overrun() {
    let bounds = GrantBounds {
        least: 8,
        most: 8,
        reserved: 0,
        spare: 2,
    };
    let mut served = Served::new(bounds);
    assert_eq!(served.burst(1), 8);
    // The client sends Calls, but the send queue has no space for the responses. The grant limits
    // the number of waiting responses.
    let mut unsent = Vec::new();
    for _ in 0..10 {
        assert_eq!(served.call(8), Ok(()));
        assert_eq!(served.answer(), 8);
        unsent.push(served.grant.wait());
    }
    assert!(served.grant.has_unsent());
    assert_eq!(served.call(8), Err(Overdrawn::Overrun));
    // Exactly one response has been posted.
    served.grant.sent(unsent.remove(0));
    assert_eq!(served.call(8), Ok(()));
    assert_eq!(served.call(8), Err(Overdrawn::Overrun));
    unsent.into_iter().for_each(|each| served.grant.sent(each));
    assert!(!served.grant.has_unsent());
    assert_eq!(served.call(8), Ok(()));
}

#[test]
fn a_right_to_answer_says_what_it_grants() {
    assert_eq!(granted(7).credits(), Credits(7));
}

// covers: RSP-200
#[test]
fn pages_are_bounded_for_one_connection_and_for_all() {
    let mut budget = Budget::new(100, 90);
    let (mut one, mut other) = (Share::new(40, 1), Share::new(80, 1));
    let first = budget.take(&mut one, 30).unwrap();
    assert_eq!(budget.take(&mut one, 11).unwrap_err(), Wait::Share);
    // If a connection already holds pages, the number of pages that it holds must not exceed the
    // number of pages that remain free.
    let mut half = Share::new(80, 1);
    let some = budget.take(&mut half, 10).unwrap();
    assert_eq!(budget.take(&mut half, 31).unwrap_err(), Wait::Share);
    budget.give_back(&mut half, some);
    let second = budget.take(&mut one, 10).unwrap();
    assert_eq!((one.pages(), budget.free()), (40, 60));
    assert_eq!(budget.take(&mut one, 1).unwrap_err(), Wait::Share);
    assert!(budget.take(&mut one, 0).is_ok());
    // Another client can take pages as long as enough pages are free.
    assert_eq!(budget.take(&mut other, 61).unwrap_err(), Wait::Budget);
    assert_eq!((other.pages(), budget.free()), (0, 60));
    let third = budget.take(&mut other, 60).unwrap();
    assert_eq!(third.count(), 60);
    budget.give_back(&mut one, first);
    assert_eq!((one.pages(), budget.free()), (10, 30));
    // A Call that needs more pages than its connection's share is processed only while the
    // connection has no other Call.
    assert_eq!(budget.take(&mut one, 50).unwrap_err(), Wait::Share);
    budget.give_back(&mut one, second);
    budget.give_back(&mut other, third);
    let large = budget.take(&mut one, 90).unwrap();
    assert_eq!(budget.take(&mut one, 1).unwrap_err(), Wait::Share);
    budget.give_back(&mut one, large);
    let some = budget.take(&mut one, 40).unwrap();
    assert_eq!(budget.take(&mut one, 10).unwrap_err(), Wait::Share);
    budget.give_back(&mut one, some);
}

#[test]
fn the_longest_call_finds_its_pages_when_no_other_holds_any() {
    let (mut budget, mut share) = (Budget::new(8, 64), Share::new(4, 1));
    let pages = budget.take(&mut share, 64).unwrap();
    assert_eq!(budget.take(&mut share, 1).unwrap_err(), Wait::Share);
    budget.give_back(&mut share, pages);
    assert_eq!(budget.free(), 64);
}

// covers: RSP-072
#[test]
fn no_more_reads_are_under_way_than_both_ends_can_have() {
    let mut share = Share::new(1, 2);
    assert!(share.may_read(1) && share.may_read(2));
    share.begin_reads(1);
    assert!(share.may_read(1) && !share.may_read(2));
    share.begin_reads(1);
    assert!(!share.may_read(1));
    share.end_reads(1);
    assert!(share.may_read(1));
    share.end_reads(1);
    // A Call that needs more RDMA Reads than the limit allows may still post its Reads if no other
    // Read is in flight.
    assert!(share.may_read(3));
    share.begin_reads(3);
    assert!(!share.may_read(1));
    share.end_reads(3);
    assert!(share.may_read(1));
    assert!(!Share::new(1, 0).may_read(1));
}

#[test]
fn connections_that_take_all_they_can_leave_pages_for_the_next() {
    let mut budget = Budget::new(4096, 257);
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut share = Share::new(4096, 16);
        while let Ok(pages) = budget.take(&mut share, 16) {
            held.push(pages);
        }
        // This connection must return some of the pages that it holds before it gets more pages.
        assert_eq!(budget.take(&mut share, 16).unwrap_err(), Wait::Share);
        assert!(budget.free() >= 16);
    }
    let mut honest = Share::new(4096, 16);
    let mut pages = budget.take(&mut honest, 16).unwrap();
    // Pages that the reply does not need are returned to the budget before the reply is sent.
    let part = pages.split(6).unwrap();
    assert!(pages.split(11).is_none());
    budget.give_back(&mut honest, pages);
    assert_eq!((honest.pages(), part.count()), (6, 6));
    let free = budget.free();
    budget.give_back(&mut honest, part);
    assert_eq!((honest.pages(), budget.free()), (0, free + 6));
}

#[test]
fn an_address_with_many_connections_leaves_pages_for_others() {
    let mut budget = Budget::new(4096, 257);
    // All these connections have the same client address. Each connection requests pages for its
    // first Call.
    let mut calls = |held: u32, connections| {
        (0..connections).fold(held, |held, _| {
            let mut share = Share::new(1024, 16);
            match budget.leaves(held, 2048, 64) {
                true => held + budget.take(&mut share, 64).unwrap().count(),
                false => held,
            }
        })
    };
    assert_eq!(calls(0, 128), 2048);
    // All connections of one address together hold at most as many pages as remain free. So the
    // second address gets half of the remaining pages, and the third address gets half of the rest.
    assert_eq!(calls(0, 128), 1024);
    assert_eq!(calls(0, 128), 512);
    assert_eq!(budget.free(), 512);
    // The first Call from an address is admitted even if it needs more pages than the limit for the
    // address, or more pages than are free.
    assert!(budget.leaves(0, 10, 64) && budget.leaves(0, 10, 513));
    assert!(budget.leaves(1, 65, 64) && !budget.leaves(1, 64, 64));
    assert!(budget.leaves(1, 4096, 255) && !budget.leaves(1, 4096, 256));
    for most in [0, 4096, u32::MAX] {
        assert!(!budget.leaves(1, most, 513) && !budget.leaves(1, most, u32::MAX));
    }
}

#[test]
fn answers_that_wait_leave_in_the_order_of_their_grants() {
    let mut grant = Grant::new(GrantBounds {
        least: 4,
        most: 4,
        reserved: 0,
        spare: 0,
    });
    grant.posted(4);
    for _ in 0..3 {
        assert!(!grant.has_unsent());
        let (first, second) = (grant.wait(), grant.wait());
        assert!(grant.may_send(&first) && !grant.may_send(&second));
        // The first two responses are each sent while the next response already waits.
        grant.sent(first);
        let third = grant.wait();
        assert!(grant.may_send(&second) && !grant.may_send(&third));
        grant.sent(second);
        assert!(grant.may_send(&third) && grant.has_unsent());
        grant.sent(third);
    }
}
