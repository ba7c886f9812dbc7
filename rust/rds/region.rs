// SPDX-License-Identifier: GPL-2.0

//! A memory region, to which RDS holds a pointer ([`Held`]).

use crate::transport::Transport;
use kernel::prelude::*;
use xprtrdma_base::holders::Holders;

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
pub(crate) struct Held<T: Transport> {
    region: T::Region,
    // This field is the last one, so it is dropped after the region.
    _counted: Counted,
}

impl<T: Transport> Held<T> {
    /// Creates the object for a region, and counts it. May sleep.
    pub(crate) fn new(region: T::Region) -> Result<KBox<Self>> {
        let held = Self {
            region,
            _counted: Counted::new(),
        };
        Ok(KBox::new(held, GFP_KERNEL)?)
    }

    /// Returns the region.
    pub(crate) fn region(&self) -> &T::Region {
        &self.region
    }
}
