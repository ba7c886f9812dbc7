// SPDX-License-Identifier: GPL-2.0

//! Events of the devices and ports that a transport used ([`DeviceHistory`]).

use crate::machine::now;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
};
use xprtrdma_proto::{
    conn::{
        self,
        DeviceLog,
        Disconnect, //
    },
    time::Millis,
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

/// Events of the devices of this and of earlier connections.
#[pin_data]
pub(crate) struct DeviceHistory {
    #[pin]
    log: SpinLock<DeviceLog>,
}

impl DeviceHistory {
    /// Makes an empty one. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                log <- new_spinlock!(DeviceLog::new(), "DeviceHistory::log"),
            }),
            GFP_KERNEL,
        )
    }

    /// Records events of the device and the port of a connection, until the result is dropped.
    /// May sleep.
    pub(super) fn listen(
        self: &Arc<Self>,
        id: &Arc<CmId>,
        device: &DeviceInfo,
    ) -> Result<DeviceEvents> {
        let listener = Listener {
            history: self.clone(),
            port: device.port,
        };
        DeviceEvents::listen(id.clone(), Arc::new(listener, GFP_KERNEL)?)
    }

    /// The event that may explain the end of a connection, and how long before that it came.
    pub(crate) fn explains(&self, lost: &Disconnect) -> Option<(conn::DeviceEvent, Millis)> {
        self.log.lock().explains(lost.at, lost.lasted)
    }

    /// A copy of the record.
    pub(crate) fn snapshot(&self) -> DeviceLog {
        self.log.lock().clone()
    }
}

/// Receives the events of a device, for one connection.
struct Listener {
    history: Arc<DeviceHistory>,
    port: u32,
}

impl DeviceHandler for Listener {
    #[cold]
    fn event(&self, event: DeviceEvent) {
        if event.port.is_some_and(|port| port != self.port) {
            return;
        }
        let event = conn::DeviceEvent::from_raw(event.number);
        self.history.log.lock().told(event, now());
    }
}
