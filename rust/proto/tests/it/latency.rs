// SPDX-License-Identifier: GPL-2.0

//! Tests of the stages into which the latency of a call is divided, and of the histogram buckets
//! for their durations.

use xprtrdma_proto::latency::{
    below_us,
    bucket,
    Stage,
    Stamps,
    BUCKETS, //
};

#[test]
fn every_span_is_in_the_bucket_whose_limits_it_is_between() {
    let edges = (0..64).flat_map(|bit| {
        let us = 1u64 << bit;
        [us - 1, us, us + 1]
    });
    for us in edges {
        for ns in [
            us.saturating_mul(1000),
            us.saturating_mul(1000).saturating_add(999),
        ] {
            let found = bucket(ns);
            assert!(found < BUCKETS);
            if let Some(limit) = below_us(found) {
                assert!(ns / 1000 < limit);
            }
            if let Some(limit) = found.checked_sub(1).and_then(below_us) {
                assert!(ns / 1000 >= limit);
            }
        }
    }
    assert_eq!(
        (bucket(0), bucket(999), bucket(1000), bucket(1999)),
        (0, 0, 1, 1)
    );
    assert_eq!(
        (bucket(2000), bucket(4000), bucket(u64::MAX)),
        (2, 3, BUCKETS - 1)
    );
}

#[test]
fn limits_double_and_the_last_bucket_has_none() {
    assert_eq!(below_us(0), Some(1));
    for number in 1..BUCKETS - 1 {
        assert_eq!(below_us(number), below_us(number - 1).map(|us| us * 2));
    }
    assert_eq!(below_us(BUCKETS - 2), Some(67_108_864));
    for number in [BUCKETS - 1, BUCKETS, 64, usize::MAX] {
        assert_eq!(below_us(number), None);
    }
}

const CALL: Stamps = Stamps {
    begun: 1000,
    given: 5000,
    posted: 5300,
    answered: 95_300,
    ended: 96_000,
};

#[test]
fn the_stages_of_a_call_add_up_to_its_life() {
    let spans = CALL.spans().unwrap();
    assert_eq!(spans.map(|(stage, _)| stage), Stage::ALL);
    assert_eq!(spans.map(|(_, ns)| ns), [4000, 300, 90_000, 700]);
    assert_eq!(
        spans.iter().map(|(_, ns)| ns).sum::<u64>(),
        CALL.ended - CALL.begun
    );
}

#[test]
fn a_call_that_was_not_followed_from_its_beginning_has_no_stages() {
    for broken in [
        // Latency measuring was off when the call was posted.
        Stamps { posted: 0, ..CALL },
        // The time stamp of the post remains from an earlier call in the same slot.
        Stamps {
            posted: 4999,
            ..CALL
        },
        // The call was sent again.
        Stamps {
            given: 5301,
            ..CALL
        },
        Stamps {
            posted: 95_301,
            ..CALL
        },
        Stamps { begun: 0, ..CALL },
        Stamps {
            begun: 5001,
            ..CALL
        },
        Stamps {
            ended: 95_299,
            ..CALL
        },
        Stamps::default(),
    ] {
        assert_eq!(broken.spans(), None);
    }
}

#[test]
fn stages_have_names_of_their_own() {
    let names = Stage::ALL.map(Stage::name);
    assert_eq!(names, ["wait", "register", "answer", "complete"]);
}
