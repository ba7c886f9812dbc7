// SPDX-License-Identifier: GPL-2.0

//! How devices come and go, and memory is opened to peers.

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
    memory::Memory,
    transport::Range,
    util::init_net, //
};
use xprtrdma_rds_proto::region::{
    Extent,
    Life,
    Wanted, //
};

/// What RDS has of a region.
pub(crate) struct Region {
    slot: Arc<Slot>,
    driver: Arc<Rds>,
}

impl Region {
    /// The RDMA ACK is here. Sleeps.
    pub(crate) fn acknowledged(&self) {
        self.slot.with_region(|region| region.sync_for_cpu());
        self.slot.revoke(|life| life.acknowledged());
    }

    /// The program may have written to the memory.
    pub(crate) fn offered(&self) {
        self.slot.with_region(|region| region.sync_for_device());
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Whether or not the program asked for it: no region stays in reach.
        self.slot.revoke(|life| life.released());
        self.driver.table.lock().remove(&self.slot);
    }
}

/// What is known of a device and its id.
enum Watched {
    /// Nothing: the id keeps no device.
    Nothing,
    /// The id keeps the device with this number. It keeps the watch, too, so the watch must not
    /// keep the device.
    Device(u64),
    /// The device is being removed.
    Removed,
}

/// Waits for the removal of a device.
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

/// Handles the events of the id that keeps a device.
struct Watcher(Arc<Watch>);

impl CmHandler for Watcher {
    fn event(&self, event: CmEvent<'_>) {
        if matches!(event, CmEvent::DeviceRemoval) {
            // The connection manager waits for the end of the id, and this is its handler.
            let _ = self.0.driver.accepts.queue().enqueue(self.0.clone());
        }
    }
}

impl Rds {
    /// Returns the device that has this address. `ENODEV`, or the like: none has. Sleeps.
    pub(crate) fn device(self: &Arc<Self>, local: IpAddr) -> Result<Arc<Device>> {
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
            // Its id is destroyed outside of the lock.
            drop(table);
            return Ok(device);
        }
        let pd = Pd::alloc(Arc::new(id, GFP_KERNEL)?)?;
        let registrar = Registrar::new(&pd)?;
        let mut watched = watch.device.lock();
        if matches!(*watched, Watched::Removed) {
            // The removal waits for the end of the id, and nothing else will end it.
            return Err(ENODEV);
        }
        let device = table.add(pd, registrar)?;
        *watched = Watched::Device(device.number());
        drop(watched);
        Ok(device)
    }

    /// Ends all regions of a device, and gives it up. Sleeps.
    fn forget(&self, device: u64) {
        self.table.lock().forget(device);
    }

    /// Drops all devices; the module is unloaded. Sleeps.
    pub(crate) fn close(&self) {
        let devices = self.table.lock().close();
        drop(devices);
        // What a removed device has queued.
        self.accepts.flush();
    }

    /// Opens memory to peers; see [`Transport::expose`](xprtrdma_rds::transport::Transport).
    pub(crate) fn open(
        self: &Arc<Self>,
        local: IpAddr,
        range: Range,
        memory: Memory,
    ) -> Result<(KBox<Region>, u32)> {
        let extent = Extent::new(range.start, range.len, memory.pages().into()).map_err(errno)?;
        let device = self.device(local)?;
        let life = Life::new(Wanted {
            use_once: range.use_once,
            invalidate: range.invalidate,
        });
        let make = |taken: &dyn Fn(u32) -> bool| {
            let region = device.registrar.expose(memory, extent.pages, taken)?;
            Slot::new(region, device.clone(), life)
        };
        let slot = self.table.lock().open(&device, make)?;
        // From here on its drop takes it out of the table.
        let key = slot.key();
        let driver = self.clone();
        Ok((KBox::new(Region { slot, driver }, GFP_KERNEL)?, key))
    }
}
