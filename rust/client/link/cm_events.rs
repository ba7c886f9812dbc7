// SPDX-License-Identifier: GPL-2.0

//! Handles events of the connection manager.

use crate::{
    driver::Rdma,
    link::Link, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::{
        Accepted,
        AddrFault,
        CmEvent,
        Epoch,
        Event,
        LocalFault, //
    },
    error::errno,
    PrivateData, //
};
use xprtrdma_rdma::cm::{
    self,
    CmHandler, //
};
use xprtrdma_sunrpc::xprt::BackRef;

/// Receives the connection manager's events about one attempt or connection.
pub(super) struct Listener {
    pub(super) link: Arc<Link>,
    pub(super) xprt: BackRef<Rdma>,
    pub(super) epoch: Epoch,
}

impl CmHandler for Listener {
    fn event(&self, event: cm::CmEvent<'_>) {
        let event = match event {
            cm::CmEvent::AddrResolved => CmEvent::AddrResolved,
            cm::CmEvent::AddrError(status) => {
                CmEvent::AddrError(addr_fault(Error::from_errno(status)))
            }
            cm::CmEvent::RouteResolved => CmEvent::RouteResolved,
            cm::CmEvent::RouteError(status) => match Error::from_errno(status) {
                e if e == ETIMEDOUT => CmEvent::RouteSilent,
                _ => CmEvent::RouteError,
            },
            cm::CmEvent::Established {
                private_data,
                peer_read_depth,
                ..
            } => {
                *self.link.peer.lock() = PrivateData::find(private_data);
                CmEvent::Established(Accepted {
                    peer_read_depth: Some(peer_read_depth),
                })
            }
            cm::CmEvent::ConnectError(_) => CmEvent::ConnectError,
            cm::CmEvent::Unreachable(_) => CmEvent::Unreachable,
            cm::CmEvent::Rejected { stale, .. } => CmEvent::Rejected { stale },
            cm::CmEvent::Disconnected => CmEvent::Disconnected,
            cm::CmEvent::AddrChange => CmEvent::AddrChange,
            cm::CmEvent::DeviceRemoval => CmEvent::DeviceRemoval,
            cm::CmEvent::TimewaitExit => CmEvent::TimewaitExit,
            cm::CmEvent::Other(_) => return,
        };
        let event = Event::Cm(self.epoch, event);
        if let Event::Cm(_, CmEvent::Unreachable) = event {
            self.link.suspect(&self.xprt, self.epoch, event);
        } else {
            self.link.react(&self.xprt, event);
        }
    }
}

/// Converts the error of a step that failed immediately. Such an error means that this host, not
/// the peer, refused the step.
pub(super) fn host_fault(epoch: Epoch, error: Error) -> Event {
    let fault = match error {
        e if e == ENOMEM => LocalFault::NoResources,
        e => LocalFault::Refused(e.to_errno()),
    };
    Event::LocalFault(epoch, fault)
}

/// Classifies the connection manager's error for an address.
pub(super) fn addr_fault(error: Error) -> AddrFault {
    // The errors are compared as numbers, because not every kernel has Rust names for them.
    // NO-OVERFLOW: An errno is a small negative number.
    match error.to_errno().wrapping_neg() {
        errno::ENODEV => AddrFault::NoDevice,
        errno::ETIMEDOUT => AddrFault::TimedOut,
        errno::ENETUNREACH | errno::EHOSTUNREACH => AddrFault::NoRoute,
        _ => AddrFault::Other,
    }
}
