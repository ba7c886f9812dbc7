// SPDX-License-Identifier: GPL-2.0

//! Tests for faults that `tools/host/mutants` planted and that no other test detected.

use crate::common::{
    fate,
    rpc,
    Fate,
    Message,
    CALL,
    NOMSG,
    REPLY,
    XID, //
};
use std::collections::BTreeSet;
use xprtrdma_proto::{
    conn::Phase,
    header::RefusalKind,
    wc::WcStatus,
    xdr::Writer,
    Offer,
    Version, //
};

#[test]
fn a_writer_knows_its_room() {
    let mut bytes = [0; 10];
    let mut out = Writer::new(&mut bytes);
    out.array([1; 7]).unwrap();
    out.array([1; 4]).unwrap_err();
}

// covers: V2-15
#[test]
fn a_long_version_2_call_is_refused_whatever_follows_its_header() {
    // An RDMA_NOMSG message contains no RPC message. So bytes after its header are ignored, even if
    // they look like an RPC message.
    for payload in [
        vec![],
        rpc(XID, CALL, 40),
        rpc(XID, REPLY, 40),
        rpc(XID, 7, 40),
    ] {
        let mut message = Message::reverse_call(Version::V2).payload(payload);
        message.procedure = NOMSG;
        let fate = fate(
            &message.bytes(),
            Version::V2,
            true,
            false,
            &Offer::default(),
        );
        assert_eq!(fate, Fate::Refused(RefusalKind::Chunk));
    }
}

#[test]
fn every_status_and_phase_has_a_name_of_its_own() {
    let statuses: BTreeSet<_> = (0..32).map(|raw| WcStatus::from_raw(raw).name()).collect();
    assert_eq!(statuses.len(), 10);
    let phases = [
        Phase::Down,
        Phase::Waiting,
        Phase::Address,
        Phase::Route,
        Phase::QueuePair,
        Phase::Connecting,
        Phase::Negotiating,
        Phase::Up,
        Phase::Closing,
        Phase::Stopped,
    ];
    let names: BTreeSet<_> = phases.iter().map(|phase| phase.name()).collect();
    assert_eq!(names.len(), phases.len());
    assert!(!names.contains("") && !statuses.contains(""));
}
