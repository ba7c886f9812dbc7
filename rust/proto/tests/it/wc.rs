// SPDX-License-Identifier: GPL-2.0

//! Tests of the statuses of work completions, and of calls whose memory cannot be mapped.

use xprtrdma_proto::{
    rpc::unmapped::{
        Unmapped,
        RETRIES, //
    },
    wc::WcStatus,
    Error, //
};

#[test]
fn a_completion_has_the_class_of_its_number() {
    for (raw, class) in [
        (0, WcStatus::Success),
        (1, WcStatus::LocalLength),
        (2, WcStatus::LocalProtection),
        (3, WcStatus::Other),
        (4, WcStatus::LocalProtection),
        (5, WcStatus::Flushed),
        (8, WcStatus::LocalProtection),
        (9, WcStatus::RemoteInvalidRequest),
        (10, WcStatus::RemoteAccess),
        (11, WcStatus::RemoteOperation),
        (12, WcStatus::RetryExceeded),
        (13, WcStatus::RnrExceeded),
        (14, WcStatus::Other),
        (u32::MAX, WcStatus::Other),
    ] {
        assert_eq!(WcStatus::from_raw(raw), class);
    }
}

#[test]
fn memory_that_is_never_mapped_ends_its_call() {
    assert_eq!(RETRIES, 8);
    let mut unmapped = Unmapped::default();
    for (xid, connection) in [(0, 0), (7, 1), (8, 1), (7, 1), (7, 2)] {
        // The count of failures starts again at zero for another call or another connection.
        for _ in 0..RETRIES {
            assert_eq!(unmapped.again(xid, connection), Error::NoBuffers);
        }
        for _ in 0..300 {
            assert_eq!(unmapped.again(xid, connection), Error::Unmappable);
        }
    }
}
