// SPDX-License-Identifier: GPL-2.0

//! Counts how many times each limit was reached, for the file `bounds` in debugfs.

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
use xprtrdma_proto::{
    responder::budget::Wait,
    served::cause::Cause, //
};
use xprtrdma_svc::util::{
    debugfs::File,
    files, //
};

/// Counts how many times a limit was reached. Accesses to a counter do not order other memory
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

    /// Adds one to the counter.
    #[cold]
    pub(crate) fn add(&self) {
        self.seen.fetch_add(1, Relaxed);
    }
}

/// Answers that waited because the send queue was full. Such an answer counts as a call of its
/// client until the answer is posted (`responder::grant`).
pub(crate) static ANSWERS: Count = Count::new("answers_waited");
/// Calls that waited because of the limit for their connection (`responder::budget`). The calls and
/// results of one connection may use at most a quarter of the memory that all connections may use.
/// A single call may use more, if it is the only call of its connection that uses memory.
static SHARE: Count = Count::new("memory_of_one_short");
/// Calls that waited because of the limit for their client address (`responder::budget`). Together,
/// all connections of one client address may use at most half of the memory that all connections
/// may use. They must also leave at least as much memory free as they use. Neither limit applies to
/// the only call of the address that uses memory. The counter includes calls that waited behind
/// calls of other connections of the address (`responder::turns`).
static ADDRESS: Count = Count::new("memory_of_address_short");
/// Calls that waited because of the limit for the calls and results of all connections
/// (`responder::budget`). The limit is an eighth of the host's memory, but at least 16 MiB and at
/// most 128 MiB. A call that needs at most two pages does not count towards the limit
/// (`server::memory`). The counter includes calls that waited behind calls of other client
/// addresses (`responder::turns`).
static BUDGET: Count = Count::new("memory_of_all_short");
/// Calls that waited because the maximum number of RDMA Reads was in flight (`responder::budget`).
/// The maximum is 16, or less if the client or the host supports fewer. A call that needs more
/// Reads than the maximum is processed when no other Reads are in flight.
pub(crate) static READS: Count = Count::new("reads_waited");
/// Messages that were dropped, and calls that were refused because of a fault of the client
/// (`responder::refusal`). They include calls with more than 16 Write chunks or more than 64
/// segments (`responder::admit`), but neither unknown options nor calls whose reply does not fit
/// into the client's memory.
pub(crate) static MALFORMED: Count = Count::new("malformed_messages");
/// Connection requests that were rejected because 64 requests of the listener already waited for a
/// thread (`rdma::cm::listen`).
pub(crate) static WAITING: Count = Count::new("requests_rejected");
/// Connection requests that were rejected for one of two reasons (`served::door`):
///
/// - The listener had 512 connections, or the client address had 128 connections, and no idle
///   connection could be closed.
/// - 32 requests of the client address already waited to be accepted. A request that its client has
///   given up counts until it is dropped, which happens soon.
pub(crate) static REJECTED: Count = Count::new("connections_rejected");

/// Lines that were not written to the log because a limit was reached (`served::lines`). Within
/// five seconds, at most 20 lines about one client address may be written, and at most 200 lines
/// about all clients. At most 64 client addresses are counted separately.
pub(crate) static LINES: Count = Count::new("log_lines_left_out");

/// Idle connections that were closed to make room for a new connection. The newest idle connections
/// are closed first (`served::door`).
static CROWDED: Count = Count::new("ended_for_another");
/// Connections that the client did not confirm within 10 s (`served::life`).
static HALF_OPEN: Count = Count::new("ended_half_open");
/// Connections whose client was silent for 60 s, and then did not answer a probe within 30 s
/// (`served::life`).
static SILENT: Count = Count::new("ended_silent");
/// Connections that ended for one of two reasons (`served::life`):
///
/// - Work requests (RDMA Reads, Writes, messages) were in the send queue, and none of them
///   completed within 30 s. It did not matter whether the client continued to send.
/// - A work request did not complete within 60 to 120 s. During this time the connection held
///   memory, and other calls waited for memory. A connection with more than 16 RDMA transfers holds
///   memory, even if its calls are too small to count.
static STALLED: Count = Count::new("ended_send_queue_stalled");
/// Connections that ended because 16 of their messages were malformed, see `malformed_messages`.
/// The count of such messages decreases by one each minute (`served::life`). A message with
/// immediate data ends its connection at once.
static RUDE: Count = Count::new("ended_malformed");
/// Connections that ended because more than 8 refusals of unknown options (RPC-over-RDMA version
/// two) were in flight (`served::life`).
static OPTIONS: Count = Count::new("ended_unknown_options");
/// Connections that ended because the client exceeded its grant by more than 16 calls. The grant is
/// one call before the first response, and then 8 to 64 calls (`responder::grant`).
static OVERRUN: Count = Count::new("ended_above_grant");
/// Connections that ended because the number of calls that nfsd dropped reached half of the grant
/// (`responder::grant`).
static LOST: Count = Count::new("ended_calls_lost");

/// Counts a call that waits for memory.
pub(crate) fn waited(wait: &Wait) {
    let count = match wait {
        Wait::Share => &SHARE,
        Wait::Budget => &BUDGET,
        Wait::Address => &ADDRESS,
    };
    count.add();
}

/// Counts the end of a connection, if a limit was the cause.
pub(crate) fn ended(cause: Cause) {
    let count = match cause {
        Cause::Crowded => &CROWDED,
        Cause::HalfOpen => &HALF_OPEN,
        Cause::Silent => &SILENT,
        Cause::Stalled => &STALLED,
        Cause::Malformed => &RUDE,
        Cause::Options => &OPTIONS,
        Cause::Overrun => &OVERRUN,
        Cause::Lost => &LOST,
        Cause::Left
        | Cause::Transfer
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
        writeln!(f, "{} {}", count.name, count.seen.load(Relaxed))?;
    }
    Ok(())
}
