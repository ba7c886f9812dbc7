// SPDX-License-Identifier: GPL-2.0

//! The transport's line in `/proc/self/mountstats`.

use crate::{
    counters::{
        Counters,
        Ordinary, //
    },
    driver::Rdma,
    observe::moved, //
};
use kernel::{
    seq_file::SeqFile,
    seq_print, //
};
use xprtrdma_proto::Counter;
use xprtrdma_sunrpc::xprt::Xprt;

/// Writes the `xprt:` line. `mountstats` and `nfsiostat` parse its columns by position: ten columns
/// of the RPC client, then sixteen of this transport and a constant.
pub(crate) fn show(xprt: &Xprt<Rdma>, counters: &Counters, m: &SeqFile) {
    let s = xprt.stat();
    seq_print!(
        m,
        "\txprt:\trdma 0 {} {} {} {} {} {} {} {} {} ",
        s.bind_count,
        s.connect_count,
        s.connect_time_s,
        s.idle_time_s,
        s.sends,
        s.recvs,
        s.bad_xids,
        s.req_u,
        s.bklog_u,
    );
    for column in moved(xprt).columns() {
        seq_print!(m, "{column} ");
    }
    seq_print!(
        m,
        "{} {} {} {} {} {} {} {} {} 0\n",
        0,
        counters.ordinary(Ordinary::FailedMarshal),
        counters.ordinary(Ordinary::BadReply),
        counters.ordinary(Ordinary::LongCalls),
        0,
        0,
        counters.unusual(Counter::MrsAllocated),
        counters.unusual(Counter::LocalInv),
        counters.ordinary(Ordinary::SendQueueFull),
    );
}
