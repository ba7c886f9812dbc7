// SPDX-License-Identifier: GPL-2.0

//! Memory regions as values whose type says what the peer can reach.
//!
//! A [`Region`] carries the kernel's object `T` through its life. Each step takes the region by value and
//! returns it in its next state, so a step out of order does not compile and no region is in two places:
//!
//! ```text
//!   Idle --map--> Mapped --post--> Registering --sent--> Registered --+-- remotely_invalidated --> RemotelyInvalidated
//!    ^              |                   |                    |        |                                  | unmap
//!    |              | abandon         flush                flush      +-- invalidate --> Invalidating    |
//!    |              v                   |                    |                             |    | done   |
//!    +--unmapped-- Unmapping <----------|--------------------|-----------------------------|----+--------+
//!                                       +-----> Flushed <----+-----------------------------+ flush
//!                                                  | recycle (needs QpDrained)
//!                                                  v
//!                                               Recycle --into_inner--> T, to be deregistered
//! ```
//!
//! From `Registering` to the end of `Invalidating`, and in `Flushed` until the queue pair is drained, the peer
//! may access the memory. A call's regions live in [`CallRegions`], and only [`CallRegions::release`] makes
//! the [`Fenced`] value without which the driver cannot complete an RPC. So no RPC completes while the peer
//! can reach its memory (V1-098, V1-103, V1-105).
//!
//! A region cannot be invalidated before it was registered:
//!
//! ```compile_fail,E0599
//! use xprtrdma_proto::{chunk::Handle, region::{Idle, Region}};
//!
//! let idle: Region<Idle, ()> = Region::new((), Handle(0x100));
//! let _ = idle.invalidate();
//! ```
//!
//! A registered region cannot go back to the pool:
//!
//! ```compile_fail,E0308
//! use xprtrdma_proto::region::{Idle, Region, Registered};
//!
//! fn to_pool(_: Region<Idle, ()>) {}
//!
//! fn done(region: Region<Registered, ()>) {
//!     to_pool(region);
//! }
//! ```
//!
//! nor can its memory be unmapped before the invalidation has completed:
//!
//! ```compile_fail,E0599
//! use xprtrdma_proto::region::{Invalidating, Region};
//!
//! fn done(region: Region<Invalidating, ()>) {
//!     let _ = region.unmapped();
//! }
//! ```
//!
//! A flushed region is never used again, and is not even given up before the queue pair is drained:
//!
//! ```compile_fail,E0599
//! use xprtrdma_proto::region::{Flushed, Region};
//!
//! fn lost(region: Region<Flushed, ()>) {
//!     drop(region.into_inner());
//! }
//! ```
//!
//! A region is in one state only; the old value is gone:
//!
//! ```compile_fail,E0382
//! use xprtrdma_proto::region::{Registered, Region};
//!
//! fn twice(region: Region<Registered, ()>) {
//!     let _ = region.invalidate();
//!     let _ = region.flush();
//! }
//! ```
//!
//! The permission to complete an RPC cannot be made up, copied or used twice:
//!
//! ```compile_fail,E0451
//! use xprtrdma_proto::{region::Fenced, Xid};
//!
//! let _ = Fenced { call: Xid(1) };
//! ```
//!
//! ```compile_fail,E0382
//! use xprtrdma_proto::region::Fenced;
//!
//! fn complete(_: Fenced) {}
//!
//! fn twice(proof: Fenced) {
//!     complete(proof);
//!     complete(proof);
//! }
//! ```
//!
//! The order that works:
//!
//! ```
//! use xprtrdma_proto::{chunk::Handle, conn::Epoch, rds::Access, region::Region};
//!
//! let idle = Region::new("the kernel's object", Handle(0x1ff));
//! let mapped = idle.map(Access::PeerWrites, Epoch::NONE);
//! assert_eq!(mapped.handle(), Handle(0x100));
//! let registered = mapped.post().sent();
//! let idle = registered.invalidate().done().unmapped();
//! assert_eq!(idle.into_inner(), "the kernel's object");
//! ```

mod call;

use core::marker::PhantomData;

use crate::{
    chunk::Handle,
    conn::Epoch,
    rds::Access, //
};

pub use self::call::{
    CallRegions,
    Exposed,
    Fenced,
    Released,
    Slot,
    Unreleased, //
};

mod sealed {
    pub trait Sealed {}
}

/// A state of a [`Region`].
pub trait State: sealed::Sealed {
    /// Its name, for logs and debugfs.
    const NAME: &'static str;
    /// Whether the peer may be able to access the memory.
    const EXPOSED: bool;
}

macro_rules! states {
    ($($(#[$doc:meta])* $state:ident, $exposed:literal;)+) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $state {}

            impl sealed::Sealed for $state {}

            impl State for $state {
                const NAME: &'static str = stringify!($state);
                const EXPOSED: bool = $exposed;
            }
        )+
    };
}

states! {
    /// In the pool; no memory belongs to it.
    Idle, false;
    /// Memory is mapped and the registration work request is built, but nothing was posted.
    Mapped, false;
    /// The registration was posted; the peer has access from its execution on.
    Registering, true;
    /// The Send that advertises it was posted.
    Registered, true;
    /// The peer invalidated it with its Reply.
    RemotelyInvalidated, false;
    /// A local invalidation was posted; the peer has access until it completes.
    Invalidating, true;
    /// A work request on it failed or was flushed; the peer has access until the queue pair is drained.
    Flushed, true;
    /// Out of the peer's reach; the memory is still mapped for the device.
    Unmapping, false;
    /// In an unknown state on a dead queue pair; to be deregistered and replaced.
    Recycle, false;
}

/// Proof that the queue pair of a connection executes nothing any more.
///
/// With it everything the connection exposed is out of the peer's reach, because its regions belong to a
/// protection domain that no other queue pair uses (V1-110).
#[derive(Debug)]
pub struct QpDrained {
    epoch: Epoch,
}

impl QpDrained {
    /// States that the queue pair of `epoch` is in error and both its queues are drained, or that it is
    /// destroyed.
    ///
    /// Nothing in this crate can check that. The driver calls it in one place only: where its drain returns.
    pub const fn after_drain(epoch: Epoch) -> Self {
        Self { epoch }
    }
}

/// A memory region in state `S`; `T` is the kernel's object for it.
#[derive(Debug)]
#[must_use = "a region that is dropped takes its kernel object with it"]
pub struct Region<S: State, T> {
    mr: T,
    handle: Handle,
    access: Access,
    epoch: Epoch,
    state: PhantomData<S>,
}

impl<S: State, T> Region<S, T> {
    /// The key that is, was or will be advertised.
    #[inline]
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// The right given by the last mapping; it decides the direction of the DMA mapping.
    #[inline]
    pub const fn access(&self) -> Access {
        self.access
    }

    /// The kernel's object.
    #[inline]
    pub const fn mr(&self) -> &T {
        &self.mr
    }

    /// The kernel's object, to build work requests in it.
    #[inline]
    pub fn mr_mut(&mut self) -> &mut T {
        &mut self.mr
    }

    /// The name of the state.
    pub const fn state(&self) -> &'static str {
        S::NAME
    }

    #[inline]
    fn into_state<N: State>(self) -> Region<N, T> {
        Region {
            mr: self.mr,
            handle: self.handle,
            access: self.access,
            epoch: self.epoch,
            state: PhantomData,
        }
    }
}

impl<T> Region<Idle, T> {
    /// A region for the pool, around a kernel object that was just allocated with this key.
    #[inline]
    pub const fn new(mr: T, handle: Handle) -> Self {
        Self {
            mr,
            handle,
            access: Access::PeerReads,
            epoch: Epoch::NONE,
            state: PhantomData,
        }
    }

    /// Takes it into use for one call on the connection `epoch`.
    ///
    /// The variable part of the key, its low octet, changes (V1-106): a key that a peer kept from an earlier
    /// call opens nothing. The caller gives the new [`Region::handle`] to the kernel's object
    /// (`ib_update_fast_reg_key`) before it builds the registration.
    #[inline]
    pub fn map(mut self, access: Access, epoch: Epoch) -> Region<Mapped, T> {
        let Handle(key) = self.handle;
        self.handle = Handle((key & !0xff) | (key.wrapping_add(1) & 0xff));
        self.access = access;
        self.epoch = epoch;
        self.into_state()
    }

    /// Takes the kernel's object out, to deregister it.
    #[inline]
    pub fn into_inner(self) -> T {
        self.mr
    }
}

impl<T> Region<Mapped, T> {
    /// The registration is handed to the queue pair.
    #[inline]
    pub fn post(self) -> Region<Registering, T> {
        self.into_state()
    }

    /// Nothing was posted and nothing will be (V1-097).
    #[inline]
    pub fn abandon(self) -> Region<Unmapping, T> {
        self.into_state()
    }
}

impl<T> Region<Registering, T> {
    /// The Send that advertises it was posted behind it.
    #[inline]
    pub fn sent(self) -> Region<Registered, T> {
        self.into_state()
    }

    /// The post failed, perhaps only in part, or the registration was flushed.
    #[inline]
    pub fn flush(self) -> Region<Flushed, T> {
        self.into_state()
    }
}

impl<T> Region<Registered, T> {
    /// The Receive of the Reply reported this region as invalidated by the peer (CM-18).
    #[inline]
    pub fn remotely_invalidated(self) -> Region<RemotelyInvalidated, T> {
        self.into_state()
    }

    /// The local invalidation is handed to the queue pair.
    #[inline]
    pub fn invalidate(self) -> Region<Invalidating, T> {
        self.into_state()
    }

    /// The connection failed.
    #[inline]
    pub fn flush(self) -> Region<Flushed, T> {
        self.into_state()
    }
}

impl<T> Region<RemotelyInvalidated, T> {
    /// Goes on to the DMA unmapping.
    #[inline]
    pub fn unmap(self) -> Region<Unmapping, T> {
        self.into_state()
    }
}

impl<T> Region<Invalidating, T> {
    /// The local invalidation, or a later work request of the same queue, completed successfully.
    #[inline]
    pub fn done(self) -> Region<Unmapping, T> {
        self.into_state()
    }

    /// The local invalidation failed or was flushed.
    #[inline]
    pub fn flush(self) -> Region<Flushed, T> {
        self.into_state()
    }
}

impl<T> Region<Unmapping, T> {
    /// The memory was unmapped; the region may serve another call.
    #[inline]
    pub fn unmapped(self) -> Region<Idle, T> {
        self.into_state()
    }
}

impl<T> Region<Flushed, T> {
    /// The queue pair it was registered on is drained; it comes back if the proof is for another one.
    #[inline]
    pub fn recycle(self, proof: &QpDrained) -> Result<Region<Recycle, T>, Self> {
        if proof.epoch == self.epoch {
            Ok(self.into_state())
        } else {
            Err(self)
        }
    }
}

impl<T> Region<Recycle, T> {
    /// Takes the kernel's object out, to unmap its memory and deregister it.
    #[inline]
    pub fn into_inner(self) -> T {
        self.mr
    }
}
