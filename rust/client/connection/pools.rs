// SPDX-License-Identifier: GPL-2.0

//! The pools of memory regions of one connection ([`Pools`]).

use super::{
    regions::{
        RegionPool,
        Shortage,
        FIRST, //
    },
    Services, //
};
use crate::driver::Rdma;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::Plan;
use xprtrdma_rdma::{
    device::DeviceInfo,
    mr::{
        Access,
        IdleMr, //
    },
    pd::Pd, //
};
use xprtrdma_sunrpc::xprt::BackRef;

/// Number of regions that a call needs for each type of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Number of regions for memory that the server may read.
    reads: usize,
    /// Number of regions for memory that the server may write.
    results: usize,
}

impl Needed {
    /// Returns how many regions of each access type the chunks in this plan need.
    #[inline]
    pub(crate) fn of(plan: &Plan) -> Self {
        Self {
            reads: plan.read_segments,
            results: plan.result_segments,
        }
    }

    /// Returns the region counts of a call that needs one region with this type of access, and no
    /// other region.
    pub(crate) fn one(access: Access) -> Self {
        match access {
            Access::RemoteRead => Self {
                reads: 1,
                results: 0,
            },
            Access::RemoteWrite => Self {
                reads: 0,
                results: 1,
            },
        }
    }

    pub(crate) fn all(self) -> usize {
        self.reads + self.results
    }

    /// Returns whether the call needs a region with this type of access.
    fn has(self, access: Access) -> bool {
        !self.each().contains(&(access, 0))
    }

    fn each(self) -> [(Access, usize); 2] {
        [
            (Access::RemoteRead, self.reads),
            (Access::RemoteWrite, self.results),
        ]
    }
}

/// The pools of memory regions of one connection. Usually there is one pool. But if the device may
/// execute a registration twice, a region must keep its type of access
/// ([`IdleMr::allows`](xprtrdma_rdma::mr::IdleMr::allows)). So on such a device there is one pool
/// for each type of access.
pub(crate) struct Pools {
    read: Arc<RegionPool>,
    write: Arc<RegionPool>,
    /// Whether `read` and `write` are different pools.
    split: bool,
}

impl Pools {
    /// Makes the pools with their first regions, of `pages` pages each. `bound` is the maximum
    /// number of regions in a pool. May sleep.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        device: &DeviceInfo,
        pages: u32,
        bound: usize,
        xprt: &BackRef<Rdma>,
        services: &Services,
    ) -> Result<Self> {
        let split = device.executes_again;
        let first = match split {
            true => FIRST / 2,
            false => FIRST,
        };
        let make = |access| {
            let shape = (pages, device.sg_gaps, access);
            RegionPool::new(pd, shape, (first, bound), xprt, services)
        };
        let read = make(Access::RemoteRead)?;
        let write = match split {
            true => make(Access::RemoteWrite)?,
            false => read.clone(),
        };
        Ok(Self { read, write, split })
    }

    /// Returns the pool whose regions may be mapped for this type of access.
    #[inline]
    pub(crate) fn of(&self, access: Access) -> &Arc<RegionPool> {
        match access {
            Access::RemoteRead => &self.read,
            Access::RemoteWrite => &self.write,
        }
    }

    /// Returns whether a region may be mapped for this type of access.
    #[inline]
    pub(crate) fn suits(&self, mr: &IdleMr, access: Access) -> bool {
        mr.access() == access || !self.split
    }

    /// Returns whether a call that needs the regions `needed` can use this region.
    pub(crate) fn are_meant(&self, needed: Needed, mr: &IdleMr) -> bool {
        match self.split {
            true => needed.has(mr.access()),
            false => needed.all() != 0,
        }
    }

    /// Moves regions from the pools to `out` until `out` contains all regions that `needed` counts.
    /// `out` may already contain some regions. After an error, `out` may contain a part of the
    /// missing regions.
    pub(crate) fn take(&self, needed: Needed, out: &mut KVec<IdleMr>) -> Result<(), Shortage> {
        if !self.split {
            return match needed.all().saturating_sub(out.len()) {
                0 => Ok(()),
                missing => self.read.take(missing, out),
            };
        }
        for (access, count) in needed.each() {
            let there = out.iter().filter(|mr| mr.access() == access).count();
            match count.saturating_sub(there) {
                0 => {}
                missing => self.of(access).take(missing, out)?,
            }
        }
        Ok(())
    }

    /// Returns true if a call should try to take the needed regions now. This is the case if the
    /// pools contain these regions. It is also the case if there is no memory for more regions,
    /// because the attempt then returns an error: see [`RegionPool::has`].
    pub(crate) fn have(&self, needed: Needed) -> bool {
        if !self.split {
            return self.read.has(needed.all());
        }
        // `has` is called for every pool, even if an earlier pool lacks regions, because `has` also
        // requests a wake-up of the senders.
        needed
            .each()
            .into_iter()
            .fold(true, |all, (access, count)| {
                (count == 0 || self.of(access).has(count)) && all
            })
    }

    /// Returns a region to its pool. Does not sleep.
    pub(crate) fn put(&self, mr: IdleMr) {
        self.of(mr.access()).put(mr);
    }

    /// Returns the maximum number of pages in one region.
    pub(crate) fn pages(&self) -> u32 {
        self.read.pages()
    }

    /// Returns whether the memory that a region maps may have gaps.
    pub(crate) fn gaps(&self) -> bool {
        self.read.gaps()
    }

    fn each(&self) -> impl Iterator<Item = &Arc<RegionPool>> {
        let pools = [Some(&self.read), self.split.then_some(&self.write)];
        pools.into_iter().flatten()
    }

    /// Returns whether it is time to deregister unneeded regions. Returns true once in each period.
    pub(crate) fn is_time_to_trim(&self) -> bool {
        self.read.is_time_to_trim()
    }

    /// Deregisters the regions that were not needed since the last call of this function and that
    /// no posted work request uses. May sleep.
    ///
    /// Returns whether a later call may find more regions to deregister.
    pub(crate) fn trim(&self) -> bool {
        self.each().fold(false, |more, pool| pool.trim() || more)
    }

    /// Stops the pools from making more regions.
    pub(crate) fn stop(&self) {
        self.each().for_each(|pool| pool.stop());
    }

    /// Deregisters all free regions, and makes no more regions from now on. A region that is
    /// returned later is deregistered when its pool is dropped. May sleep.
    pub(crate) fn close(&self) {
        self.each().for_each(|pool| pool.close());
    }

    /// Returns the number of existing regions and of free regions, for statistics. Closed pools
    /// count as empty.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.each().fold((0, 0), |(made, free), pool| {
            let (more_made, more_free) = pool.usage();
            (made + more_made, free + more_free)
        })
    }
}
