// SPDX-License-Identifier: GPL-2.0

//! Calls that cannot be carried at all.

use crate::{
    counters::{
        Counters,
        Ordinary, //
    },
    driver::Rdma, //
};
use kernel::prelude::*;
use xprtrdma_sunrpc::{
    call::{
        Call,
        Encoded, //
    },
    util::may_log, //
};

/// Ends a call that cannot be carried (V1-097).
pub(super) fn refuse(counters: &Counters, call: &Call<'_, Rdma>, error: xprtrdma_proto::Error) {
    report(counters, call, error);
    // Nothing was mapped, so nothing is lent.
    let _ = call.fail(Error::from_errno(error.to_errno()));
}

/// Counts a call that cannot be carried, and says so in the log.
pub(super) fn report(counters: &Counters, call: &Encoded<'_, Rdma>, error: xprtrdma_proto::Error) {
    counters.add(Ordinary::FailedMarshal);
    if may_log() {
        let (message, reply) = (call.message(), call.reply());
        pr_warn!(
            "a request of {} bytes with a reply of up to {} bytes cannot be carried: {error:?}\n",
            message.len(),
            reply.capacity()
        );
    }
}
