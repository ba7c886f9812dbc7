// SPDX-License-Identifier: GPL-2.0

//! The devices that the driver uses, their removal, and the memory regions that peers can access.

use crate::{
    driver::Rds,
    table::{
        errno,
        Device,
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
    Extent,
    Life,
    Wanted, //
};

/// The object that represents a memory region. RDS stores a pointer to the object.
pub(crate) struct Region {
    slot: Arc<Slot>,
    driver: Arc<Rds>,
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
        // The peer's access ends even if the program did not request the end of the access, because
        // no released region may stay accessible.
        self.slot.revoke(|life| life.released());
        Event::RegionReleased.count();
        self.driver.table.lock().remove(&self.slot);
    }
}

/// The device to which an id of the connection manager holds a reference.
enum Watched {
    /// The id does not hold a reference to a device yet.
    Nothing,
    /// The id holds the device with this number. The device owns a reference to the id, and the id
    /// owns a reference to this object. So this object contains only the device's number, because a
    /// reference to the device would close a cycle.
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

/// The event handler of the rdma_cm id through which the driver holds a device.
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
        let id = CmId::create(init_net(), watcher)?;
        id.bind_addr(&SocketAddr::new(local, 0))?;
        let mut table = self.table.lock();
        if let Some(device) = table.find(&id)? {
            // The `return` drops `id`. The lock is released before that.
            drop(table);
            return Ok(device);
        }
        let pd = Pd::alloc(Arc::new(id, GFP_KERNEL)?)?;
        let registrar = Registrar::new(&pd)?;
        let mut watched = watch.device.lock();
        if matches!(*watched, Watched::Removed) {
            // The device is being removed. If the device were added to the table of devices now,
            // `id` would never be destroyed, and the removal would wait for ever.
            return Err(ENODEV);
        }
        let device = table.add(pd, registrar)?;
        *watched = Watched::Device(device.number());
        drop(watched);
        Ok(device)
    }

    /// Ends the access to all regions of a device, and releases the device. May sleep.
    ///
    /// The lock of the table of devices is not held while the access to a region ends, so that a
    /// program or another device does not wait for this device.
    fn forget(&self, number: u64) {
        let device = self.table.lock().take(number);
        let mut count = usize::MAX;
        loop {
            // The lock is released at the end of this statement.
            let found = self.table.lock().last_on(number, count);
            let Some((at, slot)) = found else {
                break;
            };
            slot.revoke(|life| life.lost());
            count = at;
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
    ) -> Result<(KBox<Region>, u32)> {
        let extent = Extent::new(range.start, range.len, memory.pages().into()).map_err(errno)?;
        let life = Life::new(Wanted {
            use_once: range.use_once,
            invalidate: range.invalidate,
        });
        let mut table = self.table.lock();
        let device = match number.and_then(|number| table.numbered(number)) {
            Some(device) => device,
            None => {
                // `Self::device` takes the lock of the table, so the lock is released here.
                drop(table);
                let device = self.device(local())?;
                table = self.table.lock();
                device
            }
        };
        let make = |taken: &dyn Fn(u32) -> bool| {
            let region = device.registrar.expose(memory, extent.pages, taken)?;
            Slot::new(region, device.clone(), life)
        };
        let opened = table.open(&device, make);
        // The lock is released before `device` is dropped, because the drop may destroy the device.
        drop(table);
        let slot = opened?;
        Event::RegionMade.count();
        // From now on, dropping the [`Region`] removes the slot of the region from the table.
        let key = slot.key();
        let driver = self.clone();
        Ok((KBox::new(Region { slot, driver }, GFP_KERNEL)?, key))
    }
}
