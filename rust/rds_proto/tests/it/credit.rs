// SPDX-License-Identifier: GPL-2.0

//! Tests of flow control.

use crate::random::Random;
use std::collections::VecDeque;
use xprtrdma_rds_proto::{
    credit::Credits,
    header::Fault, //
};

/// Returns whether this end waits for credits. The peer must have granted fewer than 1000 credits.
fn waits(mut credits: Credits) -> bool {
    (0..1000).any(|_| credits.spend().is_none())
}

#[test]
fn without_credits_nothing_waits() {
    for (wanted, granted) in [(false, 0), (false, 9), (true, 0)] {
        let mut credits = Credits::new(wanted, granted, 64, 0);
        assert!(!credits.is_worth_a_frame());
        for _ in 0..1000 {
            assert_eq!(credits.spend(), Some(0));
        }
    }
}

#[test]
fn the_last_credit_advertises() {
    let mut credits = Credits::new(true, 2, 4, 4);
    assert_eq!(credits.spend(), Some(0));
    assert_eq!(credits.spend(), None);
    credits.posted(1);
    assert_eq!(credits.spend(), Some(1));
    assert_eq!(credits.spend(), None);
    assert_eq!(credits.granted(1), Ok(()));
    assert_eq!(credits.spend(), None);
}

#[test]
fn a_header_advertises_at_most_what_it_holds() {
    let mut credits = Credits::new(true, 9, 600, 0);
    assert_eq!(credits.spend(), Some(255));
    assert_eq!(credits.spend(), Some(255));
    assert_eq!(credits.spend(), Some(90));
    assert_eq!(credits.spend(), Some(0));
}

#[test]
fn credits_are_used_if_both_ends_offer_them() {
    for (wanted, granted, used) in [(true, 9, true), (true, 0, false), (false, 9, false)] {
        let mut credits = Credits::new(wanted, 0, 4, 4);
        assert!(!waits(credits));
        assert!(!credits.agreed(granted));
        assert_eq!(waits(credits), used);
    }
    let mut credits = Credits::new(true, 0, 4, 4);
    assert!(!credits.agreed(2));
    assert_eq!((credits.spend(), credits.spend()), (Some(0), None));
}

// The in-tree transport grants no credits in its private data. If flow control is on, it
// nevertheless counts the credits that this end has granted, and grants credits in headers.
#[test]
fn a_peer_that_grants_in_headers_alone_is_granted_credits() {
    for (wanted, told) in [(true, 20), (false, 0)] {
        let mut credits = Credits::new(wanted, 0, 4, 4);
        assert!(!credits.agreed(0));
        credits.posted(20);
        assert_eq!(credits.granted(0), Ok(()));
        assert_eq!(credits.spend(), Some(0));
        assert!(!credits.is_worth_a_frame());
        assert_eq!(credits.granted(3), Ok(()));
        assert_eq!(credits.is_worth_a_frame(), wanted);
        assert_eq!(credits.spend(), Some(told));
        // The peer did not say in its private data how many Receives it has posted. So this end
        // does not wait for credits.
        for _ in 0..1000 {
            assert_eq!(credits.spend(), Some(0));
        }
    }
}

// The peer's first frame may be processed before the thread that connects has read what the peer
// grants.
#[test]
fn credits_that_arrive_before_the_answer_count() {
    for (wanted, told) in [(true, 20), (false, 0)] {
        let mut credits = Credits::new(wanted, 0, 4, 4);
        credits.posted(20);
        assert_eq!(credits.granted(3), Ok(()));
        assert_eq!(credits.agreed(0), wanted);
        assert_eq!(credits.spend(), Some(told));
    }
}

// A peer may send most of a long message before the thread that connects has read what the peer
// grants. The peer then waits until this end sends a frame.
#[test]
fn a_peer_that_sends_before_the_answer_is_read_gets_credits() {
    for receives in [17, 128] {
        let mut own = Credits::new(true, 0, receives, receives);
        let mut peer = Credits::new(true, receives.into(), receives, receives);
        while let Some(credit) = peer.spend() {
            assert_eq!(own.granted(credit), Ok(()));
            own.posted(1);
            assert!(!own.is_worth_a_frame());
        }
        assert!(own.agreed(receives.into()));
        let credit = own.spend().unwrap();
        assert_eq!(peer.granted(credit), Ok(()));
        assert!(peer.spend().is_some());
    }
}

#[test]
fn a_frame_is_worth_it_for_sixteen() {
    let mut credits = Credits::new(true, 9, 0, 0);
    credits.posted(15);
    assert!(!credits.is_worth_a_frame());
    credits.posted(1);
    assert!(credits.is_worth_a_frame());
}

#[test]
fn a_peer_cannot_grant_without_end() {
    let mut credits = Credits::new(true, u32::MAX, 0, 0);
    assert_eq!(credits.granted(1), Err(Fault::Number));
}

// This end does not use up the credits of a peer that grants credits only in headers. So a correct
// peer of this kind may grant more credits than the limit.
#[test]
fn a_peer_that_grants_in_headers_alone_may_grant_without_end() {
    let mut credits = Credits::new(true, 0, 4, 4);
    assert!(!credits.agreed(0));
    for _ in 0..1000 {
        assert_eq!(credits.granted(u8::MAX), Ok(()));
    }
    assert_eq!(credits.spend(), Some(0));
}

// Two ends of a connection send whenever their credits allow. Neither end exceeds its credits, and
// neither end waits for ever.
#[test]
fn random_ends_never_wait_for_each_other() {
    for seed in 0..200 {
        let mut numbers = Random::new(seed);
        let receives = 2 + numbers.below(20) as u16;
        let mut ends = [Credits::new(true, receives.into(), receives, receives); 2];
        let mut free = [receives; 2];
        let mut wire = [VecDeque::new(), VecDeque::new()];
        for _ in 0..2000 {
            let me = numbers.below(2) as usize;
            if numbers.below(2) == 0 {
                if let Some(credit) = ends[me].spend() {
                    free[1 - me] = free[1 - me].checked_sub(1).unwrap();
                    wire[1 - me].push_back(credit);
                }
            } else if let Some(credit) = wire[me].pop_front() {
                assert_eq!(ends[me].granted(credit), Ok(()));
                free[me] += 1;
                ends[me].posted(1);
            }
            let quiet = wire.iter().all(VecDeque::is_empty);
            let mut copies = ends;
            let stuck = copies.iter_mut().all(|end| end.spend().is_none());
            assert!(!(quiet && stuck));
        }
    }
}
