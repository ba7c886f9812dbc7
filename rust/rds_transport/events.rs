// SPDX-License-Identifier: GPL-2.0

//! The events that the connection manager reports for a connection.

use crate::{
    driver::Rds,
    sizes::STEP_MS, //
};
use core::net::IpAddr;
use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    time::msecs_to_jiffies, //
};
use xprtrdma_rdma::cm::{
    listen::RequestInfo,
    CmEvent,
    CmHandler, //
};
use xprtrdma_rds::{
    connection::Connection,
    util::not_connected, //
};
use xprtrdma_rds_proto::connect::{
    Reads,
    Version,
    LONGEST, //
};

/// The last step of connection setup that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// No step has completed.
    Begun,
    /// The address was resolved to a device.
    Address,
    /// The route was resolved.
    Route,
    /// The connection is established.
    Up,
}

/// The private data of the peer.
#[derive(Clone, Copy)]
pub(crate) struct Data {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Data {
    const NONE: Self = Self {
        bytes: [0; LONGEST],
        len: 0,
    };

    fn new(data: &[u8]) -> Self {
        let mut this = Self::NONE;
        for (to, from) in this.bytes.iter_mut().zip(data) {
            *to = *from;
        }
        this.len = data.len().min(LONGEST);
        this
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

struct Seen {
    step: Step,
    failed: bool,
    data: Data,
    /// If this end requested the connection: how many RDMA Reads of this end the peer serves.
    own_reads: u8,
    /// The connection. RDS must shut the connection down when the connection manager reports a
    /// failure or the end of the connection.
    connection: Option<Arc<Connection<Rds>>>,
}

/// The events that the connection manager reports for one id.
#[pin_data]
pub(crate) struct Events {
    #[pin]
    seen: Mutex<Seen>,
    #[pin]
    changed: CondVar,
    /// Whether the peer requested the connection.
    is_passive: bool,
    pub(crate) peer: Option<IpAddr>,
    /// The limits on RDMA Reads that the peer's connection request contains.
    pub(crate) reads: Reads,
}

impl Events {
    /// Creates the object for a connection that this end requests. May sleep.
    pub(crate) fn active() -> Result<Arc<Self>> {
        Self::new(Data::NONE, None, Reads { own: 0, served: 0 })
    }

    /// Creates the object for a connection that the peer requests. May sleep.
    pub(crate) fn passive(request: &RequestInfo<'_>) -> Result<Arc<Self>> {
        Self::new(
            Data::new(request.private_data),
            Some(request.peer.ip()),
            Reads {
                own: request.peer_reads,
                served: request.reads,
            },
        )
    }

    fn new(data: Data, peer: Option<IpAddr>, reads: Reads) -> Result<Arc<Self>> {
        let seen = Seen {
            step: Step::Begun,
            failed: false,
            data,
            own_reads: 0,
            connection: None,
        };
        Arc::pin_init(
            pin_init!(Self {
                seen <- new_mutex!(seen, "Events::seen"),
                changed <- new_condvar!("Events::changed"),
                is_passive: peer.is_some(),
                peer,
                reads,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the private data of the peer.
    pub(crate) fn data(&self) -> Data {
        self.seen.lock().data
    }

    /// Returns the maximum number of RDMA Reads that this end may have in flight. The peer's answer
    /// to the connection request of this end contains this number.
    pub(crate) fn own_reads(&self) -> u8 {
        self.seen.lock().own_reads
    }

    /// Waits until this step of connection setup has completed. May sleep.
    pub(crate) fn wait(&self, step: Step) -> Result {
        let mut left = msecs_to_jiffies(STEP_MS);
        let mut seen = self.seen.lock();
        while !seen.failed && seen.step < step {
            use kernel::sync::CondVarTimeoutResult::*;
            left = match self.changed.wait_interruptible_timeout(&mut seen, left) {
                Woken { jiffies } | Signal { jiffies } => jiffies,
                Timeout => return Err(ETIMEDOUT),
            };
        }
        if seen.failed {
            Err(not_connected())
        } else {
            Ok(())
        }
    }

    /// Stores the connection, so that RDS shuts the connection down when an event ends the
    /// connection. Returns an error if such an event has already arrived. May sleep.
    pub(crate) fn attach(&self, connection: &Arc<Connection<Rds>>) -> Result {
        let mut seen = self.seen.lock();
        if seen.failed {
            return Err(not_connected());
        }
        seen.connection = Some(connection.clone());
        Ok(())
    }

    /// Drops the stored reference to the connection, so that later events have no effect. May
    /// sleep.
    pub(crate) fn detach(&self) {
        let connection = self.seen.lock().connection.take();
        drop(connection);
    }
}

impl CmHandler for Events {
    fn event(&self, event: CmEvent<'_>) {
        let mut seen = self.seen.lock();
        match event {
            CmEvent::AddrResolved => seen.step = Step::Address,
            CmEvent::RouteResolved => seen.step = Step::Route,
            CmEvent::Established {
                private_data,
                own_read_depth,
                ..
            } => {
                if !self.is_passive {
                    seen.data = Data::new(private_data);
                    seen.own_reads = own_read_depth;
                }
                seen.step = Step::Up;
            }
            CmEvent::Other(_) => return,
            _ => seen.failed = true,
        }
        let (failed, up) = (seen.failed, seen.step == Step::Up);
        let connection = seen.connection.clone();
        self.changed.notify_all();
        drop(seen);
        let Some(connection) = connection else {
            return;
        };
        if failed {
            connection.drop_path();
        } else if up && self.is_passive {
            if let Some(entered) = connection.enter() {
                entered.connected(Version::V3_1.raw());
                if connection.data().has_failed() {
                    entered.drop_path();
                }
            }
        }
    }
}
