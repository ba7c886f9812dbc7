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

fn ended(completions: &[Completion]) -> Operation {
    let mut operation = Operation::default();
    for &one in completions {
        operation.completed(one);
    }
    operation
}

// covers: RDS-40
#[test]
fn numbers_are_those_of_the_interface() {
    // The socket layer reports the numbers 2 and 3 (RDS-42, RDS-43).
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
fn the_first_failure_is_told() {
    for first in [Refused, Failed] {
        let status = match first {
            Refused => Status::RemoteError,
            _ => Status::OtherError,
        };
        for behind in [0, 1, 8] {
            let mut completions = vec![Done, first];
            completions.extend(vec![Flushed; behind]);
            let tell = ended(&completions).tell(TOLD);
            assert_eq!(tell, Tell::Now(status));
        }
    }
}

// covers: RDS-05
#[test]
fn a_success_is_told_with_the_acknowledgement() {
    assert_eq!(ended(&[Done, Done]).tell(TOLD), Tell::Later);
    // The operation has no message that the peer could acknowledge.
    let alone = Wishes {
        unacknowledged: true,
        ..TOLD
    };
    assert_eq!(ended(&[Done]).tell(alone), Tell::Now(Status::Success));
}

// covers: RDS-43
#[test]
fn what_was_flushed_is_told_by_the_socket_layer() {
    assert_eq!(ended(&[Flushed, Flushed]).tell(TOLD), Tell::Later);
    assert_eq!(ended(&[Done, Flushed]).tell(TOLD), Tell::Later);
}

#[test]
fn what_did_not_begin_is_told_at_once() {
    for wishes in [TOLD, FAILURES] {
        let tell = ended(&[Unmapped]).tell(wishes);
        assert_eq!(tell, Tell::Now(Status::OtherError));
    }
    assert_eq!(ended(&[Unmapped]).tell(Wishes::default()), Tell::Later);
}

// covers: RDS-15 RDS-18 RDS-37
#[test]
fn failures_alone_are_told_when_the_message_is_dropped() {
    let tell = ended(&[Refused, Flushed]).tell(FAILURES);
    assert_eq!(tell, Tell::WhenDropped(Status::RemoteError));
    assert_eq!(ended(&[Done]).tell(FAILURES), Tell::Later);
    assert_eq!(ended(&[Refused]).tell(Wishes::default()), Tell::Later);
}
