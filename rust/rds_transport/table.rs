// SPDX-License-Identifier: GPL-2.0

//! Devices, and their memory regions ([`Table`]).
//!
//! A region belongs to a device, not to a connection: a region may exist before the first
//! connection, and a connection can end while a region exists. All queue pairs on a device share
//! one protection domain.

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
    /// The number that identifies the device. No number is used twice.
    number: u64,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) pd: Arc<Pd>,
}

impl Device {
    /// Returns the number that identifies the device.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the protection domain for a connection that uses this id, or `ENODEV` if the id is
    /// bound to another device.
    pub(crate) fn pd(&self, id: Arc<CmId>) -> Result<Arc<Pd>> {
        self.pd.share(id)
    }
}

/// All devices and regions of the driver.
pub(crate) struct Table {
    /// The number that the next new device receives.
    next: u64,
    devices: KVec<Arc<Device>>,
    regions: KVec<Arc<Slot>>,
    limit: Limit,
    /// Whether the module is being unloaded.
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

    /// Returns the device of an id, or `None` if the table does not contain the device. The error
    /// `ENODEV` means that the module is being unloaded.
    pub(crate) fn find(&self, id: &CmId) -> Result<Option<Arc<Device>>> {
        if self.closed {
            return Err(ENODEV);
        }
        let known = self.devices.iter().find(|device| device.pd.is_on(id));
        Ok(known.cloned())
    }

    /// Returns the device with this number, or `None` if the device was removed.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Device>> {
        let numbered = |device: &&Arc<Device>| device.number == number;
        self.devices.iter().find(numbered).cloned()
    }

    /// Adds the device of a protection domain. May sleep.
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

    /// Removes a device, and returns it. Its regions stay in the table, see [`Table::last_on`].
    pub(crate) fn take(&mut self, device: u64) -> Option<Arc<Device>> {
        let at = self.devices.iter().position(|one| one.number == device)?;
        self.devices.remove(at).ok()
    }

    /// Returns the last of the first `count` regions that is on a device, with its position. After
    /// the device was removed from the table, no region is added that is on the device, and other
    /// regions only move towards the beginning of the table. So a caller that continues with the
    /// returned position finds all regions on the device.
    pub(crate) fn last_on(&self, device: u64, count: usize) -> Option<(usize, Arc<Slot>)> {
        let regions = self.regions.get(..count).unwrap_or(&self.regions);
        let at = regions.iter().rposition(|slot| slot.device == device)?;
        Some((at, regions.get(at)?.clone()))
    }

    /// Removes all devices. Afterwards no device can be found or added.
    pub(crate) fn close(&mut self) -> KVec<Arc<Device>> {
        self.closed = true;
        core::mem::take(&mut self.devices)
    }

    /// Adds the region that `make` creates on a device. RDS finds a region by its key alone, so the
    /// keys must differ between devices as well. Therefore `make` receives a function that returns
    /// whether a key is in use. The error `ENODEV` means that the device was removed. The removal
    /// has revoked the regions of the device. A region that is added later would never be revoked.
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

    /// Removes a region that peers can no longer access.
    pub(crate) fn remove(&mut self, region: &Arc<Slot>) {
        self.regions.retain(|slot| !Arc::ptr_eq(slot, region));
        self.limit.unmap();
    }
}

/// Returns the errno to report to the program.
pub(crate) fn errno(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Limit => EAGAIN,
        Refusal::Range => EINVAL,
    }
}

/// A region, and the state that decides when it is revoked.
#[pin_data]
pub(crate) struct Slot {
    #[pin]
    memory: Mutex<Opened>,
    key: u32,
    /// The number of the device on which the region is or was accessible.
    device: u64,
}

struct Opened {
    /// The region and its device, or `None` after the peers' access has ended. The removal of the
    /// device waits until this field is `None`.
    on: Option<(Region<Memory>, Arc<Device>)>,
    life: Life,
}

impl Slot {
    /// Creates the slot of a region that peers can access. May sleep.
    pub(crate) fn new(
        region: Region<Memory>,
        device: Arc<Device>,
        life: Life,
    ) -> Result<Arc<Self>> {
        let (key, number) = (region.key(), device.number);
        let opened = Opened {
            on: Some((region, device)),
            life,
        };
        Arc::pin_init(
            pin_init!(Self {
                memory <- new_mutex!(opened, "Slot::memory"),
                key,
                device: number,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the key of the region.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }

    /// Calls `f` with the region, if peers can still access the region. May sleep.
    pub(crate) fn with_region(&self, f: impl FnOnce(&Region<Memory>)) {
        if let Some((region, _)) = &self.memory.lock().on {
            f(region);
        }
    }

    /// Ends the peers' access to the region if `due` returns [`Due::Revoke`]. If another thread is
    /// ending the access, waits until the access has ended. May sleep.
    pub(crate) fn revoke(&self, due: impl FnOnce(&mut Life) -> Due) {
        let mut memory = self.memory.lock();
        if due(&mut memory.life) == Due::Revoke {
            memory.life.revoked();
            let (region, device) = memory.on.take().unzip();
            // The lock is held until the peers' access has ended. So the next thread that takes the
            // lock finds a revoked region, and may then, for example, allow a program to read the
            // RDMA ACK.
            drop(region);
            drop(memory);
            drop(device);
        }
    }
}
