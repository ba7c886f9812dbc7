// SPDX-License-Identifier: GPL-2.0

//! A transport ([`Xprt`]), which consists of a `struct rpc_xprt` and the driver's data.

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
/// The transport was allocated by `xprt_alloc`, with `xprt` at offset 0, and initialised by the
/// set-up function of [`Registration`](crate::class::Registration). The `destroy` operation frees
/// it.
#[repr(C)]
pub struct Xprt<T: Transport> {
    xprt: Opaque<bindings::rpc_xprt>,
    pub(crate) inner: Inner<T>,
}

#[pin_data]
pub(crate) struct Inner<T: Transport> {
    // The timeouts of calls. The RPC client reads them through the pointer `rpc_xprt::timeout`.
    pub(crate) timeout: Opaque<bindings::rpc_timeout>,
    back_refs: Holders,
    locked: UnsafeCell<T::Locked>,
    // Fields are dropped in the order of their declaration. `data` precedes `pool`, because the
    // driver's data may refer to slots.
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

// SAFETY: The C part is used only under the RPC client's rules, which this crate follows.
unsafe impl<T: Transport> Send for Xprt<T> {}

// SAFETY: The C part is used only under the RPC client's rules. `locked` is accessed only through a
// `SendLock`.
unsafe impl<T: Transport> Sync for Xprt<T> {}

impl<T: Transport> Xprt<T> {
    /// # Safety
    ///
    /// `raw` is an initialised transport of class `T` that outlives `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw<'a>(raw: NonNull<bindings::rpc_xprt>) -> &'a Self {
        // SAFETY: The caller's contract guarantees the pointer. The C part is at offset 0.
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
        // SAFETY: `xprt_alloc` has initialised the lock, which is valid as long as the transport.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).queue_lock) }
    }

    fn transport_lock(&self) -> &SpinLock<()> {
        // SAFETY: `xprt_alloc` has initialised the lock, which is valid as long as the transport.
        unsafe { SpinLock::from_raw(&raw mut (*self.as_raw()).transport_lock) }
    }

    /// Returns the driver's data of the transport.
    #[inline]
    pub fn data(&self) -> &T::Data {
        &self.inner.data
    }

    /// Returns the state that all transports share.
    pub fn common(&self) -> &Arc<Common> {
        &self.inner.common
    }

    /// Returns the transport's number in sysfs and debugfs.
    #[inline]
    pub fn id(&self) -> u32 {
        // SAFETY: The field is constant after the transport's creation.
        unsafe { (*self.as_raw()).id }
    }

    /// Returns the server's address. The administrator can change it between connections.
    pub fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: The address is written only with the send lock held. A caller that connects holds
        // that lock. Any other caller may see a mixture of two addresses, which does no harm.
        unsafe { addr_from_raw((&raw const (*self.as_raw()).addr).cast()) }
    }

    /// Returns the network namespace of the transport.
    pub fn net(&self) -> &Net {
        // SAFETY: The transport holds a reference to its namespace.
        unsafe { Net::from_raw((*self.as_raw()).xprt_net) }
    }

    /// Returns all slots, in the order of their numbers.
    pub fn slots(&self) -> impl Iterator<Item = &Slot<T>> {
        self.pool().iter()
    }

    /// Returns the number of slots that tasks own. A task owns its slot even while the task sleeps.
    /// The result is only a hint, because the number may change at any time.
    pub fn slots_in_use(&self) -> usize {
        self.pool().in_use()
    }

    /// Returns the total size of the message buffers of all slots, in bytes.
    pub fn buffered(&self) -> usize {
        self.pool().buffered()
    }

    /// Frees the message buffers of slots that were not used since the last call of this function,
    /// except for a few slots.
    pub fn trim_slots(&self) {
        self.pool().trim();
        // SAFETY: By the type invariant, the pointer is valid. Calls that begin now may change the
        // counter, but trimming needs only an approximate value.
        let counter = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).xid) };
        self.inner.xids.trim(counter);
        self.feed_backlog();
    }

    /// Returns the slot with this number.
    #[inline]
    pub fn slot(&self, index: u16) -> Option<&Slot<T>> {
        self.pool().get(index)
    }

    /// Returns the cookie of the current connection. The cookie changes when a connection is
    /// established or closed.
    #[inline]
    pub fn connect_cookie(&self) -> u32 {
        // SAFETY: The word is read once, as the RPC client does with `READ_ONCE()`.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).connect_cookie) }
    }

    /// Returns whether the RPC client considers the transport connected.
    #[inline]
    pub fn is_connected(&self) -> bool {
        // SAFETY: The word is read once, as the RPC client does with `READ_ONCE()`.
        let state = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).state) };
        state & (1 << bindings::XPRT_CONNECTED) != 0
    }

    /// Returns whether no task waits for a slot. The result is only a hint, because it may already
    /// be outdated when this function returns.
    #[inline]
    pub(crate) fn is_backlog_empty(&self) -> bool {
        // SAFETY: The word is read once, as the RPC client does with `READ_ONCE()`.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).backlog.qlen) == 0 }
    }

    /// Returns the maximum duration of a connection attempt.
    pub fn connect_timeout(&self) -> Jiffies {
        // SAFETY: The field is a single word of a valid transport, and an outdated value does no
        // harm.
        Jiffies(unsafe { ptr::read_volatile(&raw const (*self.as_raw()).connect_timeout) })
    }

    /// Returns true if a [`Pinned`] of the request with this xid exists.
    #[cold]
    pub fn is_pinned(&self, xid: u32) -> bool {
        let _queue = self.queue_lock().lock();
        self.slots().any(|slot| {
            // SAFETY: The queue lock is held. A pinned request has an xid, which does not change.
            unsafe { *slot.pinned.get() && (*slot.rqst.get()).rq_xid == xid.to_be() }
        })
    }

    /// Requests that the RPC client close the connection. The RPC client then calls
    /// [`Transport::close`]. Does not sleep.
    pub fn force_disconnect(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_force_disconnect(self.as_raw()) }
    }

    /// Returns whether the transport has no users any more. The RPC client destroys a transport
    /// without users, either immediately or later.
    pub fn is_dying(&self) -> bool {
        // SAFETY: The transport's memory is valid, and the count of users is read as an atomic
        // variable.
        unsafe { bindings::xprtrdma_is_dying(self.as_raw()) }
    }

    /// Returns the time since the last request ended, or since the connection was established,
    /// whichever is shorter. The result has no meaning while [`Xprt::is_busy`] returns true.
    pub fn unused(&self) -> Jiffies {
        // SAFETY: The field is one word of a valid transport, and is read once.
        Jiffies::since(unsafe { ptr::read_volatile(&raw const (*self.as_raw()).last_used) })
    }

    pub(crate) fn lower_timeouts(&self, connect: usize, reconnect: usize) {
        let _transport = self.transport_lock().lock();
        // SAFETY: The transport's lock is held, which protects these fields.
        unsafe {
            let xprt = self.as_raw();
            if reconnect < (*xprt).max_reconnect_timeout {
                (*xprt).max_reconnect_timeout = reconnect;
            }
            if connect < (*xprt).connect_timeout {
                (*xprt).connect_timeout = connect;
                // The RPC client reads these timeouts without a lock. Each timeout is a single
                // word.
                let timeout = self.inner.timeout.get();
                let floor = Jiffies::from_ms(10_000).0;
                (*timeout).to_initval = connect.max(floor);
                (*timeout).to_maxval = (*timeout).to_initval;
            }
        }
    }
}

/// Returns the transport of a request.
///
/// # Safety
///
/// `rqst` is valid and belongs to a transport of type `T` that outlives `'a`.
pub(crate) unsafe fn xprt_of<'a, T: Transport>(rqst: *mut bindings::rpc_rqst) -> &'a Xprt<T> {
    // SAFETY: The contract of this function guarantees what the unsafe code requires.
    unsafe { Xprt::from_raw(NonNull::new_unchecked((*rqst).rq_xprt)) }
}
