// SPDX-License-Identifier: GPL-2.0

//! Credits, posted Receives and patience, against simple models.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

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
use xprtrdma_proto::{
    credit::{
        ForwardCredits,
        ReverseCredits, //
    },
    limit::{
        DiscardLimit,
        Reaction,
        Strikes,
        CALL_STRIKES,
        DEFAULT_DISCARD_LIMIT, //
    },
    ring::ReceiveRing,
    time::{
        Millis,
        Time, //
    },
    Counter,
    Credits,
    Error, //
};

/// When connections of these tests begin.
const START: Time = Time::from_millis(1_000_000);

/// A runner that draws the same cases every time.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    TestRunner::new_with_rng(config, rng)
}

// covers: V1-011, V1-013, V1-014, V1-016, MAL-153
#[test]
fn a_connection_begins_with_one_credit() {
    let mut credits = ForwardCredits::new(128);
    assert_eq!(credits.granted(), 1);
    assert_eq!(credits.cwnd(), 256);
    assert_eq!(credits.request(), Credits(128));
    assert!(credits.may_send(0));
    assert!(!credits.may_send(1));
    assert!(credits.accept(Credits(64)).changed);
    assert_eq!((credits.granted(), credits.cwnd()), (64, 64 << 8));
    credits.reset(32);
    assert_eq!((credits.granted(), credits.cwnd()), (1, 256));
    assert_eq!(credits.request(), Credits(32));
    // Never ask for nothing.
    assert_eq!(ForwardCredits::new(0).request(), Credits(1));
}

// covers: V1-011, V1-013: a call that nobody waits for any more holds its credit until its reply.
#[test]
fn an_abandoned_call_keeps_its_credit() {
    let mut credits = ForwardCredits::new(8);
    assert!(credits.accept(Credits(3)).changed);
    credits.abandon();
    credits.abandon();
    assert_eq!((credits.cwnd(), credits.abandoned()), (256, 2));
    assert!(credits.may_send(0));
    assert!(!credits.may_send(1));
    credits.abandon();
    assert_eq!(credits.cwnd(), 0);
    assert!(!credits.may_send(0));
    // Fewer credits than calls given up: still none.
    assert!(credits.accept(Credits(2)).changed);
    assert_eq!(credits.cwnd(), 0);
    assert!(credits.accept(Credits(3)).changed);
    for left in [2, 1, 0] {
        assert!(credits.late());
        assert_eq!(
            (credits.abandoned(), credits.cwnd()),
            (left, u64::from(3 - left) << 8)
        );
    }
    // A reply to nobody may be that of a call whose end is not known yet; then no credit is held.
    assert!(!credits.late());
    assert_eq!(credits.cwnd(), 3 << 8);
    credits.abandon();
    assert_eq!((credits.abandoned(), credits.cwnd()), (0, 3 << 8));
    credits.abandon();
    assert_eq!((credits.abandoned(), credits.cwnd()), (1, 2 << 8));
    // A new connection knows of neither.
    assert!(!ForwardCredits::new(8).late());
    assert!(!credits.accept(Credits(3)).changed);
    credits.reset(8);
    assert_eq!((credits.abandoned(), credits.cwnd()), (0, 256));
}

// covers: V1-012, V1-013, V1-015, V1-016, V1-021, MAL-029, MAL-030, MAL-031, MAL-032, X-04, X-05
#[test]
fn the_newest_grant_rules() {
    let mut credits = ForwardCredits::new(32);
    let table = [
        (16, 16, true, None),
        (16, 16, false, None),
        (2, 2, true, None),
        (8, 8, true, None),
        (0, 1, true, Some(Counter::CreditZero)),
        (1, 1, false, None),
        (31, 31, true, None),
        (32, 32, true, None),
        (33, 32, false, Some(Counter::CreditClamped)),
        (u32::MAX, 32, false, Some(Counter::CreditClamped)),
        (1, 1, true, None),
        (128, 32, true, Some(Counter::CreditClamped)),
    ];
    for (grant, granted, changed, note) in table {
        let result = credits.accept(Credits(grant));
        assert_eq!((result.changed, result.note), (changed, note));
        assert_eq!(credits.granted(), granted);
        assert_eq!(credits.cwnd(), u64::from(granted) << 8);
        for in_flight in 0..40 {
            assert_eq!(credits.may_send(in_flight), in_flight < granted);
        }
    }
    let mut most = ForwardCredits::new(u32::MAX);
    most.accept(Credits(u32::MAX));
    assert_eq!(most.cwnd(), u64::from(u32::MAX) << 8);
}

#[derive(Clone, Debug)]
enum Op {
    Send,
    Abandon,
    Late,
    Reply(u32),
    Error,
    Discarded,
    ReverseCall,
    ReverseReply,
    Reconnect(u32),
}

fn op() -> impl Strategy<Value = Op> {
    let grant = prop_oneof![Just(0), Just(1), 0u32..40, Just(u32::MAX)];
    prop_oneof![
        6 => Just(Op::Send),
        1 => Just(Op::Abandon),
        2 => Just(Op::Late),
        4 => grant.prop_map(Op::Reply),
        1 => Just(Op::Error),
        1 => Just(Op::Discarded),
        2 => Just(Op::ReverseCall),
        2 => Just(Op::ReverseReply),
        1 => (1u32..40).prop_map(Op::Reconnect),
    ]
}

/// The machines under test, driven as the driver does, and what a simple model says.
struct World {
    forward: ForwardCredits,
    reverse: ReverseCredits,
    ring: ReceiveRing,
    requested: u32,
    granted: u32,
    in_flight: u32,
    abandoned: u32,
    serving: u32,
    posted: u32,
}

const REVERSE: u32 = 4;

impl World {
    fn new(requested: u32, batch: u32) -> Self {
        let mut world = Self {
            forward: ForwardCredits::new(requested),
            reverse: ReverseCredits::new(REVERSE),
            ring: ReceiveRing::new(requested, REVERSE, batch),
            requested,
            granted: 1,
            in_flight: 0,
            abandoned: 0,
            serving: 0,
            posted: 0,
        };
        world.fill();
        world
    }

    fn fill(&mut self) {
        let missing = self.ring.missing();
        self.ring.post(missing);
        self.posted += missing;
    }

    fn received(&mut self) {
        assert!(self.posted > 0, "a message without a Receive");
        self.posted -= 1;
        let more = self.ring.consume();
        self.ring.post(more);
        self.posted += more;
    }

    /// Calls without a reply, whether somebody waits for it or not.
    fn with_the_server(&self) -> u32 {
        self.in_flight + self.abandoned
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Send => {
                if self.forward.may_send(self.in_flight) {
                    self.in_flight += 1;
                    assert!(self.with_the_server() <= self.granted.min(self.requested));
                } else {
                    assert!(self.with_the_server() >= self.granted);
                }
            }
            Op::Abandon if self.in_flight > 0 => {
                self.forward.abandon();
                self.in_flight -= 1;
                self.abandoned += 1;
            }
            Op::Late if self.abandoned > 0 => {
                self.received();
                assert!(self.forward.late());
                self.abandoned -= 1;
            }
            Op::Abandon | Op::Late => {}
            Op::Reply(grant) if self.in_flight > 0 => {
                self.received();
                self.in_flight -= 1;
                self.forward.accept(Credits(grant));
                self.granted = grant.clamp(1, self.requested);
            }
            Op::Error if self.in_flight > 0 => {
                self.received();
                self.in_flight -= 1;
            }
            Op::Reply(_) | Op::Error => {}
            // A peer that sends what it may not has nothing to complain of; here it stays
            // within the Receives that are on top.
            Op::Discarded => {
                if self.posted > self.with_the_server() + REVERSE - self.serving {
                    self.received();
                }
            }
            Op::ReverseCall => {
                if self.serving < REVERSE {
                    self.received();
                    assert_eq!(self.reverse.begin(), Ok(()));
                    self.serving += 1;
                } else {
                    assert!(self.reverse.begin().is_err());
                }
            }
            Op::ReverseReply => {
                self.reverse.end();
                self.serving = self.serving.saturating_sub(1);
            }
            Op::Reconnect(requested) => {
                self.forward.reset(requested);
                self.reverse.reset();
                self.ring = ReceiveRing::new(requested, REVERSE, 8);
                self.requested = requested;
                self.granted = 1;
                self.in_flight = 0;
                self.abandoned = 0;
                self.serving = 0;
                self.posted = 0;
                self.fill();
            }
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.forward.granted(), self.granted);
        assert_eq!(self.forward.request(), Credits(self.requested));
        assert_eq!(self.reverse.in_use(), self.serving);
        assert_eq!(self.reverse.grant(), Credits(REVERSE));
        assert_eq!(self.ring.posted(), self.posted);
        assert!(self.posted <= self.ring.capacity());
        // A Receive for every reply that may come and every reverse Call that may be sent.
        assert!(self.posted >= self.requested + REVERSE);
        assert_eq!(self.ring.advertisable(), self.requested);
    }
}

// covers: V1-012, V1-013, V1-014, V1-016, V1-017, V1-018, V1-023, V1-102, BC-03, BC-07, BC-08, BC-26, BC-30
#[test]
fn random_traffic_keeps_every_promise() {
    let strategy = (1u32..40, 0u32..20, vec(op(), 1..200));
    runner(10_000)
        .run(&strategy, |(requested, batch, ops)| {
            let mut world = World::new(requested, batch);
            world.check();
            for op in &ops {
                world.step(op);
            }
            Ok(())
        })
        .unwrap();
}

// covers: BC-04, BC-25, BC-28, MAL-111
#[test]
fn reverse_calls_beyond_the_credits_overflow() {
    for limit in 0..5 {
        let mut credits = ReverseCredits::new(limit);
        assert_eq!(credits.grant(), Credits(limit));
        for _ in 0..limit {
            assert_eq!(credits.begin(), Ok(()));
        }
        assert!(credits.begin().is_err());
        assert_eq!(credits.in_use(), limit);
        credits.end();
        assert_eq!(credits.begin().is_ok(), limit > 0);
        credits.reset();
        assert_eq!(credits.in_use(), 0);
        credits.end();
        assert_eq!(credits.in_use(), 0);
    }
}

// covers: V1-018, V1-019, BC-07
#[test]
fn no_more_is_advertised_than_is_posted() {
    let mut ring = ReceiveRing::new(16, 4, 8);
    assert_eq!(ring.capacity(), 28);
    assert_eq!(ring.missing(), 28);
    assert_eq!(ring.advertisable(), 0);
    for posted in 1..=28u32 {
        ring.post(1);
        assert_eq!(ring.posted(), posted);
        assert_eq!(ring.missing(), 28 - posted);
        assert_eq!(ring.advertisable(), posted.saturating_sub(4).min(16));
    }
    ring.post(1);
    assert_eq!(ring.posted(), 28);
    // A batch at a time, before what is needed runs short.
    for _ in 0..7 {
        assert_eq!(ring.consume(), 0);
    }
    assert_eq!(ring.consume(), 8);
    assert_eq!((ring.posted(), ring.advertisable()), (20, 16));
    // As long as posting fails, the demand stands and grows.
    assert_eq!(ring.consume(), 9);
    assert_eq!((ring.posted(), ring.advertisable()), (19, 15));
    ring.post(9);
    assert_eq!(ring.missing(), 0);
    ring.reset();
    assert_eq!((ring.posted(), ring.missing()), (0, 28));
    assert_eq!(ring.consume(), 28);
    // A batch of nothing would never post.
    let mut ring = ReceiveRing::new(1, 0, 0);
    ring.post(ring.missing());
    assert_eq!(ring.consume(), 1);
    // Nonsense saturates.
    let ring = ReceiveRing::new(u32::MAX, u32::MAX, u32::MAX);
    assert_eq!(ring.capacity(), u32::MAX);
}

// covers: X-03, V1-088, MAL-128
#[test]
fn stray_messages_are_borne_up_to_a_limit() {
    assert_eq!(DEFAULT_DISCARD_LIMIT, 16);
    for limit in [0, 1, 2, 16, 100] {
        let mut discards = DiscardLimit::new(limit, START);
        for _ in 1..limit.max(1) {
            assert_eq!(discards.discard(None), Reaction::Ignore);
        }
        for _ in 0..3 {
            assert_eq!(discards.discard(None), Reaction::Reconnect);
        }
    }
}

// covers: X-03: what a connection of months has borne now and then does not end it.
#[test]
fn what_was_borne_long_ago_is_forgotten() {
    let minute = 60_000;
    let mut now = START;
    let mut discards = DiscardLimit::new(16, now);
    for _ in 0..1_000 {
        now = now.after(Millis::new(minute));
        discards.tick(now);
        assert_eq!(discards.discard(None), Reaction::Ignore);
    }
    // More than one a minute come together in the end.
    let mut seen = 0;
    while discards.discard(None) == Reaction::Ignore {
        now = now.after(Millis::new(minute / 2));
        discards.tick(now);
        seen += 1;
        assert!(seen < 40);
    }
    // How often it is told the time does not matter.
    let mut discards = DiscardLimit::new(16, START);
    let mut often = DiscardLimit::new(16, START);
    for _ in 0..15 {
        assert_eq!(discards.discard(None), Reaction::Ignore);
        assert_eq!(often.discard(None), Reaction::Ignore);
    }
    for second in 1..=180 {
        often.tick(START.after(Millis::new(second * 1_000)));
    }
    discards.tick(START.after(Millis::new(3 * minute)));
    for _ in 0..3 {
        assert_eq!(discards.discard(None), Reaction::Ignore);
        assert_eq!(often.discard(None), Reaction::Ignore);
    }
    assert_eq!(discards.discard(None), Reaction::Reconnect);
    assert_eq!(often.discard(None), Reaction::Reconnect);
    // A quiet time is not saved up.
    let mut discards = DiscardLimit::new(2, START);
    discards.tick(START.after(Millis::new(100 * minute)));
    assert_eq!(discards.discard(None), Reaction::Ignore);
    assert_eq!(discards.discard(None), Reaction::Reconnect);
}

// covers: X-03, V1-088
#[test]
fn a_bad_reply_to_a_waiting_call_reconnects_and_the_third_ends_it() {
    assert_eq!(CALL_STRIKES, 3);
    let mut call = Strikes::default();
    let mut other = Strikes::default();
    // Every bad reply costs a connection, so each comes on a new one.
    for _ in 0..2 {
        let mut discards = DiscardLimit::new(16, START);
        assert_eq!(discards.discard(Some(&mut call)), Reaction::Reconnect);
    }
    let mut discards = DiscardLimit::new(16, START);
    assert_eq!(discards.discard(Some(&mut other)), Reaction::Reconnect);
    assert_eq!(discards.discard(Some(&mut call)), Reaction::FailCall);
    for _ in 0..300 {
        assert_eq!(discards.discard(Some(&mut call)), Reaction::FailCall);
    }
    assert_eq!(Error::BadReplies.to_errno(), -5);
}
