// SPDX-License-Identifier: GPL-2.0

//! The transport's line in `/proc/self/mountstats`.

use crate::{
    counters::Tally, //
    driver::Rdma,
};
use kernel::{
    seq_file::SeqFile,
    seq_print, //
};
use xprtrdma_proto::Counter;
use xprtrdma_sunrpc::xprt::Xprt;

/// Writes the `xprt:` line. The columns and their order are what `mountstats` and `nfsiostat`
/// parse by position: ten of the RPC client, then sixteen of this transport and a constant.
pub(crate) fn show(xprt: &Xprt<Rdma>, m: &SeqFile) {
    let s = xprt.stat();
    let t = &xprt.data().stats;
    let moved = Tally::of(xprt);
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
    seq_print!(
        m,
        "{} {} {} {} {} {} {} {} ",
        moved.read_segments,
        moved.write_segments,
        moved.reply_segments,
        moved.offered_bytes,
        moved.placed_bytes,
        moved.copied_out,
        moved.copied_in,
        0,
    );
    seq_print!(
        m,
        "{} {} {} {} {} {} {} {} 0\n",
        t.failed_marshal.get(),
        t.bad_reply.get(),
        t.long_calls.get(),
        0,
        0,
        t.unusual(Counter::MrsAllocated),
        t.unusual(Counter::LocalInv),
        t.send_queue_full.get(),
    );
}
