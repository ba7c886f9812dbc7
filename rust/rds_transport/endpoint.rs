// SPDX-License-Identifier: GPL-2.0

//! A queue pair that serves a connection, and how it is created ([`Endpoint`]).

use crate::{
    driver::Rds,
    events::{
        Events,
        Step, //
    },
    link::Link,
    receive::Handler,
    send::acknowledge,
    sizes::{
        OPERATION,
        QUEUES,
        RECEIVES,
        REGIONS,
        RETRIES,
        STEP_MS, //
    }, //
};
use core::net::{
    IpAddr,
    SocketAddr, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::{
    cm::{
        both::Terms,
        CmId, //
    },
    qp::{
        Qp,
        QpOwner, //
    }, //
};
use xprtrdma_rds::{
    connection::{
        Connection,
        Details, //
    },
    registration::flow_control,
    util::{
        init_net,
        may_log,
        not_connected,
        protocol_error,
        Show, //
    }, //
};
use xprtrdma_rds_proto::{
    connect::{
        accepted,
        Hello,
        Reads,
        Refusal,
        Version,
        PORT_V4,
        PORT_V6, //
    },
    credit::Credits, //
};

/// A queue pair of a connection. Dropping it disconnects the queue pair, and waits until no
/// completion handler runs.
pub(crate) struct Endpoint {
    _owner: QpOwner<Handler>,
    events: Arc<Events>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.events.detach();
    }
}

/// Returns the number of credits that this end offers to the peer, or zero without flow control.
/// `wanted` says whether the connection uses flow control.
fn offered(wanted: bool) -> u32 {
    if wanted {
        RECEIVES.into()
    } else {
        0
    }
}

fn credits(wanted: bool, granted: u32) -> Credits {
    // All Receives count as advertised, because the private data of the connection advertises them
    // to the peer.
    Credits::new(wanted, granted, RECEIVES, RECEIVES)
}

/// Logs why this end refuses the answer of the peer. Returns the error.
#[cold]
fn refused(peer: IpAddr, refusal: Refusal) -> Error {
    if may_log() {
        let why = match refusal {
            Refusal::Reads => "it serves no RDMA Reads",
            Refusal::Version => "it speaks another version of RDS",
            Refusal::Nothing | Refusal::Addresses => "its answer is not that of RDS",
        };
        // LOG: The peer has refused the connection, or its answer cannot be used.
        pr_info!("no connection to {}: {why}\n", Show(&peer));
    }
    protocol_error()
}

impl Endpoint {
    /// Creates the queue pair for an id that is bound to a device. May sleep.
    fn make(
        connection: &Arc<Connection<Rds>>,
        id: Arc<CmId>,
        events: Arc<Events>,
        credits: Credits,
    ) -> Result<(Self, Reads)> {
        id.set_short_pause()?;
        let device = connection.driver().device(connection.local())?;
        let gids = id.gids();
        let pd = device.pd(id)?;
        let handler = Handler::new(connection)?;
        let owner = Qp::create(&pd, &QUEUES, handler)?;
        connection
            .data()
            .connect(owner.handle(), device.number(), credits)?;
        let endpoint = Self {
            _owner: owner,
            events,
        };
        connection.show(&Details {
            gids,
            send_wrs: QUEUES.send_wrs,
            receives: RECEIVES.into(),
            sges: pd.max_send_sges(),
            regions: REGIONS,
            // CAST: The number of pages of an operation is small.
            pages: OPERATION / PAGE_SIZE as u32,
        });
        let reads = Reads {
            own: pd.max_reads(),
            served: pd.max_served(),
        };
        Ok((endpoint, reads))
    }

    /// Connects to the peer. May sleep.
    pub(crate) fn connect(connection: &Arc<Connection<Rds>>) -> Result<Self> {
        let (local, peer) = (connection.local(), connection.peer());
        let wanted = flow_control();
        let port = match peer {
            IpAddr::V4(_) => PORT_V4,
            IpAddr::V6(_) => PORT_V6,
        };
        let events = Events::active()?;
        let id = Arc::new(CmId::create(init_net(), events.clone())?, GFP_KERNEL)?;
        id.bind_addr(&SocketAddr::new(local, 0))?;
        id.set_service_type(connection.tos());
        id.resolve_addr(&SocketAddr::new(peer, port), STEP_MS)?;
        events.wait(Step::Address)?;
        id.resolve_route(STEP_MS)?;
        events.wait(Step::Route)?;
        let (endpoint, reads) =
            Self::make(connection, id.clone(), events.clone(), credits(wanted, 0))?;
        let hello = Hello::new(local, peer, connection.tos(), offered(wanted));
        let (data, len) = hello.encode();
        id.request(&Terms {
            private_data: data.get(..len).unwrap_or(&[]),
            reads: reads.own,
            serves: reads.served,
            retry_count: RETRIES,
        })?;
        events.wait(Step::Up)?;
        let answer = accepted(events.data().bytes(), peer.is_ipv6(), events.own_reads())
            .map_err(|refusal| refused(peer, refusal))?;
        let agreed = |link: &mut Link<_>| link.credits.agreed(answer.credit);
        let are_due = connection
            .data()
            .with_link(agreed)
            .ok_or_else(not_connected)?;
        events.attach(connection)?;
        let entered = connection.enter().ok_or_else(not_connected)?;
        entered.connected(Version::V3_1.raw());
        if connection.data().has_failed() {
            entered.drop_path();
        }
        if are_due {
            acknowledge(connection);
        }
        Ok(endpoint)
    }

    /// Accepts the connection request of the peer. May sleep.
    pub(crate) fn accept(
        connection: &Arc<Connection<Rds>>,
        id: CmId,
        events: Arc<Events>,
        hello: &Hello,
    ) -> Result<Self> {
        let id = Arc::new(id, GFP_KERNEL)?;
        let wanted = flow_control();
        let asked = events.reads;
        events.attach(connection)?;
        let (endpoint, reads) = Self::make(
            connection,
            id.clone(),
            events,
            credits(wanted, hello.credit),
        )?;
        let answer = Hello::new(hello.to, hello.from, hello.tos, offered(wanted));
        let (data, len) = answer.encode();
        let reads = reads.answer(asked);
        id.grant(&Terms {
            private_data: data.get(..len).unwrap_or(&[]),
            // The peer sets its limits on Reads to the numbers in this answer.
            reads: reads.own,
            serves: reads.served,
            retry_count: RETRIES,
        })?;
        Ok(endpoint)
    }
}
