// SPDX-License-Identifier: GPL-2.0

//! A memory region, to which RDS holds a pointer ([`Held`]).

use crate::transport::Transport;
use core::pin::Pin;
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use xprtrdma_base::{
    holders::Holders,
    queue::WorkQueue, //
};
use xprtrdma_bindings as bindings;

/// Counts the regions that exist.
///
/// A region may outlive its socket: another transport may hold a reference to the region, because
/// RDS finds the socket for a message by address and port only. Such a region does not keep this
/// module loaded, so unloading must wait until the count is zero.
pub(crate) static REGIONS: Holders = Holders::new();

/// Counts a region until this object is dropped.
struct Counted(());

impl Counted {
    fn new() -> Self {
        REGIONS.add();
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        // SAFETY: `new` has counted this object. The counter is static.
        unsafe { Holders::remove(&REGIONS) };
    }
}

/// A region of the driver, to which RDS holds a pointer.
#[pin_data]
pub(crate) struct Held<T: Transport> {
    region: T::Region,
    #[pin]
    work: Work<Self>,
    // This field is the last one, so it is dropped after the region.
    _counted: Counted,
}

impl_has_work! {
    impl{T: Transport} HasWork<Self> for Held<T> { self.work }
}

impl<T: Transport> WorkItem for Held<T> {
    type Pointer = Pin<KBox<Self>>;

    fn run(this: Self::Pointer) {
        drop(this);
    }
}

impl<T: Transport> Held<T> {
    /// Creates the object for a region, and counts it. May sleep.
    pub(crate) fn new(region: T::Region) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                region,
                work <- new_work!("Held::work"),
                _counted: Counted::new(),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the region.
    pub(crate) fn region(&self) -> &T::Region {
        &self.region
    }

    /// Makes a work item of this queue drop the region. Does not sleep.
    #[cold]
    pub(crate) fn drop_later(this: Pin<KBox<Self>>, queue: &WorkQueue) {
        queue.queue().enqueue(this);
    }
}

/// Returns whether the caller may sleep.
///
/// RDS over TCP receives messages in softirq context, or with bottom halves disabled. RDS finds the
/// socket for such a message by address and port only. So RDS can then call the operations of this
/// transport that acknowledge and free a region, if the message has the extension header of an RDMA
/// ACK.
#[inline]
pub(crate) fn may_sleep() -> bool {
    // SAFETY: The call has no requirements.
    unsafe { bindings::rdsrdma_may_sleep() }
}
