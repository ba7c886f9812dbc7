// SPDX-License-Identifier: GPL-2.0

//! Tests of private data.

use std::net::{
    IpAddr,
    Ipv4Addr,
    Ipv6Addr, //
};
use xprtrdma_rds_proto::connect::*;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2));
const A6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
const B6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2));

#[test]
fn fields_are_where_rds_has_them() {
    let hello = Hello::new(A, B, 5, 0x0102_0304);
    let (data, len) = hello.encode();
    assert_eq!(len, 32);
    assert_eq!(data[..8], [10, 9, 0, 1, 10, 9, 0, 2]);
    assert_eq!(data[8..16], [3, 1, 0, 3, 5, 0, 0, 0]);
    assert_eq!(data[16..24], [0; 8]);
    assert_eq!(data[24..28], [1, 2, 3, 4]);
    let (data, len) = Hello::new(A6, B6, 5, 7).encode();
    assert_eq!(len, 56);
    assert_eq!((data[15], data[31]), (1, 2));
    assert_eq!(data[32..40], [3, 1, 0, 3, 5, 0, 0, 0]);
    assert_eq!(data[48..52], [0, 0, 0, 7]);
}

#[test]
fn what_is_encoded_is_accepted() {
    for (from, to) in [(A, B), (A6, B6)] {
        let hello = Hello::new(from, to, 3, 9);
        let (data, len) = hello.encode();
        assert_eq!(accept(&data[..len], to, from), Ok(hello));
        // The connection manager appends zeroes to the private data.
        let mut longer = data[..len].to_vec();
        longer.extend([0; 100]);
        assert_eq!(accept(&longer, to, from), Ok(hello));
        assert_eq!(accepted(&longer, to.is_ipv6(), 1), Ok(hello));
    }
}

#[test]
fn data_that_are_cut_off_are_refused() {
    for (from, to, least) in [(A, B, 28), (A6, B6, 52)] {
        let (data, _) = Hello::new(from, to, 0, 0).encode();
        for len in 0..least {
            assert_eq!(accept(&data[..len], to, from), Err(Refusal::Nothing));
            assert!(accepted(&data[..len], to.is_ipv6(), 1).is_err());
        }
        assert!(accept(&data[..least], to, from).is_ok());
    }
}

#[test]
fn addresses_in_the_data_are_those_of_the_connection() {
    let stranger = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 3));
    let (data, len) = Hello::new(A, B, 0, 0).encode();
    let data = &data[..len];
    assert_eq!(accept(data, stranger, A), Err(Refusal::Addresses));
    assert_eq!(accept(data, B, stranger), Err(Refusal::Addresses));
    // A request with swapped addresses is refused as well.
    assert_eq!(accept(data, A, B), Err(Refusal::Addresses));
}

#[test]
fn a_version_that_is_not_common_is_refused() {
    for (major, minors, verdict) in [
        (3, 0b11, None),
        (3, 0b10, None),
        (3, 0b01, Some(Refusal::Version)),
        (3, 0, Some(Refusal::Version)),
        (4, 0b11, Some(Refusal::Version)),
        (9, 0xffff, Some(Refusal::Version)),
        (0, 0, Some(Refusal::Nothing)),
    ] {
        let mut hello = Hello::new(A, B, 0, 0);
        hello.version.major = major;
        hello.minors = minors;
        let (data, len) = hello.encode();
        assert_eq!(accept(&data[..len], B, A).err(), verdict);
    }
    for (major, minor) in [(3, 0), (4, 1), (0, 1)] {
        let mut hello = Hello::new(A, B, 0, 0);
        hello.version = Version { major, minor };
        let (data, len) = hello.encode();
        assert!(accepted(&data[..len], false, 1).is_err());
    }
    assert_eq!(Version::V3_1.raw(), 0x301);
}

#[test]
fn peers_make_a_bounded_number_of_connections() {
    let of = |of_peer, in_all| Crowd {
        known: false,
        of_peer,
        in_all,
    };
    assert!(of(0, 0).has_room());
    assert!(of(Crowd::OF_PEER - 1, Crowd::IN_ALL - 1).has_room());
    assert!(!of(Crowd::OF_PEER, Crowd::OF_PEER).has_room());
    assert!(!of(0, Crowd::IN_ALL).has_room());
    // A connection that already exists can be established again even if the limits are reached.
    let known = Crowd {
        known: true,
        ..of(usize::MAX, usize::MAX)
    };
    assert!(known.has_room());
}

#[test]
fn neither_end_may_have_more_reads_in_flight_than_the_other_serves() {
    let of = |own, served| Reads { own, served };
    // Each end can have more Reads of its own in flight than it can serve for the peer.
    assert_eq!(of(255, 127).answer(of(255, 127)), of(127, 127));
    assert_eq!(of(128, 16).answer(of(4, 2)), of(2, 4));
    assert_eq!(of(4, 2).answer(of(128, 16)), of(4, 2));
    // The peer neither sends nor serves Reads.
    assert_eq!(of(128, 128).answer(of(0, 0)), of(1, 0));
}

#[test]
fn an_answer_that_leaves_this_end_no_read_is_refused() {
    for (from, to) in [(A, B), (A6, B6)] {
        let hello = Hello::new(from, to, 0, 0);
        let (data, len) = hello.encode();
        let answer = |reads| accepted(&data[..len], to.is_ipv6(), reads);
        assert_eq!(answer(0), Err(Refusal::Reads));
        assert_eq!((answer(1), answer(u8::MAX)), (Ok(hello), Ok(hello)));
    }
    // A peer that does not speak RDS and serves no Reads is refused because it does not speak RDS.
    assert_eq!(accepted(&[0; LONGEST], false, 0), Err(Refusal::Nothing));
}
