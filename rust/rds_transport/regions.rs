// SPDX-License-Identifier: GPL-2.0

//! The devices that the driver uses, their removal, and the memory regions that peers can access.

use crate::{
    driver::Rds,
    table::{
        errno,
        Device,
        Reservation,
        Slot, //
    }, //
};
use core::net::{
    IpAddr,
    SocketAddr, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use xprtrdma_rdma::{
    cm::{
        CmEvent,
        CmHandler,
        CmId, //
    },
    pd::Pd,
    registrar::{
        Registrar, //
    }, //
};
use xprtrdma_rds::{
    events::Event,
    memory::Memory,
    transport::Range,
    util::init_net, //
};
use xprtrdma_rds_proto::region::{
    check_length,
    Life,
    Wanted, //
};

/// The place of a region in the table, with its key. Dropping the place frees the key.
struct Place {
    driver: Arc<Rds>,
    key: Option<u32>,
    /// Memory for the table's entry. It is allocated in advance, and used when a key is reserved.
    node: Option<Reservation>,
}

impl Place {
    /// Counts a new region on a device, see [`Table::begin`](crate::table::Table::begin). May
    /// sleep.
    fn new(driver: &Arc<Rds>, device: &Arc<Device>) -> Result<Self> {
        let node = Reservation::new(GFP_KERNEL)?;
        driver.table.lock().begin(device)?;
        Ok(Self {
            driver: driver.clone(),
            key: None,
            node: Some(node),
        })
    }

    /// Reserves a key, see [`Table::reserve`](crate::table::Table::reserve).
    fn reserve(&mut self, key: u32) -> bool {
        let reserved = self.driver.table.lock().reserve(key, &mut self.node);
        if reserved {
            self.key = Some(key);
        }
        reserved
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The lock is released at the end of this statement, before the entry is dropped.
        let _entry = self.driver.table.lock().end(self.key);
    }
}

/// The object that represents a memory region. It exists as long as RDS has a reference to it.
pub(crate) struct Region {
    slot: Arc<Slot>,
    /// Dropped after [`Slot::revoke`] has ended the peers' access.
    _place: Place,
}

impl Region {
    /// Records that the RDMA ACK for the region has arrived. May sleep.
    pub(crate) fn acknowledged(&self) {
        self.slot.with_region(|region| region.sync_for_cpu());
        self.slot.revoke(|life| life.acknowledged());
    }

    /// Makes the program's writes to the memory visible to the device. May sleep.
    pub(crate) fn offered(&self) {
        self.slot.with_region(|region| region.sync_for_device());
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // A released region must not stay accessible to the peer, so the access ends even if the
        // program did not request this.
        self.slot.revoke(|life| life.released());
        Event::RegionReleased.count();
    }
}

/// The device to which an id of the connection manager holds a reference.
enum Watched {
    /// The id does not hold a reference to a device yet.
    Nothing,
    /// The id holds a reference to an RDMA device. The value is the number of the driver's
    /// [`Device`] object for this RDMA device. A reference to the [`Device`] object would complete
    /// a cycle, because the [`Device`] object owns a reference to the id, and the id owns a
    /// reference to the object that contains this value.
    Device(u64),
    /// The device is being removed.
    Removed,
}

/// The work item that handles the removal of a device.
#[pin_data]
struct Watch {
    driver: Arc<Rds>,
    #[pin]
    device: Mutex<Watched>,
    #[pin]
    work: Work<Watch>,
}

impl_has_work! {
    impl HasWork<Self> for Watch { self.work }
}

impl WorkItem for Watch {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let former = core::mem::replace(&mut *this.device.lock(), Watched::Removed);
        if let Watched::Device(device) = former {
            this.driver.forget(device);
        }
    }
}

/// The event handler of the rdma_cm id through which the driver holds a reference to a device.
struct Watcher(Arc<Watch>);

impl CmHandler for Watcher {
    fn event(&self, event: CmEvent<'_>) {
        if matches!(event, CmEvent::DeviceRemoval) {
            // The connection manager waits until the id is destroyed. The id cannot be destroyed in
            // its own event handler, so a work item destroys the id.
            let _ = self.0.driver.accepts.queue().enqueue(self.0.clone());
        }
    }
}

/// The event handler of an id that is used only to find the device of an address. The id is
/// destroyed soon, so the handler ignores its events.
struct Lookup;

impl CmHandler for Lookup {
    fn event(&self, _event: CmEvent<'_>) {}
}

impl Rds {
    /// Returns the device that has this address, if the table of devices contains the device.
    /// Returns an error if no device has the address. May sleep.
    fn known(&self, local: IpAddr) -> Result<Option<Arc<Device>>> {
        let id = CmId::create(init_net(), Arc::new(Lookup, GFP_KERNEL)?)?;
        id.bind_addr(&SocketAddr::new(local, 0))?;
        // The lock is released at the end of this statement, before the id is destroyed.
        let found = self.table.lock().find(&id);
        found
    }

    /// Returns the device that has this address. Returns an error, for example `ENODEV`, if no
    /// device has the address. May sleep.
    pub(crate) fn device(self: &Arc<Self>, local: IpAddr) -> Result<Arc<Device>> {
        if let Some(device) = self.known(local)? {
            return Ok(device);
        }
        let watch = Arc::pin_init(
            pin_init!(Watch {
                driver: self.clone(),
                device <- new_mutex!(Watched::Nothing, "Watch::device"),
                work <- new_work!("Watch::work"),
            }),
            GFP_KERNEL,
        )?;
        let watcher = Arc::new(Watcher(watch.clone()), GFP_KERNEL)?;
        let id = Arc::new(CmId::create(init_net(), watcher)?, GFP_KERNEL)?;
        id.bind_addr(&SocketAddr::new(local, 0))?;
        // The domain and the registrar are made before the lock is taken, and dropped after it is
        // released, so that other devices do not wait.
        let pd = Pd::alloc(id.clone())?;
        let registrar = Registrar::new(&pd)?;
        let mut table = self.table.lock();
        if let Some(device) = table.find(&id)? {
            return Ok(device);
        }
        let mut watched = watch.device.lock();
        if matches!(*watched, Watched::Removed) {
            // The device is being removed. If the device were added to the table of devices now,
            // `id` would never be destroyed, and the removal would wait for ever.
            return Err(ENODEV);
        }
        let device = table.add(pd.clone(), registrar.clone())?;
        *watched = Watched::Device(device.number());
        Ok(device)
    }

    /// Ends the access to all regions of a device, and releases the device. May sleep.
    ///
    /// The lock of the table of devices is not held while the access to a region ends, so that a
    /// program or another device does not wait for this device.
    fn forget(&self, number: u64) {
        let device = self.table.lock().take(number);
        let mut next = Some(0);
        while let Some(key) = next {
            // The lock is released at the end of this statement.
            let found = self.table.lock().next_on(number, key);
            let Some(slot) = found else {
                break;
            };
            slot.revoke(|life| life.lost());
            next = slot.key().checked_add(1);
        }
        drop(device);
    }

    /// Releases all devices when the module is unloaded. May sleep.
    pub(crate) fn close(&self) {
        let devices = self.table.lock().close();
        drop(devices);
        // The removal of a device may have queued a work item. The flush waits until the work item
        // has finished.
        self.accepts.flush();
    }

    /// Makes memory accessible to peers, see
    /// [`Transport::expose`](xprtrdma_rds::transport::Transport). `number` identifies the device of
    /// the connection that will carry the handle; `None` if no such connection is known. May sleep.
    pub(crate) fn open(
        self: &Arc<Self>,
        local: impl FnOnce() -> IpAddr,
        number: Option<u64>,
        range: Range,
        memory: Memory,
    ) -> Result<(Region, u32)> {
        check_length(range.len).map_err(errno)?;
        let life = Life::new(Wanted {
            use_once: range.use_once,
            invalidate: range.invalidate,
        });
        // The lock is released at the end of this statement.
        let live = number.and_then(|number| self.table.lock().numbered(number));
        let device = match live {
            Some(device) => device,
            None => self.device(local())?,
        };
        let mut place = Place::new(self, &device)?;
        // The lock of the table is not held while the device registers the memory, so that other
        // devices do not wait for this device.
        let taken = |key| !place.reserve(key);
        let pages = memory.pages();
        let region = device.registrar.expose(memory, pages, taken)?;
        let slot = Slot::new(region, device.clone(), life)?;
        // The lock is released at the end of this statement, before an error drops the region.
        let added = self.table.lock().add_region(&device, &slot);
        added?;
        Event::RegionMade.count();
        let key = slot.key();
        let region = Region {
            slot,
            _place: place,
        };
        Ok((region, key))
    }
}
