// SPDX-License-Identifier: GPL-2.0

//! One transport: [`Xprt`] embeds a `struct rpc_xprt` and the driver's data.

pub(crate) mod address;
mod back_ref;
mod backlog;
mod destroy;
mod lock;
mod stat;
mod window;

pub use back_ref::BackRef;
pub use lock::{
    ConnectLock,
    SendLock, //
};
pub use stat::XprtStat;

pub(crate) use destroy::destroy;

use crate::{
    backchannel::Backchannel,
    common::Common,
    slot::{
        Pool,
        Slot, //
    },
    transport::Transport,
    xids::Xids, //
};
use core::{
    cell::UnsafeCell,
    net::SocketAddr,
    ptr::{self, NonNull}, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use xprtrdma_base::{
    holders::Holders,
    net::{
        addr_from_raw,
        Net, //
    },
    spin::SpinLock,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// A transport of class `T`.
///
/// # Invariants
///
/// Allocated by `xprt_alloc` with `xprt` at offset 0, initialised by
/// [`Registration`](crate::class::Registration)'s set-up function, freed by its destroy function.
#[repr(C)]
pub struct Xprt<T: Transport> {
    xprt: Opaque<bindings::rpc_xprt>,
    pub(crate) inner: Inner<T>,
}

#[pin_data]
pub(crate) struct Inner<T: Transport> {
    // The RPC client reads this through a pointer.
    pub(crate) timeout: Opaque<bindings::rpc_timeout>,
    back_refs: Holders,
    locked: UnsafeCell<T::Locked>,
    // Teardown order: the driver's data first, then the slots that it may refer to.
    #[pin]
    pub(crate) data: T::Data,
    pub(crate) pool: Pool<T>,
    pub(crate) xids: Xids,
    #[pin]
    pub(crate) backchannel: Backchannel<T>,
    common: Arc<Common>,
}

impl<T: Transport> Inner<T> {
    pub(crate) fn new(
        timeout: bindings::rpc_timeout,
        locked: T::Locked,
        data: impl PinInit<T::Data, Error>,
        (pool, xids): (Pool<T>, Xids),
        common: Arc<Common>,
    ) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            timeout: Opaque::new(timeout),
            back_refs: Holders::new(),
            locked: UnsafeCell::new(locked),
            data <- data,
            pool,
            xids,
            backchannel <- Backchannel::new(),
            common,
        }? Error)
    }
}

// SAFETY: The C part is used under the RPC client's rules, which this crate keeps.
unsafe impl<T: Transport> Send for Xprt<T> {}

// SAFETY: As above; `locked` is only reached through a `SendLock`.
unsafe impl<T: Transport> Sync for Xprt<T> {}

impl<T: Transport> Xprt<T> {
    /// # Safety
    ///
    /// `raw` is an initialised transport of class `T` that outlives `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(raw: NonNull<bindings::rpc_xprt>) -> &'a Self {
        // SAFETY: By the caller's contract; the C part is at offset 0.
        unsafe { raw.cast().as_ref() }
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::rpc_xprt {
        self.xprt.get()
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Pool<T> {
        &self.inner.pool
    }

    #[inline]
    pub(crate) fn queue_lock(&self) -> &SpinLock<()> {
        // SAFETY: Initialised by `xprt_alloc`, valid as long as the transport.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).queue_lock) }
    }

    fn transport_lock(&self) -> &SpinLock<()> {
        // SAFETY: As in `queue_lock`.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).transport_lock) }
    }

    /// The driver's data.
    #[inline]
    pub fn data(&self) -> &T::Data {
        &self.inner.data
    }

    /// The state that this transport shares with the other transports.
    pub fn common(&self) -> &Arc<Common> {
        &self.inner.common
    }

    /// The transport's number in sysfs and debugfs.
    #[inline]
    pub fn id(&self) -> u32 {
        // SAFETY: Constant after creation.
        unsafe { (*self.as_raw()).id }
    }

    /// The server's address; an administrator can change it between connections.
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: Written only with the send lock held, which callers that connect hold; others
        // may see a mixture of two addresses.
        unsafe { addr_from_raw((&raw const (*self.as_raw()).addr).cast()) }
    }

    /// The network namespace.
    pub fn net(&self) -> &Net {
        // SAFETY: The transport holds a reference to its namespace.
        unsafe { Net::from_raw((*self.as_raw()).xprt_net) }
    }

    /// The slots, in the order of their numbers.
    pub fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.pool().iter()
    }

    /// Number of slots that tasks own, waiting or not. Only a hint: it may have changed already.
    pub fn slots_in_use(&self) -> usize {
        self.pool().in_use()
    }

    /// Bytes in the message buffers of all slots.
    pub fn buffered(&self) -> usize {
        self.pool().buffered()
    }

    /// Frees the message buffers of slots that were not used since the last call, except for a few.
    pub fn trim_slots(&self) {
        self.pool().trim();
        // SAFETY: Valid by the type invariant. Calls that begin now change the counter, which does
        // not matter here.
        let counter = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).xid) };
        self.inner.xids.trim(counter);
        self.feed_backlog();
    }

    /// One slot.
    #[inline]
    pub fn slot(&self, index: u16) -> Option<&Slot<T>> {
        self.pool().get(index)
    }

    /// Number of the current connection, changed by every connect and every close.
    #[inline]
    pub fn connect_cookie(&self) -> u32 {
        // SAFETY: Read as the RPC client does, with READ_ONCE semantics.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).connect_cookie) }
    }

    /// Whether the RPC client considers the transport connected.
    #[inline]
    pub fn is_connected(&self) -> bool {
        // SAFETY: Read as the RPC client does, with READ_ONCE semantics.
        let state = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).state) };
        state & (1 << bindings::XPRT_CONNECTED) != 0
    }

    /// Whether no task waits for a slot. Only a hint: it may have changed already.
    #[inline]
    pub(crate) fn is_backlog_empty(&self) -> bool {
        // SAFETY: Read as the RPC client does, with READ_ONCE semantics.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).backlog.qlen) == 0 }
    }

    /// How long a connection attempt may take.
    pub fn connect_timeout(&self) -> Jiffies {
        // SAFETY: A plain number; a stale value is as good.
        Jiffies(unsafe { ptr::read_volatile(&raw const (*self.as_raw()).connect_timeout) })
    }

    /// Whether a request with this id has been looked up, and its [`Pinned`] exists.
    #[cold]
    pub fn is_pinned(&self, xid: u32) -> bool {
        let _queue = self.queue_lock().lock();
        self.slots().any(|slot| {
            // SAFETY: The lock is held. A request that is pinned has an id, which stays.
            unsafe { *slot.pinned.get() && (*slot.rqst.get()).rq_xid == xid.to_be() }
        })
    }

    /// Asks for the connection to be closed: [`Transport::close`] will be called. Does not sleep.
    pub fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) }
    }

    /// Whether the last user of the transport has gone; its destruction may be waiting.
    pub fn is_dying(&self) -> bool {
        // SAFETY: The transport's memory is valid; the count is read as an atomic.
        unsafe { bindings::xprtrdma_is_dying(self.as_raw()) }
    }

    /// How long ago the last request ended or the connection was made. Not meaningful while
    /// [`Xprt::is_busy`].
    pub fn unused(&self) -> Jiffies {
        // SAFETY: A plain number.
        Jiffies::since(unsafe { ptr::read_volatile(&raw const (*self.as_raw()).last_used) })
    }

    pub(crate) fn lower_timeouts(&self, connect: usize, reconnect: usize) {
        let _transport = self.transport_lock().lock();
        // SAFETY: The lock is held.
        unsafe {
            let xprt = self.as_raw();
            if reconnect < (*xprt).max_reconnect_timeout {
                (*xprt).max_reconnect_timeout = reconnect;
            }
            if connect < (*xprt).connect_timeout {
                (*xprt).connect_timeout = connect;
                // The RPC client reads these without a lock; each is one word.
                let timeout = self.inner.timeout.get();
                let floor = Jiffies::from_ms(10_000).0;
                (*timeout).to_initval = connect.max(floor);
                (*timeout).to_maxval = (*timeout).to_initval;
            }
        }
    }
}

/// The request's transport.
///
/// # Safety
///
/// `rqst` is valid and belongs to a transport of type `T` that outlives `'a`.
pub(crate) unsafe fn xprt_of<'a, T: Transport>(rqst: *mut bindings::rpc_rqst) -> &'a Xprt<T> {
    // SAFETY: By the caller's contract.
    unsafe { Xprt::from_raw(NonNull::new_unchecked((*rqst).rq_xprt)) }
}
