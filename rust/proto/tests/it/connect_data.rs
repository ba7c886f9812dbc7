// SPDX-License-Identifier: GPL-2.0

//! Tests of the private data of connection setup, and of the thresholds that are computed from the
//! private data.

use xprtrdma_proto::{
    private_data::MAX_SIZE,
    PrivateData,
    Thresholds,
    Version, //
};

const GOOD: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 15];
const GOOD_DATA: PrivateData = PrivateData {
    remote_invalidation: true,
    send_size: 4096,
    receive_size: 16384,
};

// covers: CM-03, CM-07
#[test]
fn sizes_are_rounded_down_to_what_can_be_said() {
    let table = [
        (0, 0x00),
        (1, 0x00),
        (1023, 0x00),
        (1024, 0x00),
        (2047, 0x00),
        (2048, 0x01),
        (4095, 0x02),
        (4096, 0x03),
        (5000, 0x03),
        (262_143, 0xfe),
        (262_144, 0xff),
        (262_145, 0xff),
        (263_168, 0xff),
        (u32::MAX, 0xff),
    ];
    for (size, code) in table {
        for remote_invalidation in [false, true] {
            for (send_size, receive_size, send, receive) in
                [(size, 1024, code, 0), (1024, size, 0, code)]
            {
                let data = PrivateData {
                    remote_invalidation,
                    send_size,
                    receive_size,
                };
                let flags = u8::from(remote_invalidation);
                let expected = [0xf6, 0xab, 0x0e, 0x18, 1, flags, send, receive];
                assert_eq!(data.encode(), expected);
            }
        }
    }
}

// covers: CM-06
#[test]
fn every_size_that_can_be_said_survives() {
    for code in 0..=255u8 {
        for other in [0, 0x7f, 0xff] {
            let mut bytes = GOOD;
            bytes[6] = code;
            bytes[7] = other;
            let data = PrivateData::find(&bytes).unwrap();
            assert_eq!(data.send_size, (u32::from(code) + 1) * 1024);
            assert_eq!(data.receive_size, (u32::from(other) + 1) * 1024);
            assert_eq!(data.encode(), bytes);
        }
    }
}

// covers: CM-04, MAL-147, X-23
#[test]
fn reserved_bits_are_ignored() {
    for flags in 0..=255u8 {
        let mut bytes = GOOD;
        bytes[5] = flags;
        let data = PrivateData::find(&bytes).unwrap();
        assert_eq!(data.remote_invalidation, flags & 1 == 1);
    }
}

// covers: CM-13, MAL-141
#[test]
fn another_identifier_is_no_private_data() {
    assert_eq!(PrivateData::find(&[]), None);
    assert_eq!(PrivateData::find(&[0; 196]), None);
    for at in 0..4 {
        for bit in 0..8 {
            let mut bytes = GOOD;
            bytes[at] ^= 1 << bit;
            assert_eq!(PrivateData::find(&bytes), None);
        }
    }
}

// covers: CM-05, CM-14, MAL-142
#[test]
fn another_format_version_is_no_private_data() {
    for version in 0..=255u8 {
        let mut bytes = GOOD;
        bytes[4] = version;
        assert_eq!(PrivateData::find(&bytes).is_some(), version == 1);
    }
}

// covers: CM-12, MAL-140, MAL-143, MAL-144, MAL-148
#[test]
fn private_data_are_found_at_any_alignment_and_only_whole() {
    for before in 0..200 {
        for after in [0, 1, 7, 188] {
            let mut bytes = vec![0xc0; before];
            bytes.extend(GOOD);
            bytes.resize(before + 8 + after, 0);
            assert_eq!(PrivateData::find(&bytes), Some(GOOD_DATA));
            for missing in 1..=8 {
                assert_eq!(PrivateData::find(&bytes[..before + 8 - missing]), None);
            }
        }
    }
}

// covers: MAL-145
#[test]
fn a_false_identifier_does_not_hide_the_real_one() {
    // Each byte string begins like private data, but has another version or is truncated.
    let false_starts: [&[u8]; 4] = [
        &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 9, 9],
        &[0xf6, 0xab, 0x0e, 0x18],
        &[0xf6, 0xab, 0x0e],
        &[0xf6, 0xab, 0x0e, 0x18, 0],
    ];
    for start in false_starts {
        let bytes: Vec<u8> = start.iter().chain(&GOOD).copied().collect();
        assert_eq!(PrivateData::find(&bytes), Some(GOOD_DATA));
    }
    // If the bytes contain the private data twice, the first valid occurrence counts.
    let mut second = GOOD;
    second[6] = 0;
    let bytes: Vec<u8> = GOOD.iter().chain(&second).copied().collect();
    assert_eq!(PrivateData::find(&bytes), Some(GOOD_DATA));
}

// covers: V1-024, V1-025, V1-026, CM-01, CM-08, CM-09, CM-10, CM-16, CM-20, CM-22, CM-23, MAL-146
#[test]
fn thresholds_are_what_both_can_do() {
    let data = |remote_invalidation, send_size, receive_size| PrivateData {
        remote_invalidation,
        send_size,
        receive_size,
    };
    let own = data(true, 4096, 8192);
    let table = [
        (None, 1024, 1024, false),
        (Some(PrivateData::ABSENT), 1024, 1024, false),
        (Some(data(true, 1024, 1024)), 1024, 1024, true),
        (Some(data(true, 4096, 4096)), 4096, 4096, true),
        (Some(data(false, 8192, 2048)), 2048, 8192, false),
        (Some(data(true, MAX_SIZE, MAX_SIZE)), 4096, 8192, true),
        // Every peer can receive 1024 bytes, whatever it advertises.
        (Some(data(true, 0, 0)), 1024, 1024, true),
    ];
    for (peer, call, reply, remote_invalidation) in table {
        let expected = Thresholds {
            call,
            reply,
            remote_invalidation,
        };
        let found = Thresholds::negotiate(Version::V1, &own, peer.as_ref());
        assert_eq!(found, expected);
    }
    // Remote invalidation is used only if both ends announce it.
    let silent = data(false, 4096, 4096);
    let found = Thresholds::negotiate(Version::V1, &silent, Some(&own));
    assert!(!found.remote_invalidation);
    assert_eq!(PrivateData::ABSENT.send_size, 1024);
    assert_eq!(PrivateData::ABSENT.receive_size, 1024);
}

// covers: CM-21, V2-02, X-19
#[test]
fn a_version_2_peer_can_do_4096() {
    let own = PrivateData {
        remote_invalidation: true,
        send_size: 65536,
        receive_size: 65536,
    };
    for (said, expected) in [(1024, 4096), (4096, 4096), (8192, 8192), (MAX_SIZE, 65536)] {
        let peer = PrivateData {
            remote_invalidation: true,
            send_size: said,
            receive_size: said,
        };
        let found = Thresholds::negotiate(Version::V2, &own, Some(&peer));
        assert_eq!((found.call, found.reply), (expected, expected));
        assert!(found.remote_invalidation);
    }
    let found = Thresholds::negotiate(Version::V2, &own, None);
    assert_eq!((found.call, found.reply), (4096, 4096));
    assert!(!found.remote_invalidation);
}

#[test]
fn the_fall_back_is_the_minimum() {
    let own = PrivateData::ABSENT;
    let found = Thresholds::negotiate(Version::V1, &own, None);
    assert_eq!(found, Thresholds::MINIMUM);
    assert_eq!(Thresholds::MINIMUM.call, 1024);
    assert_eq!(Thresholds::MINIMUM.reply, 1024);
}

// covers: BC-06, BC-22, BC-23, BC-32, V2-33, MAL-131
#[test]
fn reverse_messages_share_the_thresholds() {
    let thresholds = Thresholds {
        call: 4096,
        reply: 8192,
        remote_invalidation: false,
    };
    for (version, header) in [(Version::V1, 28), (Version::V2, 32)] {
        assert_eq!(thresholds.reverse_call_max(version), 8192 - header);
        assert_eq!(thresholds.reverse_reply_max(version), 4096 - header);
    }
}
