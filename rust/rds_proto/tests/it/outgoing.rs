// SPDX-License-Identifier: GPL-2.0

//! The header of a message that is sent.

use crate::extensions::{
    extensions,
    Found, //
};
use xprtrdma_rds_proto::{
    extension::Extension,
    header::*,
    outgoing::*,
    region::Cookie, //
};

const WRITE: Chased = Chased {
    key: 5,
    bytes: 100,
    written: true,
    notify: false,
};

/// Returns a handle, as the socket layer makes it.
fn handle(key: u32, offset: u32) -> Cookie {
    Cookie(u64::from(offset) << 32 | u64::from(key))
}

// covers: RDS-09 RDS-10 RDS-58
#[test]
fn a_handle_is_in_the_header() {
    let mut header = Header::default();
    let facts = Facts {
        cookie: Some(handle(7, 4095)),
        ..Facts::default()
    };
    complete(&mut header, &facts);
    let handle = Extension::RdmaDest {
        key: 7,
        offset: 4095,
    };
    assert_eq!(extensions(&header.extensions), [Found::Own(handle)]);
    // The message requests an acknowledgement, so that the region of the handle is released after
    // one round trip (RDS-47).
    assert!(header.has(ACK_REQUIRED));
}

#[test]
fn an_operation_is_named_by_its_message() {
    let mut header = Header::default();
    let facts = Facts {
        operation: Some(WRITE),
        ..Facts::default()
    };
    complete(&mut header, &facts);
    let all = [
        Extension::Rdma { key: 5 },
        Extension::RdmaBytes {
            bytes: 100,
            written: true,
        },
    ];
    assert_eq!(extensions(&header.extensions), all.map(Found::Own));
    assert_eq!(header.flags, HAS_RDMA_BYTES);
    // Success is reported when the acknowledgement arrives. So the message requests an immediate
    // acknowledgement.
    let told = Facts {
        operation: Some(Chased {
            notify: true,
            ..WRITE
        }),
        ..Facts::default()
    };
    let mut header = Header::default();
    complete(&mut header, &told);
    assert!(header.has(ACK_REQUIRED));
}

#[test]
fn a_message_that_is_sent_again_says_so_once() {
    let mut header = Header::default();
    let facts = Facts {
        cookie: Some(handle(7, 0)),
        ..Facts::default()
    };
    complete(&mut header, &facts);
    let first = header;
    let again = Facts {
        retransmitted: true,
        ..facts
    };
    complete(&mut header, &again);
    assert_eq!(header.extensions, first.extensions);
    assert_eq!(header.flags, ACK_REQUIRED | RETRANSMITTED);
}

#[test]
fn a_plain_message_asks_for_what_it_was_told() {
    let mut header = Header::default();
    complete(&mut header, &Facts::default());
    assert_eq!(header, Header::default());
    let facts = Facts {
        ack_required: true,
        ..Facts::default()
    };
    complete(&mut header, &facts);
    assert_eq!(header.flags, ACK_REQUIRED);
}

#[test]
fn each_fragment_has_the_present_acknowledgement_and_credits() {
    let header = Header {
        sequence: 7,
        len: 9000,
        sport: 1,
        dport: 2,
        ..Header::default()
    };
    let mut front = Front::new(&header);
    for (ack, credit) in [
        (0, 0),
        (0, 0),
        (5, 0),
        (5, 3),
        (5, 3),
        (5, 0),
        (6, 1),
        (0, 0),
    ] {
        let expected = Header {
            ack,
            credit,
            ..header
        };
        assert_eq!(front.next(ack, credit), &expected.encode());
    }
}
