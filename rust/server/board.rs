// SPDX-License-Identifier: GPL-2.0

//! The debugfs files of listeners and connections.

use crate::{
    events::Events,
    receive::Handler, //
};
use core::{
    fmt,
    net::SocketAddr, //
};
use kernel::{
    prelude::*,
    str::CString,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use xprtrdma_proto::served::cause::Cause;
use xprtrdma_rdma::qp::Qp;
use xprtrdma_svc::util::{
    debugfs::{
        Dir,
        File, //
    },
    files,
    Show, //
};

/// The debugfs files of a listener, and the counters of its accepted, rejected and ended
/// connections.
pub(crate) struct Board {
    dir: Option<Arc<Dir>>,
    fates: Arc<Fates>,
    _file: Option<File<Arc<Fates>>>,
}

/// Counters of the accepted, rejected and ended connections of a listener.
pub(crate) struct Fates {
    accepted: Atomic<u32>,
    rejected: Atomic<u32>,
    ended: [Atomic<u32>; Cause::ALL.len()],
}

/// The debugfs file of a connection. The file exists as long as the connection's queue pair.
pub(crate) type OfConnection = File<Seen>;

/// The data that the file of a connection shows.
pub(crate) struct Seen {
    qp: Arc<Qp<Handler>>,
    events: Arc<Events>,
    device: CString,
}

impl Board {
    /// Creates the debugfs directory of a listener. Creates no directory if debugfs or memory is
    /// not available.
    pub(crate) fn new(local: &SocketAddr) -> Result<Self> {
        let fates = Fates {
            accepted: Atomic::new(0),
            rejected: Atomic::new(0),
            ended: [const { Atomic::new(0) }; Cause::ALL.len()],
        };
        let fates = Arc::new(fates, GFP_KERNEL)?;
        let name = CString::try_from_fmt(fmt!("{}", Show(local)))?;
        let dir = files().and_then(|all| all.subdir(&name).ok());
        let file = dir.as_ref().and_then(|dir| {
            File::new(dir, c"listener", fates.clone(), Some(Fates::show), None).ok()
        });
        Ok(Self {
            dir,
            fates,
            _file: file,
        })
    }

    /// Returns the counters of the accepted, rejected and ended connections.
    pub(crate) fn fates(&self) -> &Arc<Fates> {
        &self.fates
    }

    /// Creates the debugfs file of a connection.
    pub(crate) fn add(
        &self,
        qp: &Arc<Qp<Handler>>,
        events: &Arc<Events>,
        device: &str,
    ) -> Option<OfConnection> {
        let dir = self.dir.as_ref()?;
        let name = CString::try_from_fmt(fmt!("{}", Show(&events.peer))).ok()?;
        let seen = Seen {
            qp: qp.clone(),
            events: events.clone(),
            device: CString::try_from_fmt(fmt!("{device}")).ok()?,
        };
        File::new(dir, &name, seen, Some(Seen::show), None).ok()
    }
}

impl Fates {
    /// Counts a connection that was accepted.
    pub(crate) fn accepted(&self) {
        self.accepted.add(1, Relaxed);
    }

    /// Counts a request that was rejected.
    pub(crate) fn rejected(&self) {
        self.rejected.add(1, Relaxed);
    }

    /// Counts the end of a connection.
    pub(crate) fn ended(&self, cause: Cause) {
        for (count, which) in self.ended.iter().zip(Cause::ALL) {
            if which == cause {
                count.add(1, Relaxed);
            }
        }
    }

    fn show(this: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "accepted: {}", this.accepted.load(Relaxed))?;
        writeln!(f, "rejected: {}", this.rejected.load(Relaxed))?;
        for (count, cause) in this.ended.iter().zip(Cause::ALL) {
            let count = count.load(Relaxed);
            if count != 0 {
                writeln!(f, "ended, {}: {count}", cause.text())?;
            }
        }
        Ok(())
    }
}

impl Seen {
    fn show(this: &Self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let handler = this.qp.handler();
        let agreed = &this.events.agreed;
        let spoken = handler.callbacks.version();
        let to_client = handler.terms.longest_message(spoken.unwrap_or_default());
        let (arrived, answers) = (&handler.arrivals, &handler.outbox.answers);
        let (granted, in_process) = {
            let grant = handler.outbox.grant.lock();
            (grant.granted(), grant.in_process())
        };
        let invalidation = match agreed.thresholds.remote_invalidation {
            true => "yes",
            false => "no",
        };
        // The RDMA device.
        writeln!(f, "device: {}", Text(&this.device))?;
        // RPC-over-RDMA version of the client's first call.
        match spoken {
            Some(version) => writeln!(f, "version: {}", version.number())?,
            None => writeln!(f, "version: no call yet")?,
        }
        // Longest message from the client, in bytes: the smaller of the two lengths that the client
        // and this host announced.
        writeln!(f, "inline from client: {}", agreed.thresholds.call)?;
        // Longest message to the client, in bytes: the smaller of the two lengths that the client
        // and this host announced.
        writeln!(f, "inline to client: {to_client}")?;
        // Whether an answer may invalidate a memory key that the client sent in its call. True if
        // the client announced support for remote invalidation, and this host's device supports it
        // too.
        writeln!(f, "remote invalidation: {invalidation}")?;
        // Number of calls that the client may have in flight.
        writeln!(f, "grant: {granted}")?;
        // Number of calls that have no answer yet.
        writeln!(f, "calls in process: {in_process}")?;
        // Number of messages received.
        writeln!(f, "messages: {}", arrived.messages)?;
        // Number of messages that were neither a call nor a reply.
        writeln!(f, "messages dropped: {}", arrived.dropped)?;
        // Number of calls that were admitted although they deviate from the protocol: their length
        // is not a multiple of four, or bytes follow the header of a call in a Position-Zero chunk.
        writeln!(f, "odd calls: {}", arrived.odd)?;
        // Number of calls for which this host read data from the client's memory.
        writeln!(f, "calls with Reads: {}", arrived.reads)?;
        // Number of bytes that were fetched from the client's memory.
        writeln!(f, "bytes read: {}", arrived.read_bytes)?;
        if let Some(sinks) = handler.reads.sinks() {
            // On iWARP only: number of regions registered for the data of Reads.
            writeln!(f, "Read regions registered: {}", sinks.registered())?;
            // On iWARP only: number of regions that were registered for the data of Reads and have
            // been invalidated.
            writeln!(f, "Read regions invalidated: {}", sinks.invalidated())?;
        }
        // Number of answers sent.
        writeln!(f, "answers: {}", answers.sent)?;
        // Number of answers that wrote to the client's memory.
        writeln!(f, "answers with Writes: {}", answers.writes)?;
        // Number of answers that found the send queue full, because the client receives answers
        // slowly.
        writeln!(f, "answers that waited: {}", answers.waits)?;
        // Number of answers that invalidated a key of the client.
        writeln!(f, "keys invalidated: {}", answers.invalidations)?;
        // Number of calls to the client.
        writeln!(f, "callbacks: {}", handler.callbacks.sent)?;
        // Number of the client's replies to calls of this host.
        writeln!(f, "callback replies: {}", handler.callbacks.answered)
    }
}

/// A text that this module or the kernel provides, and that contains only printable characters.
struct Text<'a>(&'a CStr);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("?"))
    }
}
