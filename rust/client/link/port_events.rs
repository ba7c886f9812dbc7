// SPDX-License-Identifier: GPL-2.0

//! Events of the device and the port that a connection uses.

use crate::{
    driver::Rdma,
    link::Link, //
};
use kernel::sync::Arc;
use xprtrdma_proto::conn::{
    self,
    Cause,
    Epoch,
    Event, //
};
use xprtrdma_rdma::events::{
    DeviceEvent,
    DeviceHandler, //
};
use xprtrdma_sunrpc::xprt::BackRef;

/// Receives a device's events for one connection, and for the attempt that establishes the
/// connection.
pub(super) struct PortListener {
    pub(super) link: Arc<Link>,
    pub(super) xprt: BackRef<Rdma>,
    pub(super) epoch: Epoch,
    pub(super) port: u32,
    /// The number of the [`Place`](crate::server::Place) of the connection, if it uses a rail.
    pub(super) place: Option<u32>,
}

impl DeviceHandler for PortListener {
    #[cold]
    fn event(&self, event: DeviceEvent) {
        if event.port.is_some_and(|port| port != self.port) {
            return;
        }
        let event = conn::DeviceEvent::from_raw(event.number);
        self.link.services().devices().told(event);
        let Some(place) = self.place else {
            return;
        };
        match event {
            conn::DeviceEvent::PortDown | conn::DeviceEvent::Fatal => {
                // If no better rail exists, the connection is not ended, because the port may soon
                // be active again. Without rails the connection is not ended either.
                let whole_device = event == conn::DeviceEvent::Fatal;
                if self.link.port_down(place, whole_device) {
                    let lost = Event::Lost(self.epoch, Cause::PortDown);
                    self.link.react(&self.xprt, lost);
                }
            }
            conn::DeviceEvent::PortActive => self.link.port_works(place),
            _ => {}
        }
    }
}
