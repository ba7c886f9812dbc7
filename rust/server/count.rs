// SPDX-License-Identifier: GPL-2.0

//! Counts how often each limit was reached, for `bounds` in debugfs.

use crate::{
    memory,
    sizes::IDLE, //
};
use core::{
    fmt,
    sync::atomic::{
        AtomicU64,
        Ordering::Relaxed, //
    }, //
};
use kernel::prelude::*;
use xprtrdma_proto::served::cause::Cause;
use xprtrdma_svc::util::{
    debugfs::File,
    files, //
};

/// The counter of a limit: how often the limit was reached. The counters order no other memory
/// accesses.
pub(crate) struct Count {
    name: &'static str,
    seen: AtomicU64,
}

impl Count {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            seen: AtomicU64::new(0),
        }
    }

    /// Returns how often the limit was reached.
    pub(crate) fn get(&self) -> u64 {
        self.seen.load(Relaxed)
    }

    /// Adds one to the counter.
    #[cold]
    pub(crate) fn add(&self) {
        self.seen.fetch_add(1, Relaxed);
    }
}

/// Answers that waited because the send queue was full. Each counts as a call of its client until
/// it is posted (`responder::grant`).
pub(crate) static ANSWERS: Count = Count::new("answers_waited");
/// Calls that waited because the calls and results of a connection may take at most a quarter of
/// the memory of all (`responder::budget`).
pub(crate) static SHARE: Count = Count::new("memory_of_one_short");
/// Calls that waited because the connections of a client's address may take at most half of the
/// memory of all, and never more than they leave to others (`responder::budget`).
pub(crate) static ADDRESS: Count = Count::new("memory_of_address_short");
/// Calls that waited because the calls and results of all connections may take at most an eighth of
/// the host's memory, from 16 to 128 MiB (`responder::budget`). A call of at most two pages is not
/// counted (`server::memory`).
pub(crate) static BUDGET: Count = Count::new("memory_of_all_short");
/// Calls that waited because as many RDMA Reads were in flight as both ends support, at most 16. A
/// call that needs more has them to itself (`responder::budget`).
pub(crate) static READS: Count = Count::new("reads_waited");
/// Messages that were dropped or refused, including calls with more than 16 Write chunks or 64
/// segments (`responder::admit`).
pub(crate) static MALFORMED: Count = Count::new("malformed_messages");
/// Connection requests that were rejected because 64 of the listener waited for a thread
/// (`rdma::cm::listen`).
pub(crate) static WAITING: Count = Count::new("requests_rejected");
/// Connection requests that were rejected because the listener had 512 connections or the address
/// 128, and no idle one could be closed; or because 32 of the address waited (`served::door`).
pub(crate) static REJECTED: Count = Count::new("connections_rejected");

/// Lines of the log that were left out because in five seconds there were 20 about a client
/// address, or 200 about all; 64 addresses are distinguished (`served::lines`).
pub(crate) static LINES: Count = Count::new("log_lines_left_out");

/// Idle connections, the newest ones first, that were closed to make room for another one
/// (`served::door`).
static CROWDED: Count = Count::new("ended_for_another");
/// Connections that were not confirmed within 10 s (`served::life`).
static HALF_OPEN: Count = Count::new("ended_half_open");
/// Connections whose client was silent for 60 s, and then did not answer a probe within 30 s
/// (`served::life`).
static SILENT: Count = Count::new("ended_silent");
/// Connections whose oldest work request in the send queue (an RDMA Read, a Write, a message) did
/// not complete within 30 s, even if the client continued to send; or within 60 to 120 s, if calls
/// of other connections waited for memory that this one held (`served::life`).
static STALLED: Count = Count::new("ended_send_queue_stalled");
/// Connections that ended because too many of their messages were dropped or refused: 16, of which
/// one is forgotten each minute (`served::life`).
static RUDE: Count = Count::new("ended_malformed");
/// Connections with more than 8 refused options of version two in flight (`served::life`).
static OPTIONS: Count = Count::new("ended_unknown_options");
/// Connections whose client had more than 16 calls in flight above its grant of 64
/// (`responder::grant`).
static OVERRUN: Count = Count::new("ended_above_grant");
/// Connections of which nfsd dropped as many calls as half of the grant (`responder::grant`).
static LOST: Count = Count::new("ended_calls_lost");

/// Counts the end of a connection, if a limit was the cause.
pub(crate) fn ended(cause: Cause) {
    let count = match cause {
        Cause::Crowded => &CROWDED,
        Cause::HalfOpen => &HALF_OPEN,
        Cause::Silent => &SILENT,
        Cause::Transfer => &STALLED,
        Cause::Malformed => &RUDE,
        Cause::Options => &OPTIONS,
        Cause::Overrun => &OVERRUN,
        Cause::Lost => &LOST,
        Cause::Left
        | Cause::Refused
        | Cause::Starved
        | Cause::Unanswerable
        | Cause::Callbacks
        | Cause::Device
        | Cause::Address
        | Cause::Stopped => return,
    };
    count.add();
}

/// Creates the debugfs file.
pub(crate) fn file() -> Result<File<()>> {
    let dir = files().ok_or(ENODEV)?;
    File::new(&dir, c"bounds", (), Some(show), None)
}

fn show((): &(), f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "memory_free_pages {}", memory::free())?;
    writeln!(f, "memory_of_idle_connection {IDLE}")?;
    for count in [
        &ANSWERS, &SHARE, &ADDRESS, &BUDGET, &READS, &MALFORMED, &WAITING, &REJECTED, &LINES,
        &CROWDED, &HALF_OPEN, &SILENT, &STALLED, &RUDE, &OPTIONS, &OVERRUN, &LOST,
    ] {
        writeln!(f, "{} {}", count.name, count.get())?;
    }
    Ok(())
}
