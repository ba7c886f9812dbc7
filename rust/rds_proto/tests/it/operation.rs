// SPDX-License-Identifier: GPL-2.0

//! How operations complete.

use xprtrdma_rds_proto::operation::{
    Completion::*,
    *, //
};

const TOLD: Wishes = Wishes {
    notify: true,
    failures: false,
    unacknowledged: false,
};
const FAILURES: Wishes = Wishes {
    notify: false,
    failures: true,
    unacknowledged: false,
};

// covers: RDS-40
#[test]
fn numbers_are_those_of_the_interface() {
    // The numbers 2 and 3 are missing, because the socket layer reports them (RDS-42, RDS-43).
    for (status, number) in [
        (Status::Success, 0),
        (Status::RemoteError, 1),
        (Status::OtherError, 4),
    ] {
        assert_eq!(status.raw(), number);
    }
}

// covers: RDS-41 RDS-44
#[test]
fn a_failure_is_told_with_its_reason() {
    assert_eq!(Refused.tell(TOLD), Tell::Now(Status::RemoteError));
    assert_eq!(Failed.tell(TOLD), Tell::Now(Status::OtherError));
}

// covers: RDS-05
#[test]
fn a_success_is_told_with_the_acknowledgement() {
    assert_eq!(Done.tell(TOLD), Tell::Later);
    // The operation has no message that the peer could acknowledge.
    let alone = |wishes| Wishes {
        unacknowledged: true,
        ..wishes
    };
    assert_eq!(Done.tell(alone(TOLD)), Tell::Now(Status::Success));
    assert_eq!(Done.tell(alone(FAILURES)), Tell::Later);
}

// covers: RDS-43
#[test]
fn what_was_flushed_is_told_by_the_socket_layer() {
    for wishes in [TOLD, FAILURES] {
        assert_eq!(Flushed.tell(wishes), Tell::Later);
    }
}

#[test]
fn what_did_not_begin_is_told_at_once() {
    for wishes in [TOLD, FAILURES] {
        assert_eq!(Unmapped.tell(wishes), Tell::Now(Status::OtherError));
    }
    assert_eq!(Unmapped.tell(Wishes::default()), Tell::Later);
}

// covers: RDS-15 RDS-18 RDS-37
#[test]
fn failures_alone_are_told_when_the_message_is_dropped() {
    let told = Tell::WhenDropped(Status::RemoteError);
    assert_eq!(Refused.tell(FAILURES), told);
    assert_eq!(Done.tell(FAILURES), Tell::Later);
    assert_eq!(Refused.tell(Wishes::default()), Tell::Later);
}
