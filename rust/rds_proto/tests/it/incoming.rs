// SPDX-License-Identifier: GPL-2.0

//! Tests of the assembly of fragments into messages.

use xprtrdma_rds_proto::{
    header::*,
    incoming::{
        opened,
        Assembly,
        Part, //
    },
};

fn of(len: u32) -> Header {
    Header {
        sequence: 9,
        len,
        sport: 1,
        dport: 2,
        ..Header::default()
    }
}

/// Returns the header of a frame that contains only an acknowledgement and credits.
fn acknowledgement(ack: u64, credit: u8) -> Header {
    Header {
        ack,
        credit,
        ..Header::default()
    }
}

#[test]
fn fragments_of_any_length_are_a_message() {
    for len in [0, 1, 4095, 4096, 4097, 8192, 10_000, MESSAGE_BYTES] {
        let mut assembly = Assembly::default();
        let mut at = 0;
        loop {
            let payload = (len - at).min(FRAGMENT_BYTES);
            let last = at + payload == len;
            let part = assembly.take(&of(len), payload as usize);
            assert_eq!(part, Ok(Part::Message { at, last }));
            at += payload;
            if last {
                break;
            }
        }
        // After a complete message, the assembly is in its initial state again.
        assert_eq!(
            assembly.take(&of(1), 1),
            Ok(Part::Message { at: 0, last: true })
        );
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_with_its_first_fragment() {
    for len in [MESSAGE_BYTES + 1, u32::MAX] {
        let got = Assembly::default().take(&of(len), 4096);
        assert_eq!(got, Err(Fault::TooLong));
    }
}

#[test]
fn a_fragment_has_the_length_of_its_place() {
    for payload in [0, 1, 4095, 4097, 5000, usize::MAX] {
        let got = Assembly::default().take(&of(5000), payload);
        assert_eq!(got, Err(Fault::Fragment));
    }
    let mut assembly = Assembly::default();
    assert!(assembly.take(&of(5000), 4096).is_ok());
    assert_eq!(assembly.take(&of(5000), 905), Err(Fault::Fragment));
}

#[test]
fn no_other_message_comes_between() {
    let begun = of(5000);
    for other in [
        Header {
            sequence: 10,
            ..begun
        },
        Header { len: 5001, ..begun },
        Header { sport: 3, ..begun },
        Header { dport: 3, ..begun },
        Header { flags: 1, ..begun },
    ] {
        let mut assembly = Assembly::default();
        assert!(assembly.take(&begun, 4096).is_ok());
        assert_eq!(assembly.take(&other, 904), Err(Fault::Interleaved));
    }
}

#[test]
fn an_acknowledgement_may_come_between() {
    let mut assembly = Assembly::default();
    assert!(assembly.take(&of(5000), 4096).is_ok());
    let ack = acknowledgement(7, 3);
    assert_eq!(assembly.take(&ack, 0), Ok(Part::Acknowledgement));
    let mut other = assembly;
    assert_eq!(other.take(&ack, 1), Err(Fault::Fragment));
    let mut later = of(5000);
    // The acknowledgement and the credits may differ between fragments.
    (later.ack, later.credit) = (8, 1);
    let part = Part::Message {
        at: 4096,
        last: true,
    };
    assert_eq!(assembly.take(&later, 904), Ok(part));
}

#[test]
fn a_congestion_map_has_one_length() {
    let map = Header {
        len: MAP_BYTES,
        flags: CONGESTION_MAP,
        ..Header::default()
    };
    let mut assembly = Assembly::default();
    assert_eq!(
        assembly.take(&map, 4096),
        Ok(Part::Map { at: 0, last: false })
    );
    let second = Part::Map {
        at: 4096,
        last: true,
    };
    assert_eq!(assembly.take(&map, 4096), Ok(second));
    for len in [1, 4096, MAP_BYTES + 1, 9 * 1024] {
        let map = Header { len, ..map };
        let got = Assembly::default().take(&map, 4096);
        assert_eq!(got, Err(Fault::Map));
    }
}

// A message after a lost message must not be received, because the acknowledgement of the later
// message would also acknowledge the lost message.
#[test]
fn nothing_is_taken_behind_a_fault() {
    let mut assembly = Assembly::default();
    assert_eq!(assembly.take(&of(5000), 1), Err(Fault::Fragment));
    assert_eq!(assembly.take(&of(1), 1), Err(Fault::Ended));
    assert_eq!(assembly.take(&acknowledgement(1, 0), 0), Err(Fault::Ended));
    // If there was no memory for a message, later messages must not be received.
    let mut assembly = Assembly::default();
    assembly.end();
    assert_eq!(assembly.take(&of(1), 1), Err(Fault::Ended));
}

#[test]
fn ports_open_when_their_bits_go() {
    assert_eq!(opened(0b1100, 0b0110), 0b1000);
    assert_eq!(opened(0, u64::MAX), 0);
}
