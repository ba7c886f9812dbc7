// SPDX-License-Identifier: GPL-2.0

//! Tests of a responder's Calls to its client.

use crate::{
    common::{
        named,
        words,
        CALL,
        MSG,
        NO_LISTS,
        REPLY,
        XID, //
    },
    responder_rig::{
        message,
        TERMS, //
    }, //
};
use xprtrdma_proto::{
    responder::{
        admit::Terms,
        reverse::{
            NotSent,
            Reverse, //
        },
        sort::{
            sort,
            Arrival,
            ReverseReply, //
        },
        spoken::Spoken, //
    },
    Counter,
    Credits,
    Inbound,
    Version,
    Xid, //
};

const XIDS: [Xid; 3] = [Xid(1), Xid(2), Xid(3)];

/// Returns the message limits of a connection that uses protocol version one and this inline
/// threshold for replies.
fn terms(reply_threshold: u32) -> Terms {
    Terms {
        reply_threshold,
        ..TERMS
    }
}

fn open(slots: u32, threshold: u32) -> Reverse {
    let mut reverse = Reverse::new(slots, &terms(threshold));
    reverse.heard(Version::V1);
    reverse.allow();
    reverse
}

/// Returns a Reply that grants `credits` credits.
fn reply(credits: u32) -> ReverseReply<'static> {
    ReverseReply {
        xid: Xid(1),
        credits: Credits(credits),
        payload: &[0; 20],
    }
}

fn sent(reverse: &mut Reverse, xid: Xid) -> Result<(), NotSent> {
    reverse.begin(xid, 100).map(|_| ())
}

// covers: RSP-016, RSP-160, RSP-162
#[test]
fn no_call_is_sent_before_the_client_called_and_allowed_it() {
    let mut reverse = Reverse::new(4, &TERMS);
    assert_eq!(sent(&mut reverse, XIDS[0]), Err(NotSent::Closed));
    reverse.allow();
    assert_eq!(sent(&mut reverse, XIDS[0]), Err(NotSent::Closed));
    reverse.heard(Version::V1);
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
    let mut reverse = Reverse::new(4, &TERMS);
    reverse.heard(Version::V1);
    assert_eq!(sent(&mut reverse, XIDS[0]), Err(NotSent::Closed));
    reverse.allow();
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
}

// covers: RSP-161, RSP-169
#[test]
fn one_call_is_in_flight_until_a_reply_grants_more() {
    let mut reverse = open(3, 4096);
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
    assert_eq!(sent(&mut reverse, XIDS[1]), Err(NotSent::Busy));
    for (grant, allowed, note) in [
        (2, 2, None),
        (0, 1, Some(Counter::CreditZero)),
        (u32::MAX, 3, Some(Counter::CreditClamped)),
        (1, 1, None),
    ] {
        assert_eq!(reverse.replied(&reply(grant)).note, note);
        assert_eq!(reverse.credits().granted(), allowed);
        for _ in 0..allowed {
            assert_eq!(sent(&mut reverse, XIDS[1]), Ok(()));
        }
        assert_eq!(sent(&mut reverse, XIDS[2]), Err(NotSent::Busy));
        // One Call stays in flight. All other Calls end without a Reply.
        (1..allowed).for_each(|_| reverse.ended());
    }
}

#[test]
fn one_late_answer_is_expected_for_each_call_in_flight() {
    let mut reverse = open(4, 4096);
    assert!(!reverse.unmatched());
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
    reverse.replied(&reply(3));
    assert!(!reverse.unmatched());
    for xid in XIDS {
        assert_eq!(sent(&mut reverse, xid), Ok(()));
    }
    assert_eq!(sent(&mut reverse, XIDS[0]), Err(NotSent::Busy));
    // One of the three Calls is answered in time, and the upper layer gives up the other two. A
    // late answer frees the credit of its Call.
    reverse.replied(&reply(3));
    assert!(reverse.unmatched());
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
    assert_eq!(sent(&mut reverse, XIDS[1]), Ok(()));
    assert_eq!(sent(&mut reverse, XIDS[2]), Err(NotSent::Busy));
    reverse.ended();
    assert!(reverse.unmatched());
    assert!(reverse.unmatched());
    assert!((0..100).all(|_| !reverse.unmatched()));
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
}

#[test]
fn calls_that_the_client_lost_end_the_connection() {
    let mut reverse = open(1, 4096);
    assert_eq!(sent(&mut reverse, XIDS[0]), Ok(()));
    // A Call in flight is no reason to end the connection as long as no other Call waits for a
    // credit.
    assert!((0..100).all(|_| !reverse.tick(2)));
    assert_eq!(sent(&mut reverse, XIDS[1]), Err(NotSent::Busy));
    assert!(!reverse.tick(2) && !reverse.tick(2) && reverse.tick(2));
    // When a Call ends, the waiting time of the other Calls starts again from zero.
    reverse.ended();
    assert!((0..100).all(|_| !reverse.tick(2)));
    assert_eq!(sent(&mut reverse, XIDS[1]), Ok(()));
    assert_eq!(sent(&mut reverse, XIDS[2]), Err(NotSent::Busy));
    assert!(!reverse.tick(2) && !reverse.tick(2));
    assert_eq!(sent(&mut reverse, XIDS[2]), Err(NotSent::Busy));
    assert!(reverse.tick(2));
}

// covers: RSP-163
#[test]
fn a_call_that_does_not_fit_is_not_sent() {
    let mut reverse = open(1, 1024);
    assert_eq!(reverse.longest(), 1024 - 28);
    let long = reverse.begin(Xid(1), 1024 - 27).map(|_| ());
    assert_eq!(long, Err(NotSent::TooLong));
    assert!(reverse.begin(Xid(1), 1024 - 28).is_ok());
}

#[test]
fn a_call_has_no_chunks_and_asks_for_the_slots() {
    let mut reverse = open(5, 4096);
    let header = reverse.begin(Xid(XID), 40).unwrap();
    let mut bytes = vec![0; 28];
    assert_eq!(header.encode(&mut bytes), Ok(28));
    let mut expected = words(&[XID, 1, 5, MSG]);
    expected.extend(words(&NO_LISTS));
    assert_eq!(bytes, expected);
    // This project's client recognizes the message as a reverse Call.
    bytes.extend(words(&[XID, CALL]));
    bytes.extend([0; 32]);
    let found = xprtrdma_proto::classify(&bytes, Version::V1, true);
    assert!(matches!(found, Inbound::ReverseCall(call) if call.payload.len() == 40));
    // One of the byte vectors is a Reply to this Call.
    let answer = named("E16").bytes;
    let Arrival::ReverseReply(found) = sort(&answer, Spoken::One) else {
        panic!("no Reply");
    };
    assert_eq!((found.xid, found.credits), (Xid(1_996_488_705), Credits(4)));
    let refused = named("E17").bytes;
    assert!(matches!(
        sort(&refused, Spoken::One),
        Arrival::ReverseError(Xid(1_996_488_706))
    ));
}

#[test]
fn a_call_and_a_reply_with_one_xid_are_apart() {
    let call = message(&[], &[], None).bytes();
    let mut reply = call.clone();
    reply[28 + 7] = REPLY as u8;
    assert!(matches!(sort(&call, Spoken::One), Arrival::Call(_)));
    assert!(matches!(
        sort(&reply, Spoken::One),
        Arrival::ReverseReply(_)
    ));
}
