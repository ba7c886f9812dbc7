// SPDX-License-Identifier: GPL-2.0

//! Tests of predicted replies. A fast check recognizes a reply that has the form which its call
//! expects. The tests compare the results of the fast check with those of the full rules.

use crate::common::{
    words,
    CALL,
    REPLY,
    XID, //
};
use xprtrdma_proto::{
    classify,
    judge,
    judge::Accept,
    predict::{
        call_xid,
        offset_place,
        predicted,
        Expected,
        Returned, //
    },
    Handle,
    Inbound,
    Offer,
    Segment,
    Verdict,
    Version,
    Xid, //
};

const OFFERED: Segment = Segment {
    handle: Handle(0x105),
    length: 8192,
    offset: 0x1_0000_0f00,
};
const NON_DATA_MAX: u32 = 40;

/// Returns the words of a returned chunk, by which the server reports that it wrote `length` bytes.
fn chunk(length: u32) -> [u32; 6] {
    [1, 1, 0x105, length, 1, 0x0f00]
}

const BOTH: [Version; 2] = [Version::V1, Version::V2];

/// Returns the words that precede the chunk lists.
fn front(version: Version, procedure: u32, direction: u32) -> Vec<u32> {
    let mut words = vec![XID, version.number(), 7, procedure];
    if version == Version::V2 {
        words.push(direction);
    }
    words
}

/// Returns descriptions of the replies that calls expect, each with the words of a matching Reply.
fn usual(version: Version) -> Vec<(Expected<'static>, Vec<u32>)> {
    let (msg, nomsg) = (front(version, 0, REPLY), front(version, 1, REPLY));
    let rpc = [XID, REPLY, 0, 0, 0, 0];
    let write = Expected::Write(&OFFERED, NON_DATA_MAX);
    let mut all = vec![(Expected::Inline, [&msg[..], &[0, 0, 0], &rpc].concat())];
    for length in [0, 1, 4096, 8192] {
        let header = [&msg[..], &[0], &chunk(length), &[0, 0]].concat();
        all.push((write, [&header[..], &rpc].concat()));
    }
    for length in [20, 24, 8192] {
        let header = [&nomsg[..], &[0, 0], &chunk(length)].concat();
        all.push((Expected::Reply(&OFFERED), header));
    }
    all
}

/// Returns the result of the full rules, if they accept the message.
fn judged(bytes: &[u8], version: Version, expected: Expected<'_>) -> Option<Accept> {
    let segments = [OFFERED];
    let writes = [&segments[..]];
    let offer = match expected {
        Expected::Inline => Offer::default(),
        Expected::Write(_, non_data_max) => Offer {
            writes: &writes,
            non_data_max,
            ..Offer::default()
        },
        Expected::Reply(_) => Offer {
            reply: Some(&segments),
            ..Offer::default()
        },
    };
    match classify(bytes, version, true) {
        Inbound::Reply(reply) => match judge(&reply, &offer) {
            Verdict::Accept(accept) => Some(accept),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether the fast check accepts the message. If so, checks that the full rules accept the
/// message with the same result.
fn agrees(bytes: &[u8], version: Version, expected: Expected<'_>) -> bool {
    let found = predicted(bytes, version, expected);
    if found.is_some() {
        assert_eq!(found, judged(bytes, version, expected), "{bytes:02x?}");
    }
    found.is_some()
}

/// Returns all descriptions of expected replies, in both protocol versions, each with a matching
/// Reply.
fn all_usual() -> impl Iterator<Item = (Version, Expected<'static>, Vec<u32>)> {
    BOTH.into_iter().flat_map(|version| {
        usual(version)
            .into_iter()
            .map(move |(e, m)| (version, e, m))
    })
}

#[test]
fn the_usual_replies_are_predicted() {
    for (version, expected, message) in all_usual() {
        assert!(agrees(&words(&message), version, expected), "{message:x?}");
    }
}

// A reply that repeats the random offset of a region proves that the server has received the call
// with this offset. For this proof, the offset must be read at the right position of the reply.
#[test]
fn the_offset_is_where_it_is_looked_for() {
    for (version, expected, message) in all_usual() {
        let (returned, segment) = match expected {
            Expected::Inline => continue,
            Expected::Write(segment, _) => (Returned::Write, segment),
            Expected::Reply(segment) => (Returned::Reply, segment),
        };
        let bytes = words(&message);
        let at = offset_place(returned, version);
        assert_eq!(bytes[at..at + 8], segment.offset.to_be_bytes());
        // The message contains the segment's offset at this position only.
        let places = bytes.windows(8).enumerate();
        let same = places.filter(|(_, word)| *word == segment.offset.to_be_bytes());
        assert_eq!(same.map(|(place, _)| place).collect::<Vec<_>>(), [at]);
    }
}

#[test]
fn no_other_word_is_taken_for_the_usual_one() {
    for (version, expected, message) in all_usual() {
        let mut taken = 0;
        for at in 0..message.len() {
            let is = message[at];
            let others = [0, 1, 2, 3, 4, 5, 19, 20, 21, 0x105, 0xf00, 8191, 8192, 8196];
            let near = [is ^ 1, is ^ 0x8000_0000, is.wrapping_add(4), u32::MAX];
            for other in others.into_iter().chain(near) {
                let mut changed = message.clone();
                changed[at] = other;
                taken += u32::from(agrees(&words(&changed), version, expected));
            }
        }
        // The fast check accepts some changed messages: the grant, the length, and the words that
        // the RPC client decodes may differ.
        assert!(taken > 0);
    }
}

#[test]
fn shorter_and_longer_ones_are_judged_alike() {
    for (version, expected, message) in all_usual() {
        let bytes = words(&message);
        for len in 0..bytes.len() + 60 {
            let mut other = bytes.clone();
            other.resize(len, 0);
            agrees(&other, version, expected);
        }
    }
}

// covers: BC-02, MAL-122
/// A message either has the xid of a client's call, or is treated as a Call.
#[test]
fn a_call_of_the_server_names_no_call_of_ours() {
    let call = [XID, 1, 7, 0, 0, 0, 0, XID, CALL, 2, 0x4000_0000, 1];
    assert_eq!(call_xid(&words(&call), Version::V1), None);
    for at in 0..call.len() {
        for other in [0, 1, 2, u32::MAX] {
            let mut changed = call;
            changed[at] = other;
            let bytes = words(&changed);
            let inbound = classify(&bytes, Version::V1, true);
            let of_the_server = matches!(inbound, Inbound::ReverseCall(_) | Inbound::Refuse(_));
            let found = call_xid(&bytes, Version::V1);
            assert!(found.is_none() || found == Some(Xid(changed[0])));
            // The client refuses every Call that has chunks. So it does no harm if `call_xid`
            // returns the xid of such a Call.
            if found.is_none() {
                assert!(of_the_server, "{changed:x?}");
            }
            if matches!(inbound, Inbound::ReverseCall(_)) {
                assert_eq!(found, None, "{changed:x?}");
            }
        }
    }
    for (version, _, message) in all_usual() {
        assert_eq!(call_xid(&words(&message), version), Some(Xid(XID)));
    }
    for version in BOTH {
        assert_eq!(call_xid(&[0, 0, 0], version), None);
        assert_eq!(call_xid(&[0, 0, 0, 9], version), Some(Xid(9)));
    }
}

// covers: V2-19, MAL-169
/// In version 2 the header of every Call, Reply and option contains the direction, whatever chunks
/// the message has.
#[test]
fn what_the_server_asks_in_version_2_names_no_call_of_ours() {
    for procedure in [0, 1, 5] {
        let mut call = front(Version::V2, procedure, CALL);
        call.extend([0, 0, 0, XID, CALL, 2, 0x4000_0000, 1]);
        assert_eq!(call_xid(&words(&call), Version::V2), None);
        let reply = [
            front(Version::V2, procedure, REPLY),
            vec![0, 0, 0, XID, REPLY],
        ]
        .concat();
        assert_eq!(call_xid(&words(&reply), Version::V2), Some(Xid(XID)));
    }
    let short = words(&front(Version::V2, 1, CALL));
    assert_eq!(call_xid(&short, Version::V2), Some(Xid(XID)));
    for number in [0, 1, 2, 3] {
        let error = words(&[XID, 2, 7, 4, number, 0, 0, 0]);
        assert_eq!(call_xid(&error, Version::V2), Some(Xid(XID)));
    }
    // If `call_xid` returns `None` for a message, the full rules must not take the message for an
    // answer to a call, not even for a bad reply.
    for at in 0..10 {
        for other in [0, 1, 2, 3, 4, 5, 6, u32::MAX] {
            let mut changed = front(Version::V2, 0, CALL);
            changed.extend([0, 0, 0, XID, REPLY, 0, 0, 0, 0]);
            changed[at] = other;
            let bytes = words(&changed);
            if call_xid(&bytes, Version::V2).is_none() {
                match classify(&bytes, Version::V2, true) {
                    Inbound::Reply(_) | Inbound::Error(_) => panic!("{changed:x?}"),
                    Inbound::Discard(discard) => assert_eq!(discard.xid, None, "{changed:x?}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_reply_to_another_offer_is_judged_alike() {
    for (_, _, message) in all_usual() {
        for (version, expected, _) in all_usual() {
            agrees(&words(&message), version, expected);
        }
    }
}
