// SPDX-License-Identifier: GPL-2.0

//! Counts how long calls spend in each stage, while that is wanted: `latency` and `measure_latency`
//! in debugfs.

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

/// A part of a call's life. Each begins where the one before it ends.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// From the arrival of the message until all of the call is here: it waits for memory and for
    /// its RDMA Reads.
    Read,
    /// Until the reply is given: the call waits for a thread, and nfsd processes it.
    Serve,
    /// Until the answer is posted, or kept because the send queue is full.
    Reply,
    /// Until the client's device has acknowledged the RDMA Writes of the answer, if it has some.
    Write,
}

const STAGES: [&str; 4] = ["read", "serve", "reply", "write"];

/// What is counted orders nothing.
static TIMES: [[AtomicU64; BUCKETS]; STAGES.len()] =
    [const { [const { AtomicU64::new(0) }; BUCKETS] }; STAGES.len()];

/// When a stage began, in nanoseconds; zero if that is not measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Since(u64);

impl Since {
    /// Begins the first stage of a call.
    #[inline(always)]
    pub(crate) fn arrival() -> Self {
        match is_measured() {
            true => Self(now_ns()),
            false => Self(0),
        }
    }

    /// Ends a stage, and begins the next one.
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

    /// Returns the number that a transfer carries beside the xid of its call.
    #[inline(always)]
    pub(crate) fn with(self, xid: u32) -> u64 {
        // CAST: Microseconds of an hour are told apart; 0 if it is not measured.
        (self.0 / 1024) << 32 | u64::from(xid)
    }

    /// Ends the stage of a transfer that has this number.
    #[inline(always)]
    pub(crate) fn end_transfer(tag: u64) {
        if tag >> 32 != 0 {
            let now = now_ns();
            let passed = (now / 1024).wrapping_sub(tag >> 32) & u64::from(u32::MAX);
            // NO-OVERFLOW: Less than 2^42.
            let since = now.saturating_sub(passed.wrapping_mul(1024));
            Self::count(Stage::Write, since);
        }
    }
}

/// Makes the files.
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
