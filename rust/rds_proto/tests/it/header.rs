// SPDX-License-Identifier: GPL-2.0

//! Tests of headers and extensions on the wire.

use crate::{
    extensions::{
        extensions,
        Found, //
    },
    random::Random, //
};
use xprtrdma_rds_proto::{
    extension::{
        add,
        only,
        Extension, //
    },
    header::*,
};

fn random(random: &mut Random) -> Header {
    let mut bytes = [0; EXTENSION_BYTES];
    bytes[..8].copy_from_slice(&random.next().to_be_bytes());
    Header {
        sequence: random.next(),
        ack: random.next(),
        len: random.next() as u32,
        sport: random.next() as u16,
        dport: random.next() as u16,
        flags: random.next() as u8,
        credit: random.next() as u8,
        extensions: bytes,
    }
}

#[test]
fn fields_are_where_rds_has_them() {
    let header = Header {
        sequence: 0x0102_0304_0506_0708,
        ack: 0x1112_1314_1516_1718,
        len: 0x2122_2324,
        sport: 0x3132,
        dport: 0x4142,
        flags: 0x51,
        credit: 0x61,
        extensions: *b"0123456789abcdef",
    };
    let bytes = header.encode();
    assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(
        bytes[8..16],
        [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]
    );
    assert_eq!(bytes[16..20], [0x21, 0x22, 0x23, 0x24]);
    assert_eq!(
        bytes[20..30],
        [0x31, 0x32, 0x41, 0x42, 0x51, 0x61, 0, 0, 0, 0]
    );
    assert_eq!(bytes[32..], *b"0123456789abcdef");
}

#[test]
fn the_checksum_is_that_of_ipv4() {
    // The first 20 bytes of this header are the header of an IPv4 packet, whose checksum is known.
    // All other bytes are zero.
    let mut header = Header {
        sequence: 0x4500_0073_0000_4000,
        ack: 0x4011_0000_c0a8_0001,
        len: 0xc0a8_00c7,
        ..Header::default()
    };
    assert_eq!(header.encode()[30..32], [0xb8, 0x61]);
    header.ack += 1;
    assert_eq!(header.encode()[30..32], [0xb8, 0x60]);
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut numbers = Random::new(1);
    for _ in 0..1000 {
        let header = random(&mut numbers);
        let mut fragment = header.encode().to_vec();
        fragment.extend([1, 2, 3]);
        assert_eq!(Header::decode(&fragment), Ok((header, &[1u8, 2, 3][..])));
        // The checksum of a header that this host made is not checked.
        let mut own = header.encode();
        own[30..32].copy_from_slice(&[1, 2]);
        assert_eq!(Header::of_own(&own), header);
    }
}

#[test]
fn each_changed_bit_is_noticed() {
    let mut numbers = Random::new(2);
    for _ in 0..20 {
        let bytes = random(&mut numbers).encode();
        for bit in 0..HEADER_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            // A header with a checksum of zero is not checked.
            if changed[30..32] != [0, 0] {
                assert_eq!(Header::decode(&changed), Err(Fault::Checksum));
            }
        }
    }
}

#[test]
fn a_header_without_a_checksum_is_taken() {
    let mut bytes = Header::default().encode();
    bytes[30..32].copy_from_slice(&[0, 0]);
    bytes[3] = 7;
    assert!(Header::decode(&bytes).is_ok());
}

#[test]
fn a_short_fragment_is_a_fault() {
    let bytes = Header::default().encode();
    for len in 0..HEADER_BYTES {
        assert_eq!(Header::decode(&bytes[..len]), Err(Fault::Short));
    }
}

#[test]
fn extensions_follow_each_other() {
    let all = [
        Extension::Rdma { key: 0x0102_0304 },
        Extension::RdmaBytes {
            bytes: 77,
            written: true,
        },
    ];
    let mut bytes = [0; EXTENSION_BYTES];
    for one in all {
        assert!(add(&mut bytes, one));
    }
    assert_eq!(bytes, [2, 1, 2, 3, 4, 4, 0, 0, 0, 77, 1, 0, 0, 0, 0, 0]);
    assert_eq!(extensions(&bytes), all.map(Found::Own));
    // With these extensions the header has no space for another extension with a handle.
    let handle = Extension::RdmaDest { key: 1, offset: 2 };
    assert!(!add(&mut bytes, handle));
    assert_eq!(extensions(&bytes).len(), 2);
}

#[test]
fn every_extension_is_read_as_written() {
    let all = [
        Extension::Rdma { key: 1 },
        Extension::RdmaDest {
            key: 2,
            offset: 4095,
        },
        Extension::RdmaBytes {
            bytes: 3,
            written: false,
        },
    ];
    for one in all {
        let mut bytes = [0; EXTENSION_BYTES];
        assert!(add(&mut bytes, one));
        assert_eq!(extensions(&bytes), [Found::Own(one)]);
    }
}

// The socket layer may have added an extension of a type that the core never adds.
#[test]
fn an_extension_follows_those_of_other_types() {
    let known: [(&[u8], _); 4] = [
        (&[1, 0, 0, 3, 1], Found::Version(0x301)),
        (&[5, 0, 8], Found::Paths(8)),
        (&[6, 0, 0, 0, 5], Found::Generation(5)),
        (&[8, 1], Found::PortIndex(1)),
    ];
    let added = Extension::RdmaDest {
        key: 0x0102_0304,
        offset: 0x0506,
    };
    for (first, found) in known {
        let mut bytes = [0; EXTENSION_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        assert_eq!(extensions(&bytes), [found]);
        assert!(add(&mut bytes, added));
        let mut expected = [first, &[3, 1, 2, 3, 4, 0, 0, 5, 6]].concat();
        expected.resize(EXTENSION_BYTES, 0);
        assert_eq!(bytes[..], expected);
        assert_eq!(extensions(&bytes), [found, Found::Own(added)]);
    }
}

#[test]
fn extensions_written_at_once_are_those_written_one_by_one() {
    let all = [
        Extension::Rdma { key: 0x0102_0304 },
        Extension::RdmaDest { key: 9, offset: 7 },
        Extension::RdmaBytes {
            bytes: 77,
            written: false,
        },
    ];
    for first in all {
        let mut bytes = [0; EXTENSION_BYTES];
        assert!(add(&mut bytes, first));
        assert_eq!(only(first, None), Some(bytes));
        for second in all {
            let mut both = bytes;
            let added = add(&mut both, second);
            assert_eq!(only(first, Some(second)), added.then_some(both));
        }
    }
}

#[test]
fn an_unknown_extension_ends_the_walk() {
    let mut bytes = [0; EXTENSION_BYTES];
    bytes[0] = 15;
    assert!(!add(&mut bytes, Extension::Rdma { key: 1 }));
    assert_eq!(bytes[0], 15);
}

#[test]
fn any_extension_bytes_end() {
    let mut numbers = Random::new(3);
    for _ in 0..10_000 {
        let mut bytes = [0; EXTENSION_BYTES];
        for byte in &mut bytes {
            *byte = numbers.below(10) as u8;
        }
        let before = extensions(&bytes).len();
        let added = add(&mut bytes, Extension::Rdma { key: 1 });
        assert_eq!(extensions(&bytes).len() > before, added);
    }
}
