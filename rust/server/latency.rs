// SPDX-License-Identifier: GPL-2.0

//! Counts how long calls spend in each stage of processing, if this is switched on: `latency` and
//! `measure_latency` in debugfs.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    }, //
};
use kernel::prelude::*;
use xprtrdma_proto::latency::{
    below_us,
    bucket,
    BUCKETS, //
};
use xprtrdma_svc::util::{
    debugfs::File,
    files,
    measuring::{
        is_measured,
        switch_file,
        write_histogram, //
    },
    now_ns, //
};

/// A stage in the processing of a call. Each stage begins when the preceding one ends.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// From the arrival of the message until the whole call has arrived. In this stage the call
    /// waits for memory and for its RDMA Reads.
    Read,
    /// Until the RPC server sends its reply. In this stage the call waits for a thread, and nfsd
    /// processes it.
    Serve,
    /// Until the reply is posted, or stored because the send queue is full.
    Reply,
    /// Until the client's device has acknowledged the RDMA Writes of the reply, if there are any.
    Write,
}

const STAGES: [&str; 4] = ["read", "serve", "reply", "write"];

/// Number of calls in each bucket of each stage. The counters order no other memory accesses.
static TIMES: [[AtomicU64; BUCKETS]; STAGES.len()] =
    [const { [const { AtomicU64::new(0) }; BUCKETS] }; STAGES.len()];

/// Time at which a stage began, in nanoseconds; zero if latency is not measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Since(u64);

impl Since {
    /// Starts the first stage of a call.
    #[inline(always)]
    pub(crate) fn arrival() -> Self {
        match is_measured() {
            true => Self(now_ns()),
            false => Self(0),
        }
    }

    /// Ends this stage, and starts the next one.
    #[inline(always)]
    pub(crate) fn end(self, stage: Stage) -> Self {
        match self.0 {
            0 => self,
            since => Self::count(stage, since),
        }
    }

    #[cold]
    fn count(stage: Stage, since: u64) -> Self {
        let now = now_ns();
        let times = TIMES.get(stage as usize);
        let at = bucket(now.saturating_sub(since));
        if let Some(count) = times.and_then(|times| times.get(at)) {
            count.fetch_add(1, Relaxed);
        }
        Self(now)
    }

    /// Returns the tag of a transfer: the time of this object in the upper half, and the xid in the
    /// lower half.
    #[inline(always)]
    pub(crate) fn with(self, xid: u32) -> u64 {
        // CAST: The upper half holds the time in units of 1024 ns, which wraps after an hour. It is
        // zero if latency is not measured.
        (self.0 / 1024) << 32 | u64::from(xid)
    }

    /// Ends the stage of the transfer that has this tag.
    #[inline(always)]
    pub(crate) fn end_transfer(tag: u64) {
        if tag >> 32 != 0 {
            let now = now_ns();
            let passed = (now / 1024).wrapping_sub(tag >> 32) & u64::from(u32::MAX);
            // NO-OVERFLOW: The product is less than 2^42.
            let since = now.saturating_sub(passed.wrapping_mul(1024));
            Self::count(Stage::Write, since);
        }
    }
}

/// Creates the debugfs files.
pub(crate) fn files_of_latency() -> Result<[File<()>; 2]> {
    let dir = files().ok_or(ENODEV)?;
    Ok([
        File::new(&dir, c"latency", (), Some(show), None)?,
        switch_file(&dir)?,
    ])
}

fn show((): &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write_histogram(
        f,
        STAGES.into_iter().zip(&TIMES),
        (0..BUCKETS).map(below_us),
        |times, at| times.get(at).map_or(0, |n| n.load(Relaxed)),
    )
}
