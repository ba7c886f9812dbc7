// SPDX-License-Identifier: GPL-2.0

//! The pools of a connection's regions ([`Pools`]).

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
use xprtrdma_rdma::{
    device::DeviceInfo,
    mr::{
        Access,
        IdleMr, //
    },
    pd::Pd, //
};
use xprtrdma_sunrpc::xprt::BackRef;

/// How many regions a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    /// For what the server may read.
    pub(crate) reads: usize,
    /// For what it may write.
    pub(crate) results: usize,
}

impl Needed {
    /// Needs one region for this access.
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

    /// Whether one for this access is among them.
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

/// The pools of a connection's regions: one, or one for each kind of access on a device that
/// executes registrations again. A region keeps to one kind there
/// ([`IdleMr::allows`](xprtrdma_rdma::mr::IdleMr::allows)).
pub(crate) struct Pools {
    read: Arc<RegionPool>,
    write: Arc<RegionPool>,
    /// They are two.
    split: bool,
}

impl Pools {
    /// Makes the pools with their first regions, of `pages` pages each. `bound`: how many a pool
    /// may have. Sleeps.
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

    /// The pool of regions that may be mapped for this access.
    #[inline]
    pub(crate) fn of(&self, access: Access) -> &Arc<RegionPool> {
        match access {
            Access::RemoteRead => &self.read,
            Access::RemoteWrite => &self.write,
        }
    }

    /// Whether a region is one that may be mapped for this access.
    #[inline]
    pub(crate) fn suits(&self, mr: &IdleMr, access: Access) -> bool {
        mr.access() == access || !self.split
    }

    /// Whether a region is one of those that are `needed`.
    pub(crate) fn are_meant(&self, needed: Needed, mr: &IdleMr) -> bool {
        match self.split {
            true => needed.has(mr.access()),
            false => needed.all() != 0,
        }
    }

    /// Moves regions into `out`, for this many of each kind that are `needed` and not there yet, or
    /// some of them if there are too few.
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

    /// Whether it is worth asking for this many regions now, see [`RegionPool::has`].
    pub(crate) fn have(&self, needed: Needed) -> bool {
        if !self.split {
            return self.read.has(needed.all());
        }
        // Each is asked, for each may be the one that is waited for.
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

    /// Most pages in one region.
    pub(crate) fn pages(&self) -> u32 {
        self.read.pages()
    }

    /// Whether a region may have gaps.
    pub(crate) fn gaps(&self) -> bool {
        self.read.gaps()
    }

    fn each(&self) -> impl Iterator<Item = &Arc<RegionPool>> {
        let pools = [Some(&self.read), self.split.then_some(&self.write)];
        pools.into_iter().flatten()
    }

    /// Whether it is time to deregister unneeded regions. True once in each period.
    pub(crate) fn is_time_to_trim(&self) -> bool {
        self.read.is_time_to_trim()
    }

    /// Deregisters the regions that were not needed since the last call of this function and that
    /// no send queue may have. Sleeps.
    ///
    /// Returns whether there may be more to deregister the next time.
    pub(crate) fn trim(&self) -> bool {
        self.each().fold(false, |more, pool| pool.trim() || more)
    }

    /// Makes no more regions.
    pub(crate) fn stop(&self) {
        self.each().for_each(|pool| pool.stop());
    }

    /// Deregisters all free regions and makes no more. Regions that return later go with their
    /// pool. Sleeps.
    pub(crate) fn close(&self) {
        self.each().for_each(|pool| pool.close());
    }

    /// Regions that exist and that are free, for statistics; none of closed pools.
    pub(crate) fn usage(&self) -> (usize, usize) {
        self.each().fold((0, 0), |(made, free), pool| {
            let (more_made, more_free) = pool.usage();
            (made + more_made, free + more_free)
        })
    }
}
