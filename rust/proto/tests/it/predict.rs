// SPDX-License-Identifier: GPL-2.0

//! What is predicted is what the rules say.

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
        predicted,
        Expected, //
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

/// The chunk with so many bytes written.
fn chunk(length: u32) -> [u32; 6] {
    [1, 1, 0x105, length, 1, 0x0f00]
}

/// What a call expects, and the words of a Reply to it.
fn usual() -> Vec<(Expected<'static>, Vec<u32>)> {
    let rpc = [XID, REPLY, 0, 0, 0, 0];
    let write = Expected::Write(&OFFERED, NON_DATA_MAX);
    let mut all = vec![(
        Expected::Inline,
        [&[XID, 1, 7, 0, 0, 0, 0][..], &rpc].concat(),
    )];
    for length in [0, 1, 4096, 8192] {
        let header = [&[XID, 1, 7, 0, 0][..], &chunk(length), &[0, 0]].concat();
        all.push((write, [&header[..], &rpc].concat()));
    }
    for length in [20, 24, 8192] {
        let header = [&[XID, 1, 7, 1, 0, 0][..], &chunk(length)].concat();
        all.push((Expected::Reply(&OFFERED), header));
    }
    all
}

/// What the rules make of it, if they accept it.
fn judged(bytes: &[u8], expected: Expected<'_>) -> Option<Accept> {
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
    match classify(bytes, Version::V1, true) {
        Inbound::Reply(reply) => match judge(&reply, &offer) {
            Verdict::Accept(accept) => Some(accept),
            _ => None,
        },
        _ => None,
    }
}

/// Whether it is predicted; then the rules must say the same.
fn agrees(bytes: &[u8], expected: Expected<'_>) -> bool {
    let found = predicted(bytes, expected);
    if found.is_some() {
        assert_eq!(found, judged(bytes, expected), "{bytes:02x?}");
    }
    found.is_some()
}

#[test]
fn the_usual_replies_are_predicted() {
    for (expected, message) in usual() {
        assert!(agrees(&words(&message), expected), "{message:x?}");
    }
}

#[test]
fn no_other_word_is_taken_for_the_usual_one() {
    for (expected, message) in usual() {
        let mut taken = 0;
        for at in 0..message.len() {
            let is = message[at];
            let others = [0, 1, 2, 3, 4, 5, 19, 20, 21, 0x105, 0xf00, 8191, 8192, 8196];
            let near = [is ^ 1, is ^ 0x8000_0000, is.wrapping_add(4), u32::MAX];
            for other in others.into_iter().chain(near) {
                let mut changed = message.clone();
                changed[at] = other;
                taken += u32::from(agrees(&words(&changed), expected));
            }
        }
        // Grant, length and what the RPC client decodes may be others.
        assert!(taken > 0);
    }
}

#[test]
fn shorter_and_longer_ones_are_judged_alike() {
    for (expected, message) in usual() {
        let bytes = words(&message);
        for len in 0..bytes.len() + 60 {
            let mut other = bytes.clone();
            other.resize(len, 0);
            agrees(&other, expected);
        }
    }
}

/// Either a message names a call of ours, or it is taken for a Call.
#[test]
fn a_call_of_the_server_names_no_call_of_ours() {
    let call = [XID, 1, 7, 0, 0, 0, 0, XID, CALL, 2, 0x4000_0000, 1];
    assert_eq!(call_xid(&words(&call)), None);
    for at in 0..call.len() {
        for other in [0, 1, 2, u32::MAX] {
            let mut changed = call;
            changed[at] = other;
            let bytes = words(&changed);
            let inbound = classify(&bytes, Version::V1, true);
            let of_the_server = matches!(inbound, Inbound::ReverseCall(_) | Inbound::Refuse(_));
            let found = call_xid(&bytes);
            assert!(found.is_none() || found == Some(Xid(changed[0])));
            // With chunks it is refused all the same, and then nothing is lost by looking.
            if found.is_none() {
                assert!(of_the_server, "{changed:x?}");
            }
            if matches!(inbound, Inbound::ReverseCall(_)) {
                assert_eq!(found, None, "{changed:x?}");
            }
        }
    }
    for (_, message) in usual() {
        assert_eq!(call_xid(&words(&message)), Some(Xid(XID)));
    }
    assert_eq!(call_xid(&[0, 0, 0]), None);
    assert_eq!(call_xid(&[0, 0, 0, 9]), Some(Xid(9)));
}

#[test]
fn a_reply_to_another_offer_is_judged_alike() {
    for (_, message) in usual() {
        for (expected, _) in usual() {
            agrees(&words(&message), expected);
        }
    }
}
