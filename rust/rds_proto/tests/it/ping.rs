// SPDX-License-Identifier: GPL-2.0

//! Tests which pings are answered.

use xprtrdma_rds_proto::{
    header::Header,
    ping::{
        is_answer,
        is_ping,
        Pings,
        MOST, //
    },
};

/// Returns how many pings are answered before the first ping is refused, if the peer acknowledges
/// no answer.
fn until_refused(pings: &mut Pings, idle: bool) -> u32 {
    (0..10 * MOST).take_while(|_| pings.ping(idle)).count() as u32
}

#[test]
fn a_peer_that_takes_no_answers_gets_no_more_than_the_bound() {
    let mut pings = Pings::default();
    assert_eq!(until_refused(&mut pings, false), MOST);
    // Answers that were sent count towards the limit until they are acknowledged.
    for sequence in 1..=u64::from(MOST) {
        pings.answered(sequence);
    }
    assert!(!pings.ping(false));
    pings.acknowledged(u64::from(MOST) - 1);
    assert!(!pings.ping(false));
    pings.acknowledged(u64::from(MOST));
    assert_eq!(until_refused(&mut pings, false), MOST);
}

#[test]
fn a_peer_that_acknowledges_is_always_answered() {
    let mut pings = Pings::default();
    for sequence in 1..100_000u64 {
        assert!(pings.ping(false), "{sequence}");
        pings.answered(sequence);
        // The peer sends an acknowledgement after every ninth message.
        if sequence % 9 == 0 {
            pings.acknowledged(sequence);
        }
    }
}

#[test]
fn answers_that_were_not_made_are_not_waited_for() {
    let mut pings = Pings::default();
    // The socket layer has sent no answers, for example because it had no memory for them.
    assert_eq!(until_refused(&mut pings, false), MOST);
    assert!(pings.ping(true));
    assert_eq!(until_refused(&mut pings, false), MOST - 1);
}

#[test]
fn pings_and_answers_are_told_by_their_ports() {
    let of = |sport, dport| Header {
        sport,
        dport,
        ..Header::default()
    };
    assert!(is_ping(&of(5, 0)) && !is_answer(&of(5, 0)));
    assert!(is_answer(&of(0, 5)) && !is_ping(&of(0, 5)));
    for neither in [of(0, 0), of(5, 6)] {
        assert!(!is_ping(&neither) && !is_answer(&neither));
    }
}
