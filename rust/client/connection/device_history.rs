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
        DeviceEvent,
        DeviceLog,
        Disconnect, //
    },
    time::Millis,
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

    /// Records an event of the device or of the port of a connection.
    pub(crate) fn told(&self, event: DeviceEvent) {
        self.log.lock().told(event, now());
    }

    /// Forgets the record, because a connection was made.
    pub(crate) fn forget(&self) {
        self.log.lock().forget();
    }

    /// Returns the event that may explain the end of a connection, and how long before the end it
    /// came.
    pub(crate) fn explains(&self, lost: &Disconnect) -> Option<(DeviceEvent, Millis)> {
        self.log.lock().explains(lost.at, lost.lasted)
    }

    /// A copy of the record.
    pub(crate) fn snapshot(&self) -> DeviceLog {
        self.log.lock().clone()
    }
}
