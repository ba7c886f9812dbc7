// SPDX-License-Identifier: GPL-2.0

//! Private data from a peer, and the thresholds that follow from them.

use xprtrdma_proto::{
    private_data::MAX_SIZE,
    PrivateData,
    Thresholds,
    Version, //
};

/// Returns the private data that begin with the first occurrence of the RFC 8797 identifier and
/// format version 1. A simple search finds this occurrence.
fn reference(data: &[u8]) -> Option<PrivateData> {
    let size = |code: u8| (u32::from(code) + 1) * 1024;
    (0..data.len()).find_map(|at| match data[at..] {
        [0xf6, 0xab, 0x0e, 0x18, 1, flags, send, receive, ..] => Some(PrivateData {
            remote_invalidation: flags % 2 == 1,
            send_size: size(send),
            receive_size: size(receive),
        }),
        _ => None,
    })
}

/// Checks the bytes that a peer sent when the connection was set up.
pub fn run(data: &[u8]) {
    let found = PrivateData::find(data);
    assert_eq!(found, reference(data));
    let own = PrivateData {
        remote_invalidation: data.len() % 2 == 0,
        send_size: 4096,
        receive_size: 8192,
    };
    for version in [Version::V1, Version::V2] {
        let agreed = Thresholds::negotiate(version, &own, found.as_ref());
        assert!((1024..=own.send_size).contains(&agreed.call));
        assert!((1024..=own.receive_size).contains(&agreed.reply));
        assert!(agreed.reverse_call_max(version) < agreed.reply);
        assert!(agreed.reverse_reply_max(version) < agreed.call);
    }
    if let Some(peer) = found {
        assert!((1024..=MAX_SIZE).contains(&peer.send_size));
        assert_eq!(PrivateData::find(&peer.encode()), Some(peer));
    }
    // An announced size does not exceed the size in `own`, with one exception: if the size in `own`
    // is below 1024 bytes, 1024 bytes are announced.
    if let Some(bytes) = data.first_chunk::<8>() {
        let [a, b, c, d, e, f, g, h] = *bytes;
        let own = PrivateData {
            remote_invalidation: a & 1 != 0,
            send_size: u32::from_be_bytes([a, b, c, d]),
            receive_size: u32::from_be_bytes([e, f, g, h]),
        };
        let told = PrivateData::find(&own.encode()).expect("what we announce is valid");
        for (told, own) in [
            (told.send_size, own.send_size),
            (told.receive_size, own.receive_size),
        ] {
            assert!(told <= own.max(1024) && told <= MAX_SIZE);
            assert!(u64::from(told) + 1024 > u64::from(own.min(MAX_SIZE)));
        }
    }
}
