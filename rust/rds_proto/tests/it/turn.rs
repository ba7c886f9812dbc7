// SPDX-License-Identifier: GPL-2.0

//! Tests how a message is sent after its operation.

use xprtrdma_rds_proto::{
    operation::Completion,
    turn::{
        Turn,
        Way, //
    }, //
};

#[test]
fn a_message_that_is_held_waits_for_its_own_operation() {
    let mut turn = Turn::default();
    assert_eq!(turn.way(5), Way::Message);
    turn.hold(5);
    assert_eq!((turn.way(4), turn.way(5)), (Way::Message, Way::Later));
    assert!(!turn.completed(4, Completion::Done));
    assert_eq!(turn.way(5), Way::Later);
    assert!(turn.completed(5, Completion::Done));
    assert_eq!(turn.way(5), Way::Message);
    // The sender is woken only once.
    assert!(!turn.completed(5, Completion::Done));
}

#[test]
fn a_message_whose_operation_failed_is_not_sent() {
    for failure in [Completion::Failed, Completion::Refused, Completion::Flushed] {
        let mut turn = Turn::default();
        turn.hold(5);
        assert!(!turn.completed(5, failure));
        assert_eq!(turn.way(5), Way::Later);
    }
}

#[test]
fn a_message_whose_operation_did_not_begin_is_replaced() {
    let mut turn = Turn::default();
    turn.hold(5);
    turn.replace(4);
    let ways = |turn: &Turn| [4, 5, 6].map(|sequence| turn.way(sequence));
    assert_eq!(ways(&turn), [Way::Substitute, Way::Later, Way::Message]);
    turn.replace(5);
    assert_eq!(ways(&turn), [Way::Message, Way::Substitute, Way::Message]);
}
