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
/// of the RPC client, then sixteen of this transport and a constant. Columns that are not listed
/// have the tools' meaning, or are always 0.
///
/// | No. | Name in the tools | Meaning here |
/// | --- | --- | --- |
/// | 3, 4 | connect_count, connect_time | connections made; seconds spent connecting |
/// | 6, 7 | sends, recvs | requests sent, replies accepted |
/// | 9, 10 | req_u, bklog_u | requests in flight and waiting for a slot, summed up at each send |
/// | 11 | read_segments | segments of Read chunks: data and long calls for the server to read |
/// | 12, 13 | write_segments, reply_segments | segments of Write chunks; segments of Reply chunks |
/// | 14, 15 | total_rdma_request, total_rdma_reply | bytes of result memory; bytes placed in it |
/// | 16, 17 | pullup_copy, fixup_copy | bytes copied into the send ring and from receive buffers |
/// | 19 | failed_marshal | failed attempts to prepare a request for sending |
/// | 20 | bad_reply | dropped messages |
/// | 21 | nomsg_call | requests sent as long calls |
/// | 24 | mrs_allocated | regions made so far |
/// | 25 | local_inv_needed | value of the counter `local_inv` |
/// | 26 | empty_sendctx_q | value of the counter `send_queue_full` |
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
