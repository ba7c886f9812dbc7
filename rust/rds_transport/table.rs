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
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    },
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

/// Memory for an entry of the table.
pub(crate) type Reservation = RBTreeNodeReservation<u32, Option<Arc<Slot>>>;

/// All devices and regions of the driver.
pub(crate) struct Table {
    /// The number that the next new device receives.
    next: u64,
    devices: KVec<Arc<Device>>,
    /// The regions by their keys. A key without a region is reserved.
    regions: RBTree<u32, Option<Arc<Slot>>>,
    limit: Limit,
    /// Whether the module is being unloaded.
    closed: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            devices: KVec::new(),
            regions: RBTree::new(),
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

    /// Removes a device, and returns it. Its regions stay in the table, see [`Table::next_on`].
    pub(crate) fn take(&mut self, device: u64) -> Option<Arc<Device>> {
        let at = self.devices.iter().position(|one| one.number == device)?;
        self.devices.remove(at).ok()
    }

    /// Returns one region on a device: among the regions with a key of at least `key`, the region
    /// with the lowest key. To find all regions of a removed device, the caller calls this function
    /// repeatedly, each time with the key after that of the returned region. No region is added on
    /// a device that was removed from the table.
    pub(crate) fn next_on(&mut self, device: u64, key: u32) -> Option<Arc<Slot>> {
        let mut cursor = self.regions.cursor_lower_bound_mut(&key)?;
        loop {
            match cursor.current() {
                (_, Some(slot)) if slot.device == device => return Some(slot.clone()),
                _ => cursor = cursor.move_next()?,
            }
        }
    }

    /// Removes all devices. Afterwards no device can be found or added.
    pub(crate) fn close(&mut self) -> KVec<Arc<Device>> {
        self.closed = true;
        core::mem::take(&mut self.devices)
    }

    /// Counts a new region on a device. Returns `EAGAIN` if the limit is reached, and `ENODEV` if
    /// the device was removed.
    pub(crate) fn begin(&mut self, device: &Arc<Device>) -> Result {
        self.check(device)?;
        self.limit.map().map_err(errno)
    }

    /// Returns `ENODEV` if the device was removed from the table.
    fn check(&self, device: &Arc<Device>) -> Result {
        if self.devices.iter().any(|one| Arc::ptr_eq(one, device)) {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }

    /// Reserves a key for a new region. Returns false if another region has the key. RDS finds a
    /// region by its key alone, so the keys must differ between devices as well. `node` is the
    /// memory for the entry.
    pub(crate) fn reserve(&mut self, key: u32, node: &mut Option<Reservation>) -> bool {
        if self.regions.get(&key).is_some() {
            return false;
        }
        let Some(node) = node.take() else {
            return false;
        };
        self.regions.insert(node.into_node(key, None));
        true
    }

    /// Adds a region, whose key was reserved. Returns `ENODEV` if the device was removed: the
    /// removal has revoked all regions of the device, and would not revoke a region that is added
    /// later.
    pub(crate) fn add_region(&mut self, device: &Arc<Device>, region: &Arc<Slot>) -> Result {
        self.check(device)?;
        *self.regions.get_mut(&region.key).ok_or(EINVAL)? = Some(region.clone());
        Ok(())
    }

    /// Stops counting a region. If the region has a key, also frees the key. The caller must ensure
    /// that peers can no longer access the region, or that the region's memory is never freed. The
    /// caller must drop the returned entry only after the lock is released.
    pub(crate) fn end(&mut self, key: Option<u32>) -> Option<RBTreeNode<u32, Option<Arc<Slot>>>> {
        self.limit.unmap();
        self.regions.remove_node(&key?)
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
            // lock knows that no peer can access the region. For example, that thread may then let
            // a program read the RDMA ACK.
            drop(region);
            drop(memory);
            drop(device);
        }
    }
}
