// SPDX-License-Identifier: GPL-2.0

//! Counters of one transport ([`Stats`]) and its line in `/proc/self/mountstats`.

use crate::client::Client;
use kernel::{
    seq_file::SeqFile,
    seq_print,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use xprtrdma_proto::{
    Counter,
    Notes, //
};
use xprtrdma_sunrpc::xprt::Xprt;

/// A number that only grows. `Relaxed`: nothing is ordered by it.
pub(crate) struct Count(Atomic<u64>);

impl Count {
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds `n`.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    /// The present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters of one transport.
pub(crate) struct Stats {
    unusual: [Count; Counter::COUNT],
    pub(crate) read_segments: Count,
    pub(crate) write_segments: Count,
    pub(crate) reply_segments: Count,
    pub(crate) offered_bytes: Count,
    pub(crate) placed_bytes: Count,
    pub(crate) copied_out: Count,
    pub(crate) copied_in: Count,
    pub(crate) failed_marshal: Count,
    pub(crate) bad_reply: Count,
    pub(crate) long_calls: Count,
    pub(crate) send_queue_full: Count,
    pub(crate) no_region: Count,
    pub(crate) callbacks: Count,
    pub(crate) late_replies: Count,
}

impl Stats {
    pub(crate) const fn new() -> Self {
        Self {
            unusual: [const { Count::new() }; Counter::COUNT],
            read_segments: Count::new(),
            write_segments: Count::new(),
            reply_segments: Count::new(),
            offered_bytes: Count::new(),
            placed_bytes: Count::new(),
            copied_out: Count::new(),
            copied_in: Count::new(),
            failed_marshal: Count::new(),
            bad_reply: Count::new(),
            long_calls: Count::new(),
            send_queue_full: Count::new(),
            no_region: Count::new(),
            callbacks: Count::new(),
            late_replies: Count::new(),
        }
    }

    /// Counts something unusual.
    pub(crate) fn count(&self, counter: Counter) {
        self.count_many(counter, 1);
    }

    /// The same, `n` times.
    pub(crate) fn count_many(&self, counter: Counter, n: u64) {
        if let Some(count) = self.unusual.get(counter as usize) {
            count.add(n);
        }
    }

    /// Counts the oddities of an accepted message.
    #[inline]
    pub(crate) fn note(&self, notes: Notes) {
        if notes != Notes::NONE {
            for counter in Counter::ALL {
                if notes.contains(*counter) {
                    self.count(*counter);
                }
            }
        }
    }

    /// How often something unusual happened.
    pub(crate) fn unusual(&self, counter: Counter) -> u64 {
        self.unusual.get(counter as usize).map_or(0, Count::get)
    }
}

/// Writes the `xprt:` line. The columns and their order are what `mountstats` and `nfsiostat`
/// parse by position: ten of the RPC client, then sixteen of this transport and a constant.
pub(crate) fn show(xprt: &Xprt<Client>, m: &SeqFile) {
    let s = xprt.stat();
    let t = &xprt.data().stats;
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
        t.read_segments.get(),
        t.write_segments.get(),
        t.reply_segments.get(),
        t.offered_bytes.get(),
        t.placed_bytes.get(),
        t.copied_out.get(),
        t.copied_in.get(),
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
