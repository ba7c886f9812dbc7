// SPDX-License-Identifier: GPL-2.0

//! What the device tells of itself and of the port that a connection uses.

use crate::{
    driver::Rdma,
    link::{
        now,
        Link, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::conn::{
    self,
    DeviceLog, //
};
use xprtrdma_rdma::{
    cm::CmId,
    device::DeviceInfo,
    events::{
        DeviceEvent,
        DeviceEvents,
        DeviceHandler, //
    },
};
use xprtrdma_sunrpc::xprt::BackRef;

/// Receives the events of a device, for one connection.
struct Sink {
    xprt: BackRef<Rdma>,
    port: u32,
}

impl DeviceHandler for Sink {
    #[cold]
    fn event(&self, event: DeviceEvent) {
        if event.port.is_some_and(|port| port != self.port) {
            return;
        }
        let event = conn::DeviceEvent::from_raw(event.number);
        self.xprt.data().link.told.lock().told(event, now());
    }
}

/// Notes what happens to the device and the port of a connection, until the result is dropped.
/// May sleep.
pub(crate) fn listen(
    xprt: &BackRef<Rdma>,
    id: &Arc<CmId>,
    device: &DeviceInfo,
) -> Result<DeviceEvents> {
    let sink = Sink {
        xprt: xprt.clone(),
        port: device.port,
    };
    DeviceEvents::listen(id.clone(), Arc::new(sink, GFP_KERNEL)?)
}

impl Link {
    /// Looks at what the devices of this and of earlier connections told.
    pub(crate) fn with_told<R>(&self, f: impl FnOnce(&DeviceLog) -> R) -> R {
        f(&self.told.lock())
    }
}
