// SPDX-License-Identifier: GPL-2.0

//! The regions of one call, and the proof that all of them are out of the peer's reach.

use core::{
    array,
    mem, //
};

use super::{
    Flushed,
    Invalidating,
    Mapped,
    QpDrained,
    Recycle,
    Region,
    Registered,
    RemotelyInvalidated,
    State,
    Unmapping, //
};
use crate::{
    chunk::Handle,
    conn::Epoch,
    header::Xid,
    judge::{
        self,
        Invalidated, //
    },
};

/// A region of a call, whatever state it is in.
#[derive(Debug, Default)]
pub enum Slot<T> {
    /// No region.
    #[default]
    Empty,
    /// Built, not posted.
    Mapped(Region<Mapped, T>),
    /// Registered and advertised.
    Registered(Region<Registered, T>),
    /// Invalidated by the peer.
    RemotelyInvalidated(Region<RemotelyInvalidated, T>),
    /// Being invalidated by us.
    Invalidating(Region<Invalidating, T>),
    /// In an unknown state on a queue pair that is not yet drained.
    Flushed(Region<Flushed, T>),
    /// Out of reach, to be unmapped.
    Unmapping(Region<Unmapping, T>),
    /// Out of reach, to be replaced.
    Recycle(Region<Recycle, T>),
}

impl<T> Slot<T> {
    /// Whether the peer may be able to access the memory.
    #[inline]
    pub const fn is_exposed(&self) -> bool {
        match self {
            Self::Empty => false,
            Self::Mapped(_) => Mapped::EXPOSED,
            Self::Registered(_) => Registered::EXPOSED,
            Self::RemotelyInvalidated(_) => RemotelyInvalidated::EXPOSED,
            Self::Invalidating(_) => Invalidating::EXPOSED,
            Self::Flushed(_) => Flushed::EXPOSED,
            Self::Unmapping(_) => Unmapping::EXPOSED,
            Self::Recycle(_) => Recycle::EXPOSED,
        }
    }

    /// The name of the state, for logs and debugfs.
    pub const fn state(&self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Mapped(_) => Mapped::NAME,
            Self::Registered(_) => Registered::NAME,
            Self::RemotelyInvalidated(_) => RemotelyInvalidated::NAME,
            Self::Invalidating(_) => Invalidating::NAME,
            Self::Flushed(_) => Flushed::NAME,
            Self::Unmapping(_) => Unmapping::NAME,
            Self::Recycle(_) => Recycle::NAME,
        }
    }

    /// The region's key.
    pub const fn handle(&self) -> Option<Handle> {
        match self {
            Self::Empty => None,
            Self::Mapped(region) => Some(region.handle()),
            Self::Registered(region) => Some(region.handle()),
            Self::RemotelyInvalidated(region) => Some(region.handle()),
            Self::Invalidating(region) => Some(region.handle()),
            Self::Flushed(region) => Some(region.handle()),
            Self::Unmapping(region) => Some(region.handle()),
            Self::Recycle(region) => Some(region.handle()),
        }
    }

    /// Replaces the region by what `step` makes of it.
    #[inline]
    fn step(&mut self, step: impl FnOnce(Self) -> Self) {
        *self = step(mem::take(self));
    }
}

/// Permission to complete one RPC: every region it used is out of the peer's reach and released.
///
/// It names its call, is made only by [`CallRegions::release`], and is consumed by the completion.
#[derive(Debug)]
#[must_use = "the call it names has to be completed or sent again"]
pub struct Fenced {
    call: Xid,
}

impl Fenced {
    /// The call that may be completed.
    #[inline]
    pub const fn call(&self) -> Xid {
        self.call
    }
}

/// Some regions are still within the peer's reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// How many.
    pub regions: usize,
}

/// The regions of the call before are still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreleased;

/// A region that a call gives back.
#[derive(Debug)]
pub enum Released<T> {
    /// Unmap its memory, then return [`Region::unmapped`] to the pool.
    Unmap(Region<Unmapping, T>),
    /// Unmap its memory, then deregister [`Region::into_inner`] and allocate another.
    Recycle(Region<Recycle, T>),
}

/// The regions of one call on one connection, at most `N`.
///
/// In order of use: [`begin`](Self::begin), [`push`](Self::push) for each region, the post with
/// [`posted`](Self::posted) or [`post_failed`](Self::post_failed) (or [`abandon`](Self::abandon)); with the
/// Reply [`remote_invalidation`](Self::remote_invalidation) and [`invalidate`](Self::invalidate); then
/// [`invalidated`](Self::invalidated) or [`flushed`](Self::flushed), in the second case
/// [`drained`](Self::drained) later; [`release`](Self::release) last. Each is harmless at a wrong time: a
/// region that is not in the state a step starts from stays as it is.
///
/// Dropping it drops the kernel's objects, whose own `Drop` has to deregister them.
#[derive(Debug)]
pub struct CallRegions<T, const N: usize> {
    call: Xid,
    epoch: Epoch,
    slots: [Slot<T>; N],
    /// How many slots, from the first on, hold a region.
    used: usize,
}

impl<T, const N: usize> CallRegions<T, N> {
    /// No call, no regions.
    pub fn new() -> Self {
        Self {
            call: Xid(0),
            epoch: Epoch::NONE,
            slots: array::from_fn(|_| Slot::Empty),
            used: 0,
        }
    }

    /// Starts a call, or its retransmission, on the connection `epoch`.
    ///
    /// # Errors
    ///
    /// [`Unreleased`] if regions of the previous use were not released.
    pub fn begin(&mut self, call: Xid, epoch: Epoch) -> Result<(), Unreleased> {
        if !self.is_empty() {
            return Err(Unreleased);
        }
        self.call = call;
        self.epoch = epoch;
        Ok(())
    }

    /// Adds a region that was mapped for this call; it comes back if there is no room or if it was mapped
    /// for another connection.
    pub fn push(&mut self, region: Region<Mapped, T>) -> Result<(), Region<Mapped, T>> {
        if region.epoch != self.epoch {
            return Err(region);
        }
        match self.slots.get_mut(self.used) {
            Some(slot) => {
                *slot = Slot::Mapped(region);
                self.used = self.used.saturating_add(1);
                Ok(())
            }
            None => Err(region),
        }
    }

    /// The registrations and the Send behind them were posted.
    pub fn posted(&mut self) {
        self.each(|slot| match slot {
            Slot::Mapped(region) => Slot::Registered(region.post().sent()),
            other => other,
        });
    }

    /// The post failed; a part of the chain may have been executed.
    pub fn post_failed(&mut self) {
        self.each(|slot| match slot {
            Slot::Mapped(region) => Slot::Flushed(region.post().flush()),
            other => other,
        });
    }

    /// The call cannot be built; nothing was posted.
    pub fn abandon(&mut self) {
        self.each(|slot| match slot {
            Slot::Mapped(region) => Slot::Unmapping(region.abandon()),
            other => other,
        });
    }

    /// A Receive completion for this call says that the peer invalidated `rkey`.
    ///
    /// Applies even if the message itself is dropped (MAL-016). The region must be one of this call's that
    /// the peer could reach; anything else is [`Invalidated::Foreign`] and ends the connection (MAL-014,
    /// MAL-015). `agreed` says whether remote invalidation was negotiated; without it the right region is
    /// accepted and counted (MAL-013).
    pub fn remote_invalidation(&mut self, rkey: Option<Handle>, agreed: bool) -> Invalidated {
        if rkey.is_none() {
            return Invalidated::Nothing;
        }
        let mut index = 0usize;
        for slot in self.in_use() {
            if let Slot::Registered(region) = slot {
                if let Invalidated::Own(_, counter) =
                    judge::invalidated(rkey, [region.handle()], agreed)
                {
                    slot.step(|slot| match slot {
                        Slot::Registered(region) => {
                            Slot::RemotelyInvalidated(region.remotely_invalidated())
                        }
                        other => other,
                    });
                    return Invalidated::Own(index, counter);
                }
            }
            index = index.saturating_add(1);
        }
        Invalidated::Foreign
    }

    /// Turns every region the peer can still reach over to local invalidation.
    ///
    /// `build` is called for each with its key, the kernel's object to build the work request in, and
    /// whether it is the last one, the only one that needs a completion. The caller then posts the chain;
    /// if that fails it calls [`flushed`](Self::flushed) and closes the connection (V1-098). Returns how many
    /// there are; with none there is nothing to wait for (CM-18).
    pub fn invalidate(&mut self, mut build: impl FnMut(Handle, &mut T, bool)) -> usize {
        let total = self.count(|slot| matches!(slot, Slot::Registered(_)));
        let mut left = total;
        self.each(|slot| match slot {
            Slot::Registered(mut region) => {
                left = left.saturating_sub(1);
                build(region.handle(), region.mr_mut(), left == 0);
                Slot::Invalidating(region.invalidate())
            }
            other => other,
        });
        total
    }

    /// The last local invalidation completed, and with it those posted before it.
    pub fn invalidated(&mut self) {
        self.each(|slot| match slot {
            Slot::Invalidating(region) => Slot::Unmapping(region.done()),
            other => other,
        });
    }

    /// A work request of this call failed or was flushed: nothing exposed is certain any more.
    pub fn flushed(&mut self) {
        self.each(|slot| match slot {
            Slot::Registered(region) => Slot::Flushed(region.flush()),
            Slot::Invalidating(region) => Slot::Flushed(region.flush()),
            other => other,
        });
    }

    /// The queue pair is drained: what it exposed is out of reach and has to be replaced.
    ///
    /// A reply that had already arrived can now be completed (it need not be thrown away). A proof for
    /// another connection than this call's changes nothing.
    pub fn drained(&mut self, proof: &QpDrained) {
        if proof.epoch != self.epoch {
            return;
        }
        self.flushed();
        self.each(|slot| match slot {
            Slot::Flushed(region) => match region.recycle(proof) {
                Ok(region) => Slot::Recycle(region),
                Err(region) => Slot::Flushed(region),
            },
            other => other,
        });
    }

    /// Gives all regions back and the permission to complete the call.
    ///
    /// `take` unmaps the memory of each region it is given, before it returns: the consumer continues as
    /// soon as the call is completed (V1-109).
    ///
    /// # Errors
    ///
    /// [`Exposed`] if the peer can still reach one of them, and then nothing is given back.
    pub fn release(&mut self, mut take: impl FnMut(Released<T>)) -> Result<Fenced, Exposed> {
        let regions = self.exposed();
        if regions != 0 {
            return Err(Exposed { regions });
        }
        self.each(|slot| {
            match slot {
                Slot::Mapped(region) => take(Released::Unmap(region.abandon())),
                Slot::RemotelyInvalidated(region) => take(Released::Unmap(region.unmap())),
                Slot::Unmapping(region) => take(Released::Unmap(region)),
                Slot::Recycle(region) => take(Released::Recycle(region)),
                // Exposed regions were ruled out above; should one ever be here, it stays.
                other => return other,
            }
            Slot::Empty
        });
        self.used = 0;
        Ok(Fenced { call: self.call })
    }

    /// How many regions the peer may be able to reach.
    pub fn exposed(&self) -> usize {
        self.count(Slot::is_exposed)
    }

    /// How many regions there are.
    #[inline]
    pub const fn len(&self) -> usize {
        self.used
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// The regions, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Slot<T>> {
        self.slots.iter().take(self.used)
    }

    /// The call they belong to.
    #[inline]
    pub const fn call(&self) -> Xid {
        self.call
    }

    // `Iterator::count` would check for overflow, and so panic, in the driver's object.
    #[inline]
    fn count(&self, which: impl Fn(&Slot<T>) -> bool) -> usize {
        self.iter()
            .filter(|slot| which(slot))
            .fold(0, |n, _| n.saturating_add(1))
    }

    #[inline]
    fn in_use(&mut self) -> impl Iterator<Item = &mut Slot<T>> {
        self.slots.iter_mut().take(self.used)
    }

    #[inline]
    fn each(&mut self, mut step: impl FnMut(Slot<T>) -> Slot<T>) {
        for slot in self.in_use() {
            slot.step(&mut step);
        }
    }
}

impl<T, const N: usize> Default for CallRegions<T, N> {
    fn default() -> Self {
        Self::new()
    }
}
