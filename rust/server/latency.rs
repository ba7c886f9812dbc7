// SPDX-License-Identifier: GPL-2.0

//! Counts how long calls spend in each stage of processing, if measuring is switched on. The
//! debugfs files are `latency` and `measure_latency`.

use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    }, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    latency::{
        below_us,
        bucket,
        BUCKETS, //
    },
    Xid, //
};
use xprtrdma_rdma::{
    qp::{
        Qp,
        QpHandler, //
    },
    transfer::Transfer, //
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
    /// The stage from the arrival of the message until the whole call has arrived. The call waits
    /// for memory and for its RDMA Reads.
    Read,
    /// The stage until the RPC server sends the reply. The call waits for a thread, and nfsd
    /// processes the call.
    Serve,
    /// The stage until the reply is posted, or is stored because the send queue is full.
    Reply,
    /// The stage until the client's device has acknowledged the RDMA Writes of the reply. A reply
    /// without RDMA Writes is not counted, because its Send has no completion of its own: one
    /// completion stands for the Sends of several replies.
    Write,
}

const STAGES: [&str; 4] = ["read", "serve", "reply", "write"];

/// Number of calls in each bucket of each stage. The counters order no other memory accesses.
static TIMES: [[AtomicU64; BUCKETS]; STAGES.len()] =
    [const { [const { AtomicU64::new(0) }; BUCKETS] }; STAGES.len()];

/// The time at which a stage began, in nanoseconds. The time is zero if latency is not measured.
#[derive(Clone, Copy, Default)]
pub(crate) struct Since(u64);

/// The time at which the latest message of a connection arrived, if latency is measured. Only the
/// completion handler writes and reads this time, and only one thread at a time runs the handler.
#[derive(Default)]
pub(crate) struct Stamp(AtomicU64);

impl Stamp {
    /// Records that a message has arrived.
    #[inline(always)]
    pub(crate) fn set(&self) {
        if is_measured() {
            self.0.store(now_ns(), Relaxed);
        }
    }

    /// Returns the start of the first stage of a call: the time at which the message arrived.
    #[inline(always)]
    pub(crate) fn since(&self) -> Since {
        match is_measured() {
            true => Since(self.0.load(Relaxed)),
            false => Since(0),
        }
    }

    /// Ends the first stage of a call, which began when the message arrived. Starts the next stage.
    #[inline(always)]
    pub(crate) fn end(&self, stage: Stage) -> Since {
        match is_measured() {
            true => self.since().end_measured(stage),
            false => Since(0),
        }
    }
}

impl Since {
    /// Ends this stage, and starts the next one.
    #[inline(always)]
    pub(crate) fn end(&mut self, stage: Stage) {
        if is_measured() {
            *self = self.end_measured(stage);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_measured(self, stage: Stage) -> Self {
        match self.0 {
            // The call arrived before measuring was switched on.
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

    /// Returns a tag for a transfer whose stage began at this time.
    #[inline(always)]
    pub(crate) fn tag(self, xid: Xid) -> Tag {
        // CAST: The upper half of the tag is the time in units of 1024 ns. This number wraps after
        // 73 minutes. The upper half is zero if latency is not measured.
        Tag((self.0 / 1024) << 32 | u64::from(xid.0))
    }
}

/// The tag of a transfer: the xid of its call, and, if latency is measured, the time at which the
/// stage of the transfer began.
#[derive(Clone, Copy)]
pub(crate) struct Tag(u64);

impl Tag {
    /// Returns a tag without a time, for a transfer whose duration is not measured.
    #[inline(always)]
    pub(crate) fn untimed(xid: Xid) -> Self {
        Self(xid.0.into())
    }

    /// Returns the tag of a transfer.
    #[inline(always)]
    pub(crate) fn of(transfer: &Transfer) -> Self {
        Self(transfer.tag())
    }

    /// Returns the tag of the oldest transfer that has not completed.
    pub(crate) fn of_oldest<H: QpHandler>(qp: &Qp<H>) -> Option<Self> {
        qp.oldest_transfer().map(Self)
    }

    /// Sets the tag of a transfer.
    #[inline(always)]
    pub(crate) fn put_on(self, transfer: &mut Transfer) {
        transfer.set_tag(self.0);
    }

    /// Returns the xid of the call.
    #[inline(always)]
    pub(crate) fn xid(self) -> Xid {
        // CAST: The lower half of the tag is the xid.
        Xid(self.0 as u32)
    }

    /// Ends the stage of the transfer.
    #[inline(always)]
    pub(crate) fn end(self) {
        if is_measured() {
            self.end_measured();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_measured(self) {
        let began = self.0 >> 32;
        if began != 0 {
            let now = now_ns();
            let passed = (now / 1024).wrapping_sub(began) & u64::from(u32::MAX);
            // NO-OVERFLOW: `passed` is less than 2^32, so the product is less than 2^42.
            let since = now.saturating_sub(passed.wrapping_mul(1024));
            Since::count(Stage::Write, since);
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
