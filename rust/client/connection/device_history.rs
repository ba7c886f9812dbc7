// SPDX-License-Identifier: GPL-2.0

//! Events of the devices and ports that a transport has used ([`DeviceHistory`]).

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

/// Events of the devices that this connection and earlier connections have used.
#[pin_data]
pub(crate) struct DeviceHistory {
    #[pin]
    log: SpinLock<DeviceLog>,
}

impl DeviceHistory {
    /// Makes an empty history. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                log <- new_spinlock!(DeviceLog::new(), "DeviceHistory::log"),
            }),
            GFP_KERNEL,
        )
    }

    /// Records an event of the device or the port that a connection uses.
    pub(crate) fn told(&self, event: DeviceEvent) {
        self.log.lock().told(event, now());
    }

    /// Clears the history, because a connection was made.
    pub(crate) fn forget(&self) {
        self.log.lock().forget();
    }

    /// Returns the event that may explain why a connection ended, and the time between the event
    /// and that end.
    pub(crate) fn explains(&self, lost: &Disconnect) -> Option<(DeviceEvent, Millis)> {
        self.log.lock().explains(lost.at, lost.lasted)
    }

    /// Returns a copy of the recorded events.
    pub(crate) fn snapshot(&self) -> DeviceLog {
        self.log.lock().clone()
    }
}
