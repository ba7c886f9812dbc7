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

    /// Adds one to the counter.
    #[cold]
    pub(crate) fn add(&self) {
        self.seen.fetch_add(1, Relaxed);
    }
}

/// Number of replies that waited for space in the send queue.
pub(crate) static ANSWERS: Count = Count::new("answers_waited");
/// Number of times that a call waited for memory because its connection's share was used up.
pub(crate) static SHARE: Count = Count::new("memory_of_one_short");
/// Number of times that a call waited for memory because the share of its client's address was used
/// up.
pub(crate) static ADDRESS: Count = Count::new("memory_of_address_short");
/// Number of times that a call waited for memory because the budget of all connections was used up.
pub(crate) static BUDGET: Count = Count::new("memory_of_all_short");
/// Number of times that a call waited because the maximum number of Reads was in flight.
pub(crate) static READS: Count = Count::new("reads_waited");
/// Number of messages that were dropped or refused.
pub(crate) static MALFORMED: Count = Count::new("malformed_messages");
/// Number of connection requests that were rejected because too many requests waited for a thread.
pub(crate) static WAITING: Count = Count::new("requests_rejected");
/// Number of connection requests that were rejected because there were too many connections.
pub(crate) static REJECTED: Count = Count::new("connections_rejected");

/// Lines of the log that were left out because there were too many about one client address, or
/// about all.
pub(crate) static LINES: Count = Count::new("log_lines_left_out");

static CROWDED: Count = Count::new("ended_for_another");
static HALF_OPEN: Count = Count::new("ended_half_open");
static SILENT: Count = Count::new("ended_silent");
static STALLED: Count = Count::new("ended_send_queue_stalled");
static RUDE: Count = Count::new("ended_malformed");
static OPTIONS: Count = Count::new("ended_unknown_options");
static OVERRUN: Count = Count::new("ended_above_grant");
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
        writeln!(f, "{} {}", count.name, count.seen.load(Relaxed))?;
    }
    Ok(())
}
