// SPDX-License-Identifier: GPL-2.0

//! Credits, and the limits on bad messages, compared with simple models.

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
    credit::ForwardCredits,
    limit::{
        DiscardLimit,
        Reaction,
        Strikes,
        CALL_STRIKES,
        DEFAULT_DISCARD_LIMIT, //
    },
    time::{
        Millis,
        Time, //
    },
    Counter,
    Credits,
    Error, //
};

/// Time at which connections of these tests begin.
const START: Time = Time::from_millis(1_000_000);

/// Returns a test runner that generates the same cases every time.
fn runner(cases: u32) -> TestRunner {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]);
    TestRunner::new_with_rng(config, rng)
}

/// Returns whether the RPC client may send another call. Each call in flight uses 256 units of the
/// RPC congestion window.
fn may_send(credits: &ForwardCredits, in_flight: u32) -> bool {
    u64::from(in_flight) << 8 < credits.cwnd()
}

// covers: V1-014
#[test]
fn a_connection_begins_with_one_credit() {
    let mut credits = ForwardCredits::new(128);
    assert_eq!(credits.granted(), 1);
    assert_eq!(credits.cwnd(), 256);
    assert_eq!(credits.request(), Credits(128));
    assert!(may_send(&credits, 0));
    assert!(!may_send(&credits, 1));
    assert!(credits.accept(Credits(64)).changed);
    assert_eq!((credits.granted(), credits.cwnd()), (64, 64 << 8));
    // The client never requests zero credits.
    assert_eq!(ForwardCredits::new(0).request(), Credits(1));
}

// covers: V1-017
// A call holds its credit until its reply arrives, even if no task waits for the call any more.
#[test]
fn an_abandoned_call_keeps_its_credit() {
    let mut credits = ForwardCredits::new(8);
    assert!(credits.accept(Credits(3)).changed);
    credits.abandon();
    credits.abandon();
    assert_eq!((credits.cwnd(), credits.abandoned()), (256, 2));
    // Abandoned calls do not change the number of credits that the client requests.
    assert_eq!(credits.request(), Credits(8));
    assert!(may_send(&credits, 0));
    assert!(!may_send(&credits, 1));
    credits.abandon();
    assert_eq!(credits.cwnd(), 0);
    assert!(!may_send(&credits, 0));
    // Three abandoned calls hold a credit each. A grant of two credits leaves no credit for another
    // call.
    assert!(credits.accept(Credits(2)).changed);
    assert_eq!(credits.cwnd(), 0);
    assert!(credits.accept(Credits(3)).changed);
    for left in [2, 1, 0] {
        assert!(credits.unmatched_reply());
        assert_eq!(
            (credits.abandoned(), credits.cwnd()),
            (left, u64::from(3 - left) << 8)
        );
    }
    // An unmatched reply may belong to a call that is reported as abandoned only later. That call
    // holds no credit, because its reply has already arrived.
    assert!(!credits.unmatched_reply());
    assert_eq!(credits.cwnd(), 3 << 8);
    credits.abandon();
    assert_eq!((credits.abandoned(), credits.cwnd()), (0, 3 << 8));
    credits.abandon();
    assert_eq!((credits.abandoned(), credits.cwnd()), (1, 2 << 8));
    // A new connection has neither abandoned calls nor stray replies.
    assert!(!ForwardCredits::new(8).unmatched_reply());
    assert!(!credits.accept(Credits(3)).changed);
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
            assert_eq!(may_send(&credits, in_flight), in_flight < granted);
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
        1 => (1u32..40).prop_map(Op::Reconnect),
    ]
}

/// The objects under test, used as the driver uses them, and a simple model of their state.
struct World {
    forward: ForwardCredits,
    requested: u32,
    granted: u32,
    in_flight: u32,
    abandoned: u32,
}

impl World {
    fn new(requested: u32) -> Self {
        Self {
            forward: ForwardCredits::new(requested),
            requested,
            granted: 1,
            in_flight: 0,
            abandoned: 0,
        }
    }

    /// Number of calls that have no reply yet, including abandoned calls, for which no task waits.
    fn with_the_server(&self) -> u32 {
        self.in_flight + self.abandoned
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Send => {
                if may_send(&self.forward, self.in_flight) {
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
                assert!(self.forward.unmatched_reply());
                self.abandoned -= 1;
            }
            Op::Abandon | Op::Late => {}
            Op::Reply(grant) if self.in_flight > 0 => {
                self.in_flight -= 1;
                self.forward.accept(Credits(grant));
                self.granted = grant.clamp(1, self.requested);
            }
            Op::Error if self.in_flight > 0 => {
                self.in_flight -= 1;
            }
            Op::Reply(_) | Op::Error => {}
            // Each connection has separate credits.
            Op::Reconnect(requested) => *self = Self::new(requested),
        }
        self.check();
    }

    fn check(&self) {
        assert_eq!(self.forward.granted(), self.granted);
        assert_eq!(self.forward.request(), Credits(self.requested));
    }
}

#[test]
fn random_traffic_keeps_every_promise() {
    let strategy = (1u32..40, vec(op(), 1..200));
    runner(10_000)
        .run(&strategy, |(requested, ops)| {
            let mut world = World::new(requested);
            world.check();
            for op in &ops {
                world.step(op);
            }
            Ok(())
        })
        .unwrap();
}

// covers: MAL-128
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

// A few bad messages over months do not end a connection.
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
    // If more than one bad message arrives each minute, the connection ends after some time.
    let mut seen = 0;
    while discards.discard(None) == Reaction::Ignore {
        now = now.after(Millis::new(minute / 2));
        discards.tick(now);
        seen += 1;
        assert!(seen < 40);
    }
    // The limit on bad messages is the same, whether the driver reports the time every second or
    // only once.
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
    // A quiet period does not allow more bad messages later.
    let mut discards = DiscardLimit::new(2, START);
    discards.tick(START.after(Millis::new(100 * minute)));
    assert_eq!(discards.discard(None), Reaction::Ignore);
    assert_eq!(discards.discard(None), Reaction::Reconnect);
}

//
#[test]
fn a_bad_reply_to_a_waiting_call_reconnects_and_the_third_ends_it() {
    assert_eq!(CALL_STRIKES, 3);
    let mut call = Strikes::default();
    let mut other = Strikes::default();
    // Every bad reply ends a connection, so each one arrives on a new connection.
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

// Rails: a connection that is about to move to another rail sends no new calls, and waits for the
// calls in flight.
#[test]
fn a_closed_window_stays_closed_whatever_is_granted() {
    let mut credits = ForwardCredits::new(64);
    credits.accept(Credits(32));
    credits.close(true);
    assert_eq!(credits.cwnd(), 0);
    credits.accept(Credits(64));
    credits.abandon();
    assert_eq!((credits.cwnd(), credits.granted()), (0, 64));
    credits.close(false);
    assert_eq!(credits.cwnd(), 63 << 8);
}
