// SPDX-License-Identifier: GPL-2.0

//! Devices, and the regions on them ([`Table`]).
//!
//! A region belongs to a device, not to a connection: it is there before the first connection, and
//! no connection waits for its end. All queue pairs on a device are in its one protection domain.

use crate::sizes::REGIONS;
use kernel::{
    new_mutex,
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
    Limit,
    Refusal, //
};

/// A device with an address that programs or peers use.
pub(crate) struct Device {
    /// No other has it.
    number: u64,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) pd: Arc<Pd>,
}

impl Device {
    /// Returns its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the domain for a connection of this id. `ENODEV`: the id is on another device.
    pub(crate) fn pd(&self, id: Arc<CmId>) -> Result<Arc<Pd>> {
        self.pd.share(id)
    }
}

/// All devices and regions of the driver.
pub(crate) struct Table {
    /// The number of the next device.
    next: u64,
    devices: KVec<Arc<Device>>,
    regions: KVec<Arc<Slot>>,
    limit: Limit,
    /// The module is unloaded.
    closed: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            devices: KVec::new(),
            regions: KVec::new(),
            limit: Limit::new(REGIONS),
            closed: false,
        }
    }

    /// Returns the device of an id, if it is there. `ENODEV`: the module is unloaded.
    pub(crate) fn find(&self, id: &CmId) -> Result<Option<Arc<Device>>> {
        if self.closed {
            return Err(ENODEV);
        }
        let known = self.devices.iter().find(|device| device.pd.is_on(id));
        Ok(known.cloned())
    }

    /// Adds the device of a domain.
    pub(crate) fn add(&mut self, pd: Arc<Pd>, registrar: Arc<Registrar>) -> Result<Arc<Device>> {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let device = Device {
            number,
            registrar,
            pd,
        };
        let device = Arc::new(device, GFP_KERNEL)?;
        self.devices.push(device.clone(), GFP_KERNEL)?;
        Ok(device)
    }

    /// Ends all regions of a device, and takes it out. Sleeps.
    pub(crate) fn forget(&mut self, device: u64) {
        self.devices.retain(|one| one.number != device);
        for slot in &self.regions {
            if slot.is_on(device) {
                slot.revoke(|life| life.lost());
            }
        }
    }

    /// Takes all devices out; none is added any more.
    pub(crate) fn close(&mut self) -> KVec<Arc<Device>> {
        self.closed = true;
        core::mem::take(&mut self.devices)
    }

    /// Adds the region that `make` makes on a device. It is given a test whether a key is taken:
    /// RDS finds regions by their keys alone, whatever device they are on. `ENODEV`: the device was
    /// removed, so its regions have been ended, and nothing would end this one.
    pub(crate) fn open(
        &mut self,
        device: &Arc<Device>,
        make: impl FnOnce(&dyn Fn(u32) -> bool) -> Result<Arc<Slot>>,
    ) -> Result<Arc<Slot>> {
        if !self.devices.iter().any(|one| Arc::ptr_eq(one, device)) {
            return Err(ENODEV);
        }
        self.limit.map().map_err(errno)?;
        let made = make(&|key| self.regions.iter().any(|slot| slot.key == key));
        let added = made.and_then(|slot| {
            self.regions.push(slot.clone(), GFP_KERNEL)?;
            Ok(slot)
        });
        if added.is_err() {
            self.limit.unmap();
        }
        added
    }

    /// Takes a region out whose access has ended.
    pub(crate) fn remove(&mut self, region: &Arc<Slot>) {
        self.regions.retain(|slot| !Arc::ptr_eq(slot, region));
        self.limit.unmap();
    }
}

/// The error that a program is told.
pub(crate) fn errno(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Limit => EAGAIN,
        Refusal::Range => EINVAL,
    }
}

/// A region and its life.
#[pin_data]
pub(crate) struct Slot {
    #[pin]
    memory: Mutex<Opened>,
    key: u32,
}

struct Opened {
    /// Until the access of peers has ended. A device that is removed waits for that.
    on: Option<(Region<Memory>, Arc<Device>)>,
    life: Life,
}

impl Slot {
    /// Makes the slot of a region that peers can reach. Sleeps.
    pub(crate) fn new(
        region: Region<Memory>,
        device: Arc<Device>,
        life: Life,
    ) -> Result<Arc<Self>> {
        let key = region.key();
        let opened = Opened {
            on: Some((region, device)),
            life,
        };
        Arc::pin_init(
            pin_init!(Self {
                memory <- new_mutex!(opened, "Slot::memory"),
                key,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the key.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Calls `f` with the region, if peers can reach it still. Sleeps.
    pub(crate) fn with_region(&self, f: impl FnOnce(&Region<Memory>)) {
        if let Some((region, _)) = &self.memory.lock().on {
            f(region);
        }
    }

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
    fn is_on(&self, device: u64) -> bool {
        let memory = self.memory.lock();
        matches!(&memory.on, Some((_, on)) if on.number == device)
    }
}
