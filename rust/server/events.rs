// SPDX-License-Identifier: GPL-2.0

//! The events that the connection manager reports for a connection.

use crate::{
    crowd::{
        Crowd,
        Ending,
        Seat, //
    },
    sizes::{
        INLINE,
        LONGEST_INLINE,
        READS, //
    }, //
};
use core::{
    net::SocketAddr,
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    responder::refusal::Fault,
    served::{
        accept::{
            accept,
            Accepted,
            Own,
            Request, //
        },
        cause::Cause, //
    },
    Xid, //
};
use xprtrdma_rdma::cm::{
    listen::RequestInfo,
    CmEvent,
    CmHandler, //
};
use xprtrdma_svc::{
    trace,
    util::Show, //
};

/// What the connection manager has reported about a connection. The object exists from the
/// connection request on.
pub(crate) struct Events {
    pub(crate) peer: SocketAddr,
    /// The parameters that were negotiated with the client.
    pub(crate) agreed: Accepted,
    /// Whether the client has confirmed that the connection is established.
    is_established: AtomicBool,
    seat: Seat,
}

impl Events {
    /// Creates the object for a connection request. Returns `None` if the request cannot be
    /// accepted or too many connections exist.
    pub(crate) fn of_request(request: &RequestInfo<'_>, crowd: &Arc<Crowd>) -> Option<Arc<Self>> {
        let own = Own {
            receive_size: INLINE,
            longest_receive: LONGEST_INLINE,
            send_size: LONGEST_INLINE,
            invalidates: request.invalidates,
            reads: READS,
        };
        let agreed = accept(
            &own,
            &Request {
                private_data: request.private_data,
                reads: request.reads,
            },
        )
        .ok()?;
        let seat = crowd.enter(&request.peer)?;
        let events = Self {
            peer: request.peer,
            agreed,
            is_established: AtomicBool::new(false),
            seat,
        };
        Arc::new(events, GFP_KERNEL).ok()
    }

    /// Returns the state that is needed to end the connection.
    #[inline]
    pub(crate) fn ending(&self) -> &Ending {
        &self.seat.ending
    }

    /// Returns whether a line about the client may be written to the log now.
    pub(crate) fn may_log(&self) -> bool {
        self.seat.crowd().may_log(&self.peer)
    }

    /// Ends the connection for this cause.
    pub(crate) fn end(&self, cause: Cause) {
        self.ending().end(cause);
        if !self.ending().is_accepted() {
            self.seat.crowd().sweep();
        }
    }

    /// Reports that the connection was not accepted.
    pub(crate) fn not_accepted(&self, error: Error) {
        trace::rejected(&self.peer, Some(error));
        if self.may_log() {
            // LOG: The connection could not be made; the error says why. The client tries again.
            pr_warn!(
                "connection from {} not accepted: {error:?}\n",
                Show(&self.peer)
            );
        }
    }

    /// Ends the connection because the client's device has refused an RDMA Read or Write of the
    /// Call with this xid. Remembers that the Call broke a connection.
    #[cold]
    pub(crate) fn refused(&self, xid: Xid) {
        self.seat.breakers().broke(self.peer.ip(), xid);
        self.end(Cause::Refused);
    }

    /// Checks that the Call with this xid may be processed. Returns a [`Fault`] if the Call must be
    /// refused because it broke connections of this client.
    #[inline(always)]
    pub(crate) fn check(&self, xid: Xid) -> Result<(), Fault> {
        self.seat.breakers().check(&self.peer, xid)
    }

    /// Returns true if the client has confirmed the connection.
    pub(crate) fn is_established(&self) -> bool {
        self.is_established.load(Relaxed)
    }
}

impl CmHandler for Events {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::Established { .. } => self.is_established.store(true, Relaxed),
            // The connection manager reports an established connection as unreachable if the
            // client's hardware address has changed. So the logged cause is a changed address.
            CmEvent::Unreachable(_) if self.is_established() => self.end(Cause::Address),
            CmEvent::ConnectError(_) | CmEvent::Unreachable(_) | CmEvent::Rejected { .. } => {
                self.end(Cause::HalfOpen);
            }
            CmEvent::Disconnected | CmEvent::TimewaitExit => self.end(Cause::Left),
            CmEvent::AddrChange => self.end(Cause::Address),
            CmEvent::DeviceRemoval => self.end(Cause::Device),
            _ => {}
        }
    }
}
