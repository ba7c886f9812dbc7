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
/// no answer, and the socket layer keeps the answers.
fn until_refused(pings: &mut Pings) -> u32 {
    (0..10 * MOST).take_while(|_| pings.ping(|| false)).count() as u32
}

#[test]
fn a_peer_that_takes_no_answers_gets_no_more_than_the_bound() {
    let mut pings = Pings::default();
    assert_eq!(until_refused(&mut pings), MOST);
    // Answers that were sent count towards the limit until they are acknowledged.
    for sequence in 1..=u64::from(MOST) {
        pings.answered(sequence);
    }
    assert!(!pings.ping(|| false));
    pings.acknowledged(u64::from(MOST) - 1);
    assert!(!pings.ping(|| false));
    pings.acknowledged(u64::from(MOST));
    assert_eq!(until_refused(&mut pings), MOST);
}

// The peer has posted no Receives. So only the first answers fit into the send queue, and the
// socket layer keeps all others. The peer acknowledges all answers that were sent.
#[test]
fn a_peer_that_acknowledges_and_receives_nothing_gets_no_more_than_the_bound() {
    const SENDS: u64 = 64;
    let mut pings = Pings::default();
    let (mut made, mut sent, mut asked) = (0, 0, 0);
    for _ in 0..8 * MOST {
        let idle = || {
            asked += 1;
            made == sent
        };
        made += u64::from(pings.ping(idle));
        if sent < made.min(SENDS) {
            sent += 1;
            pings.answered(sent);
        }
        pings.acknowledged(sent);
    }
    assert_eq!((made, sent), (SENDS + u64::from(MOST), SENDS));
    // Below the limit, `Pings::ping` does not call `idle`.
    assert_eq!(u64::from(8 * MOST), made + asked);
    // The peer posts Receives, so all waiting answers are sent.
    for sequence in sent + 1..=made {
        pings.answered(sequence);
    }
    pings.acknowledged(made);
    assert_eq!(until_refused(&mut pings), MOST);
}

#[test]
fn a_peer_that_acknowledges_is_always_answered() {
    let mut pings = Pings::default();
    for sequence in 1..100_000u64 {
        assert!(pings.ping(|| false), "{sequence}");
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
    assert_eq!(until_refused(&mut pings), MOST);
    assert!(pings.ping(|| true));
    assert_eq!(until_refused(&mut pings), MOST - 1);
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
