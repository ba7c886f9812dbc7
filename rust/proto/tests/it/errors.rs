// SPDX-License-Identifier: GPL-2.0

//! Tests of the errno of each error, and of the counters.

use std::collections::HashSet;
use xprtrdma_proto::{
    inbound::RemoteErrorKind,
    Counter,
    Error,
    Notes, //
};

#[test]
fn every_error_has_the_errno_of_the_decision() {
    use Error::*;
    let table = [
        (NoSpace, 5),
        (TooComplex, 5),
        (BadChunk, 5),
        (Unbuildable, 5),
        (Unmappable, 5),
        (RemoteChunk, 121),
        (RemoteVersion, 93),
        (DdpViolation, 5),
        (BadPayload, 5),
        (BadReplies, 5),
        (Disconnected, 107),
        (NoBuffers, 105),
        (Refused, 111),
        (Unreachable, 113),
        (TimedOut, 110),
        (NoDevice, 101),
        (NoDeviceAtMount, 19),
    ];
    for (error, number) in table {
        assert_eq!(error.to_errno(), -number);
    }
}

// covers: V1-090, V1-096, ULB-28, ULB-32, MAL-043, MAL-044, MAL-045, MAL-177
#[test]
fn every_report_of_the_peer_is_final() {
    let table = [
        (RemoteErrorKind::Chunk, Error::RemoteChunk),
        (RemoteErrorKind::InvalOption, Error::RemoteChunk),
        (
            RemoteErrorKind::Version { low: 1, high: 1 },
            Error::RemoteVersion,
        ),
    ];
    for (kind, error) in table {
        assert_eq!(kind.error(), error);
    }
}

/// The names that the requirements give to the counters, in the order of [`Counter::ALL`].
const NAMES: [&str; 39] = [
    "short_msg",
    "bad_vers",
    "bad_proc",
    "bad_xid",
    "dup_reply",
    "bad_chunk",
    "bad_payload",
    "bad_payload_len",
    "xid_mismatch",
    "bad_direction",
    "err_undecodable",
    "trailing",
    "odd_len",
    "imm",
    "stale_epoch",
    "credit_zero",
    "credit_clamped",
    "wlist_missing",
    "rchunk_missing",
    "seg_mismatch",
    "ddp_violation",
    "reminv",
    "reminv_unannounced",
    "reminv_wrong",
    "local_inv",
    "repeated_registration",
    "bc_disabled",
    "bc_overflow",
    "bc_reply_too_big",
    "cm_default",
    "cm_fallback",
    "opt_flood",
    "opt_reply",
    "err_vers",
    "err_chunk",
    "err_bad_header",
    "err_inval_option",
    "mrs_allocated",
    "mrs_in_use",
];

#[test]
fn counters_are_array_indices_with_names() {
    assert_eq!(Counter::COUNT, NAMES.len());
    for ((&counter, name), index) in Counter::ALL.iter().zip(NAMES).zip(0usize..) {
        assert_eq!(counter as usize, index);
        assert_eq!(counter.name(), name);
    }
    let names: HashSet<_> = NAMES.iter().collect();
    assert_eq!(names.len(), NAMES.len());
}

#[test]
fn notes_are_a_set_of_counters() {
    assert!(Notes::NONE.is_empty());
    assert_eq!(Notes::NONE.iter().count(), 0);
    let mut all = Notes::NONE;
    for &counter in Counter::ALL {
        let mut one = Notes::NONE;
        one.insert(counter);
        one.insert(counter);
        assert_eq!(one.iter().collect::<Vec<_>>(), [counter]);
        assert!(!one.is_empty());
        assert!(!all.contains(counter));
        all.insert(counter);
    }
    assert_eq!(all.iter().collect::<Vec<_>>(), Counter::ALL);
}
