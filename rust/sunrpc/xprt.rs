// SPDX-License-Identifier: GPL-2.0

//! One transport: [`Xprt`] embeds a `struct rpc_xprt` and the driver's data.

use crate::{
    backchannel::Backchannel,
    call::Pinned,
    compat,
    holders::Holders,
    slot::{
        Pool,
        Slot, //
    },
    transport::Transport,
    util::Jiffies,
};
use core::{
    cell::UnsafeCell,
    net::SocketAddr,
    ops::Deref,
    ptr::{self, NonNull}, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};
use xprtrdma_bindings as bindings;
use xprtrdma_rdma::{
    cm::Net,
    spin::SpinLock, //
};

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
    // What the RPC client reads by pointer.
    pub(crate) timeout: Opaque<bindings::rpc_timeout>,
    back_refs: Holders,
    locked: UnsafeCell<T::Locked>,
    // Teardown order: the driver's data first, then the slots that it may refer to.
    #[pin]
    pub(crate) data: T,
    #[pin]
    pub(crate) pool: Pool<T>,
    #[pin]
    pub(crate) backchannel: Backchannel<T>,
}

impl<T: Transport> Inner<T> {
    pub(crate) fn new<P>(
        timeout: bindings::rpc_timeout,
        locked: T::Locked,
        data: impl PinInit<T, Error>,
        pool: P,
    ) -> impl PinInit<Self, Error>
    where
        P: PinInit<Pool<T>>,
    {
        try_pin_init!(Self {
            timeout: Opaque::new(timeout),
            back_refs: Holders::new(),
            locked: UnsafeCell::new(locked),
            data <- data,
            pool <- pool,
            backchannel <- Backchannel::new(),
        }? Error)
    }
}

// SAFETY: The C part is used under the RPC client's rules, which this crate keeps.
unsafe impl<T: Transport> Send for Xprt<T> {}
// SAFETY: As above; `locked` is only reached through a `SendLock`.
unsafe impl<T: Transport> Sync for Xprt<T> {}

/// Counters that the RPC client and this crate keep for every transport.
#[derive(Clone, Copy, Debug, Default)]
#[expect(missing_docs, reason = "the names are those of the statistics line")]
pub struct XprtStat {
    pub bind_count: usize,
    pub connect_count: usize,
    pub connect_time_s: u64,
    pub idle_time_s: u64,
    pub sends: usize,
    pub recvs: usize,
    pub bad_xids: usize,
    pub req_u: u64,
    pub bklog_u: u64,
}

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
    pub fn data(&self) -> &T {
        &self.inner.data
    }

    /// A counted reference from something that the driver's data owns back to the transport.
    ///
    /// Destruction of the transport waits, after [`Transport::stop`], until all of them are gone.
    pub fn back_ref(&self) -> BackRef<T> {
        self.inner.back_refs.add();
        // INVARIANT: Counted just now.
        BackRef(NonNull::from(self))
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
        unsafe { xprtrdma_rdma::cm::addr_from_raw((&raw const (*self.as_raw()).addr).cast()) }
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

    /// Slots that tasks have, whether or not they are waiting for something. Only a hint: it may have
    /// changed already.
    pub fn slots_in_use(&self) -> usize {
        self.pool().in_use()
    }

    /// Octets in the message buffers of all slots.
    pub fn buffered(&self) -> usize {
        self.pool().buffered()
    }

    /// Frees the message buffers of slots that nobody used since the last call, but for a few.
    pub fn trim_slots(&self) {
        self.pool().trim();
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

    /// Looks a pending request up and pins it. If there is none the RPC client counts a bad xid. A
    /// request that is pinned already is not found, either; see [`Xprt::is_pinned`].
    #[inline]
    pub fn lookup(&self, xid: u32) -> Option<Pinned<T>> {
        let _queue = self.queue_lock().lock();
        // SAFETY: The lock is held. All requests on the receive queue are in our slots.
        unsafe {
            let rqst = bindings::xprt_lookup_rqst(self.as_raw(), xid.to_be());
            if rqst.is_null() {
                return None;
            }
            let pinned = &mut *Slot::<T>::from_rqst(rqst).pinned.get();
            if *pinned {
                return None;
            }
            *pinned = true;
            bindings::xprt_pin_rqst(rqst);
            Some(Pinned::new(self, rqst))
        }
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

    /// Sets how many requests may be in flight, in units of 1/256, to what `cwnd` says; it is
    /// called under the transport's lock, as [`Transport::abandon`] is. Waiting requests notice it
    /// when the next credit is given back, or after [`Xprt::nudge_senders`].
    pub fn set_window(&self, cwnd: impl FnOnce() -> u32) {
        let _transport = self.transport_lock().lock();
        let xprt = self.as_raw();
        // SAFETY: The lock is held.
        unsafe {
            (*xprt).cwnd = cwnd() as usize;
            // The RPC client does so only when a request gives its credit back. That does not happen
            // if nothing is in flight any more, and whoever came then would wait for ever.
            if (*xprt).cong < (*xprt).cwnd {
                bindings::xprtrdma_xprt_clear_cwnd_wait(xprt);
            }
        }
    }

    /// Lets one waiting sender look at the window, when no request ends that would.
    pub fn nudge_senders(&self) {
        self.stop_senders();
        self.wake_senders();
    }

    /// Starts the credit accounting of a new connection: nothing in flight, one credit (V1-014).
    pub fn reset_window(&self, _lock: &SendLock<'_, T>, cwnd: u32) {
        let _transport = self.transport_lock().lock();
        for slot in self.slots() {
            // SAFETY: `rq_cong` is protected by the lock.
            unsafe { (*slot.rqst.get()).rq_cong = 0 };
        }
        // SAFETY: The lock is held.
        unsafe {
            (*self.as_raw()).cong = 0;
            (*self.as_raw()).cwnd = cwnd as usize;
        }
    }

    /// Announces that senders must wait. The caller must look at what it waits for once more
    /// afterwards, and whoever gives it back must call [`Xprt::wake_senders`].
    pub fn stop_senders(&self) {
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_wait_for_buffer_space(self.as_raw()) };
        compat::smp_mb();
    }

    /// Lets senders go on.
    pub fn wake_senders(&self) {
        compat::smp_mb();
        // SAFETY: The transport is valid.
        unsafe { bindings::xprt_write_space(self.as_raw()) };
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

    /// Whether a request is in flight. Only a hint: it may have changed already.
    pub fn is_busy(&self) -> bool {
        // SAFETY: A plain number.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) != 0 }
    }

    /// How long ago the last request ended or the connection was made. Of no use while
    /// [`Xprt::is_busy`].
    pub fn unused(&self) -> Jiffies {
        // SAFETY: A plain number.
        Jiffies::since(unsafe { ptr::read_volatile(&raw const (*self.as_raw()).last_used) })
    }

    /// Whether other requests than the caller's, which has a credit, are in flight; likewise a hint.
    #[inline]
    pub fn has_others(&self) -> bool {
        // SAFETY: A plain number, in units of 1/256.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).cong) > 1 << 8 }
    }

    /// The counters kept by the RPC client.
    pub fn stat(&self) -> XprtStat {
        let connected = self.is_connected();
        let _transport = self.transport_lock().lock();
        // SAFETY: Plain numbers; the lock protects most of them.
        unsafe {
            let xprt = &*self.as_raw();
            let ms = |j: usize| u64::from(Jiffies(j).as_ms());
            XprtStat {
                bind_count: xprt.stat.bind_count,
                connect_count: xprt.stat.connect_count,
                connect_time_s: ms(xprt.stat.connect_time) / 1000,
                idle_time_s: if connected {
                    ms(self.unused().count()) / 1000
                } else {
                    0
                },
                sends: xprt.stat.sends,
                recvs: xprt.stat.recvs,
                bad_xids: xprt.stat.bad_xids,
                req_u: xprt.stat.req_u,
                bklog_u: xprt.stat.bklog_u,
            }
        }
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

    /// Moves the send lock from `task` to a connection attempt.
    ///
    /// # Safety
    ///
    /// Called as `rpc_xprt_ops::connect` of this transport for `task`.
    pub(crate) unsafe fn lock_connect(
        &self,
        task: *mut bindings::rpc_task,
    ) -> Option<ConnectLock<T>> {
        let cookie = ptr::from_ref(&self.inner).cast_mut().cast();
        // SAFETY: By the caller's contract.
        if !unsafe { bindings::xprt_lock_connect(self.as_raw(), task, cookie) } {
            return None;
        }
        // SAFETY: The task is ours for the duration of the call.
        let flags = unsafe { (*task).tk_flags };
        Some(ConnectLock {
            xprt: NonNull::from(self),
            // CAST: A single bit.
            for_trial: flags & bindings::RPC_TASK_SOFTCONN as u16 != 0,
        })
    }

    /// Waits until no back reference is left. Sleeps.
    pub(crate) fn wait_for_back_refs(&self) {
        self.inner.back_refs.wait();
    }
}

/// See [`Xprt::back_ref`].
///
/// # Invariants
///
/// The transport is valid, and counts this value.
pub struct BackRef<T: Transport>(NonNull<Xprt<T>>);

// SAFETY: `Xprt<T>` is `Sync` and the count atomic.
unsafe impl<T: Transport> Send for BackRef<T> {}
// SAFETY: As above.
unsafe impl<T: Transport> Sync for BackRef<T> {}

impl<T: Transport> Deref for BackRef<T> {
    type Target = Xprt<T>;

    #[inline]
    fn deref(&self) -> &Xprt<T> {
        // SAFETY: By the type invariant.
        unsafe { self.0.as_ref() }
    }
}

impl<T: Transport> Clone for BackRef<T> {
    fn clone(&self) -> Self {
        self.back_ref()
    }
}

impl<T: Transport> Drop for BackRef<T> {
    fn drop(&mut self) {
        // SAFETY: Valid by the type invariant.
        let count = unsafe { &raw const (*self.0.as_ptr()).inner.back_refs };
        // SAFETY: As above, and this value is counted.
        unsafe { Holders::remove(count) }
    }
}

/// Evidence that the current context holds the transport's send lock (`XPRT_LOCKED`), and with it
/// the state that the lock protects.
pub struct SendLock<'a, T: Transport>(&'a Xprt<T>);

impl<'a, T: Transport> SendLock<'a, T> {
    /// # Safety
    ///
    /// The caller holds `XPRT_LOCKED` of `xprt` for `'a` and no other `SendLock` of it exists.
    pub(crate) unsafe fn new(xprt: &'a Xprt<T>) -> Self {
        Self(xprt)
    }

    /// The transport.
    #[inline]
    pub fn xprt(&self) -> &'a Xprt<T> {
        self.0
    }

    /// The state under the lock.
    #[inline]
    pub fn state(&mut self) -> &mut T::Locked {
        // SAFETY: The lock is held by the type's meaning, and `self` is borrowed exclusively.
        unsafe { &mut *self.0.inner.locked.get() }
    }
}

/// The send lock in the hands of a connection attempt, which may span threads.
///
/// While it exists no request is sent, the transport is neither closed nor destroyed. Dropping it
/// without [`ConnectLock::finish`] ends the attempt with `EAGAIN`.
pub struct ConnectLock<T: Transport> {
    xprt: NonNull<Xprt<T>>,
    for_trial: bool,
}

// SAFETY: The lock belongs to its cookie, not to a thread.
unsafe impl<T: Transport> Send for ConnectLock<T> {}

impl<T: Transport> ConnectLock<T> {
    /// The transport.
    pub fn xprt(&self) -> &Xprt<T> {
        // SAFETY: The destruction of the transport waits for the lock.
        unsafe { self.xprt.as_ref() }
    }

    /// Whether the task that asked for the connection gives up if it cannot be made
    /// (`RPC_TASK_SOFTCONN`), as the first one of a mount does.
    pub fn is_for_trial(&self) -> bool {
        self.for_trial
    }

    /// The lock as evidence.
    pub fn send_lock(&mut self) -> SendLock<'_, T> {
        // SAFETY: `self` is the lock; the borrow excludes another one.
        unsafe { SendLock::new(self.xprt.as_ref()) }
    }

    /// Ends the attempt. On success the transport is connected from now on; an error reaches the
    /// waiting tasks, and must be one that they retry (see [`Transport::connect`]).
    pub fn finish(self, result: Result) {
        self.end(result);
        core::mem::forget(self);
    }

    fn end(&self, result: Result) {
        let this = self.xprt();
        let xprt = this.as_raw();
        // A task that is woken with success looks at the connected flag; 0 would be taken for
        // "reconnected by somebody else".
        let status = result.err().unwrap_or(EAGAIN).to_errno();
        // SAFETY: The lock is held, so nobody else connects or closes. After the unlock only the
        // pending queue is touched, whose tasks keep the transport.
        unsafe {
            // Also after a failure: what the waiting tasks then do about "their" connection must not
            // hit the next attempt.
            (*xprt).connect_cookie = (*xprt).connect_cookie.wrapping_add(1);
            if result.is_ok() {
                (*xprt).stat.connect_count += 1;
                (*xprt).stat.connect_time +=
                    Jiffies::now().0.wrapping_sub((*xprt).stat.connect_start);
                bindings::xprtrdma_xprt_set_connected(xprt);
            }
            bindings::xprtrdma_xprt_clear_connecting(xprt);
            // The waiting tasks are woken before the lock is given up: afterwards the transport
            // may be destroyed.
            bindings::xprt_wake_pending_tasks(xprt, status);
            bindings::xprt_unlock_connect(xprt, ptr::from_ref(&this.inner).cast_mut().cast());
        }
    }
}

impl<T: Transport> Drop for ConnectLock<T> {
    fn drop(&mut self) {
        self.end(Err(EAGAIN));
    }
}
