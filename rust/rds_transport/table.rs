// SPDX-License-Identifier: GPL-2.0

//! Devices, and the regions on them ([`Table`]).
//!
//! A region belongs to a device, not to a connection: it is there before the first connection, and
//! no connection waits for its end. All queue pairs on a device are in its one protection domain.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_rdma::{
    cm::CmId,
    pd::Pd,
    registrar::{
        Region,
        Registrar, //
    }, //
};
use xprtrdma_rds::memory::Memory;
use xprtrdma_rds_proto::region::{
    Due,
    Life,
    Limit, //
};

/// A device with an address that programs or peers use.
pub(crate) struct Device {
    /// No other has it.
    pub(crate) number: u64,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) pd: Arc<Pd>,
}

impl Device {
    /// Takes up the device of a domain. Sleeps.
    pub(crate) fn new(number: u64, pd: Arc<Pd>) -> Result<Arc<Self>> {
        let device = Self {
            number,
            registrar: Registrar::new(&pd)?,
            pd,
        };
        Ok(Arc::new(device, GFP_KERNEL)?)
    }

    /// Returns the domain for a connection of this id. `ENODEV`: the id is on another device.
    pub(crate) fn pd(&self, id: Arc<CmId>) -> Result<Arc<Pd>> {
        self.pd.share(id)
    }
}

/// All devices and regions of the driver.
#[derive(Default)]
pub(crate) struct Table {
    /// The number of the next device.
    pub(crate) next: u64,
    pub(crate) devices: KVec<Arc<Device>>,
    pub(crate) regions: KVec<Arc<Slot>>,
    pub(crate) limit: Option<Limit>,
    /// The module is unloaded.
    pub(crate) closed: bool,
}

/// A region and its life.
#[pin_data]
pub(crate) struct Slot {
    #[pin]
    pub(crate) memory: Mutex<Opened>,
    pub(crate) key: u32,
}

pub(crate) struct Opened {
    /// Until the access of peers has ended. A device that is removed waits for that.
    pub(crate) on: Option<(Region<Memory>, Arc<Device>)>,
    pub(crate) life: Life,
}

impl Slot {
    /// Ends the access of peers, if that is due. Sleeps.
    pub(crate) fn revoke(&self, due: impl FnOnce(&mut Life) -> Due) {
        let mut memory = self.memory.lock();
        if due(&mut memory.life) == Due::Revoke {
            memory.life.revoked();
            let region = memory.on.take();
            drop(memory);
            drop(region);
        }
    }

    /// Returns whether it is on the device with this number.
    pub(crate) fn is_on(&self, device: u64) -> bool {
        let memory = self.memory.lock();
        matches!(&memory.on, Some((_, on)) if on.number == device)
    }
}
