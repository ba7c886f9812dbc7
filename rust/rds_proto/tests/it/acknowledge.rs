// SPDX-License-Identifier: GPL-2.0

//! Tests of acknowledgements in both directions.

use crate::random::Random;
use xprtrdma_rds_proto::{
    acknowledge::*,
    header::{
        Header,
        ACK_REQUIRED,
        EXTENSION_BYTES,
        HAS_RDMA_BYTES, //
    },
    outgoing::{
        substitute,
        Front,
        NO_PORT, //
    },
    ping::{
        is_answer,
        is_ping, //
    }, //
};

#[test]
fn an_acknowledgement_is_due_until_a_frame_carries_it() {
    let mut owed = Owed::default();
    assert!(!owed.is_due());
    owed.received(1, false);
    assert!(!owed.is_due());
    owed.received(2, true);
    owed.received(3, false);
    assert!(owed.is_due());
    assert_eq!(owed.piggyback(), 3);
    assert!(!owed.is_due());
    // A message that arrives twice requests the acknowledgement again. The acknowledged sequence
    // number does not change.
    owed.received(1, true);
    assert!(owed.is_due());
    assert_eq!(owed.piggyback(), 3);
}

#[test]
fn news_are_told_once() {
    let mut acknowledged = Acknowledged::default();
    assert_eq!(acknowledged.advance(None), None);
    acknowledged.heard(3, 10);
    assert_eq!(acknowledged.advance(None), Some(3));
    assert_eq!(acknowledged.advance(None), None);
    acknowledged.heard(2, 10);
    assert_eq!(acknowledged.advance(None), None);
}

// covers: RDS-07
#[test]
fn a_peer_cannot_acknowledge_what_was_not_sent() {
    let mut acknowledged = Acknowledged::default();
    acknowledged.heard(u64::MAX, 5);
    assert_eq!(acknowledged.advance(None), Some(5));
}

// covers: RDS-59
#[test]
fn an_operation_that_is_under_way_holds_its_message() {
    let mut acknowledged = Acknowledged::default();
    acknowledged.heard(9, 9);
    assert_eq!(acknowledged.advance(Some(4)), Some(3));
    assert_eq!(acknowledged.advance(Some(4)), None);
    assert_eq!(acknowledged.advance(Some(9)), Some(8));
    assert_eq!(acknowledged.advance(None), Some(9));
}

#[test]
fn a_replaced_message_is_acknowledged_alone() {
    let message = Header {
        sequence: 7,
        len: 100,
        sport: 40,
        dport: 50,
        flags: HAS_RDMA_BYTES,
        extensions: [9; EXTENSION_BYTES],
        ..Header::default()
    };
    let frame = Front::new(&substitute(&message)).next(3, 2).to_owned();
    let (header, payload) = Header::decode(&frame).unwrap();
    assert!(payload.is_empty() && header.len == 0);
    assert_eq!((header.sport, header.dport), (40, NO_PORT));
    assert_eq!(header.flags, ACK_REQUIRED);
    assert_eq!(header.extensions, [0; EXTENSION_BYTES]);
    assert!(!is_ping(&header) && !is_answer(&header));
    // The peer receives message 6, which requests no acknowledgement. Then the peer receives the
    // frame that replaces message 7.
    let (mut owed, mut acknowledged) = (Owed::default(), Acknowledged::default());
    owed.received(6, false);
    assert!(!owed.is_due());
    owed.received(header.sequence, header.has(ACK_REQUIRED));
    assert!(owed.is_due());
    acknowledged.heard(owed.piggyback(), 7);
    assert_eq!(acknowledged.advance(None), Some(7));
}

#[test]
fn whatever_is_heard_the_numbers_rise() {
    let mut numbers = Random::new(5);
    let mut acknowledged = Acknowledged::default();
    let mut last = 0;
    for _ in 0..10_000 {
        let sent = last + 20;
        acknowledged.heard(numbers.below(1 << 20), sent);
        let under_way = (numbers.below(2) == 0).then(|| numbers.below(sent + 5));
        if let Some(now) = acknowledged.advance(under_way) {
            assert!(now > last && now <= sent);
            assert!(under_way.is_none_or(|first| now < first));
            last = now;
        }
    }
}
