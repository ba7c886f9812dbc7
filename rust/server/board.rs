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

/// The debugfs files of a listener, and the numbers of connections that ended in each way.
pub(crate) struct Board {
    dir: Option<Arc<Dir>>,
    fates: Arc<Fates>,
    _file: Option<File<Arc<Fates>>>,
}

/// Counts of the accepted, rejected and ended connections of a listener.
pub(crate) struct Fates {
    accepted: Atomic<u32>,
    rejected: Atomic<u32>,
    ended: [Atomic<u32>; Cause::ALL.len()],
}

/// The debugfs file of a connection. It exists as long as the connection.
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

    /// Returns the numbers of connections that ended in each way.
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
        writeln!(f, "device: {}", Text(&this.device))?;
        match spoken {
            Some(version) => writeln!(f, "version: {}", version.number())?,
            None => writeln!(f, "version: no call yet")?,
        }
        writeln!(f, "inline from client: {}", agreed.thresholds.call)?;
        writeln!(f, "inline to client: {to_client}")?;
        writeln!(f, "remote invalidation: {invalidation}")?;
        writeln!(f, "grant: {granted}")?;
        writeln!(f, "calls in process: {in_process}")?;
        writeln!(f, "messages: {}", arrived.messages)?;
        writeln!(f, "messages dropped: {}", arrived.dropped)?;
        writeln!(f, "calls with Reads: {}", arrived.reads)?;
        writeln!(f, "bytes read: {}", arrived.read_bytes)?;
        if let Some(sinks) = handler.reads.sinks() {
            writeln!(f, "Read regions registered: {}", sinks.registered())?;
            writeln!(f, "Read regions invalidated: {}", sinks.invalidated())?;
        }
        writeln!(f, "answers: {}", answers.sent)?;
        writeln!(f, "answers with Writes: {}", answers.writes)?;
        writeln!(f, "answers that waited: {}", answers.waits)?;
        writeln!(f, "keys invalidated: {}", answers.invalidations)?;
        writeln!(f, "callbacks: {}", handler.callbacks.sent)?;
        writeln!(f, "callback replies: {}", handler.callbacks.answered)
    }
}

/// Text of this module or of the kernel that contains only printable characters.
struct Text<'a>(&'a CStr);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or("?"))
    }
}
