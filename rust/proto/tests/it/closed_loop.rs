// SPDX-License-Identifier: GPL-2.0

//! The responder serves every message that the requester plans.
//!
//! The connection is simulated by the fuzz target `fuzz/targets/closed_loop.rs`, which checks every
//! byte, every memory access and every credit. This test passes long random inputs to the fuzz
//! target. The test counts the messages of each form, and fails if a form did not occur.

use crate::fuzz_replay::targets::closed_loop::{
    play,
    Seen, //
};
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
use std::cell::Cell;

// covers: RSP-129
#[test]
fn bytes_in_are_bytes_out_for_every_form() {
    let config = Config {
        cases: 800,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[5; 32]);
    let all = Cell::new(Seen::default());
    TestRunner::new_with_rng(config, rng)
        .run(&vec(any::<u8>(), 100..1500), |data| {
            let (one, mut sum) = (play(&data), all.get());
            let add = |sum: &mut [u32], one: &[u32]| {
                sum.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
            };
            add(&mut sum.calls, &one.calls);
            add(&mut sum.replies, &one.replies);
            add(&mut sum.results, &one.results);
            add(&mut sum.grants, &one.grants);
            sum.predicted += one.predicted;
            sum.in_flight = sum.in_flight.max(one.in_flight);
            all.set(sum);
            Ok(())
        })
        .unwrap();
    let seen = all.get();
    for often in [
        &seen.calls[..],
        &seen.replies,
        &seen.results,
        &seen.grants,
        &[seen.predicted],
    ] {
        assert!(often.iter().all(|times| *times >= 100), "{seen:?}");
    }
    assert!(seen.in_flight >= 8, "{seen:?}");
}
