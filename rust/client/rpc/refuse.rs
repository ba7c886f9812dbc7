// SPDX-License-Identifier: GPL-2.0

//! Fails calls that cannot be sent over RDMA.

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

/// Fails a call that cannot be sent over RDMA (V1-097).
pub(super) fn refuse(counters: &Counters, call: &Call<'_, Rdma>, error: xprtrdma_proto::Error) {
    report(counters, call, error);
    // No memory of the call was mapped. So the driver borrows no memory of the call, and `fail`
    // cannot return an error.
    let _ = call.fail(Error::from_errno(error.to_errno()));
}

/// Counts and logs a call that cannot be sent over RDMA.
pub(super) fn report(counters: &Counters, call: &Encoded<'_, Rdma>, error: xprtrdma_proto::Error) {
    counters.add(Ordinary::FailedMarshal);
    if may_log() {
        let (message, reply) = (call.message(), call.reply());
        // LOG: The request ended with `EIO`. The cause is in the log line. If it is `Unmappable`,
        // all bounce buffers (`swiotlb=` makes more) or all IOMMU addresses are in use, or the
        // device cannot access the memory. Otherwise the request needs more segments than fit into
        // a message, because `region_pages` or `inline_size` is very small.
        pr_warn!(
            "a request of {} bytes with a reply of up to {} bytes cannot be carried: {error:?}\n",
            message.len(),
            reply.capacity()
        );
    }
}
