// SPDX-License-Identifier: GPL-2.0

//! The driver's side of a transport class ([`Transport`]) and the C operations made from it.

use crate::{
    backchannel::{
        is_callback,
        Backchannel,
        Callback, //
    },
    call::{
        prepare_reply,
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    compat,
    slot::{
        xprt_of,
        Pool,
        Slot, //
    },
    util::{
        is_prompt,
        Jiffies,
        NoFs,
        Show, //
    },
    xprt::{
        ConnectLock,
        SendLock,
        Xprt, //
    },
};
use core::{
    net::SocketAddr,
    ptr::{self, NonNull}, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::atomic::Relaxed, //
};
use xprtrdma_bindings as bindings;
use xprtrdma_rdma::marked::Marked;

/// A task whose request times out earlier, in jiffies, is not asked to [`Transport::attend`].
const ATTEND_FROM: usize = 20 * bindings::CONFIG_HZ as usize;

/// What the RPC client asks for when it creates a transport.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// The server.
    pub peer: SocketAddr,
    /// Connect timeout in milliseconds, if the caller has a wish.
    pub connect_timeout_ms: Option<u32>,
    /// Time between reconnects in milliseconds, if the caller has a wish.
    pub reconnect_timeout_ms: Option<u32>,
    /// The connection shall be kept, however long nothing uses it.
    pub keep_idle: bool,
}

/// Sizes and timeouts of a new transport.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests at a time.
    pub slots: u16,
    /// Octets of data in one request.
    pub max_payload: usize,
    /// Default RPC timeout in milliseconds.
    pub rpc_timeout_ms: u32,
    /// How long a connection attempt may take, in milliseconds.
    pub connect_timeout_ms: u32,
    /// Longest pause between attempts, in milliseconds.
    pub reconnect_timeout_ms: u32,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// A resource is missing and [`Xprt::stop_senders`] was called.
    Wait,
    /// No credit is left: [`Call::take_credit`] said so.
    NoCredit,
    /// Memory is short: to be tried again after a moment.
    NoBuffers,
    /// There is no connection.
    NotConnected,
}

impl NotSent {
    fn errno(self) -> c_int {
        // Only values that the RPC client retries: anything else could end another task's request.
        match self {
            Self::Wait => EAGAIN.to_errno(),
            // EBADSLT means "no credit" to the RPC client.
            Self::NoCredit => compat::EBADSLT,
            Self::NoBuffers => compat::ENOBUFS,
            Self::NotConnected => compat::ENOTCONN,
        }
    }
}

/// A transport driver.
///
/// `send`, `close`, `connect` and `stop` of one transport never run at the same time: all hold its
/// send lock. Everything else may run at any time between creation and `stop`.
pub trait Transport: Sized + Send + Sync + 'static {
    /// State protected by the send lock.
    type Locked: Default + Send;
    /// The driver's data about a request, kept from one use of a slot to the next.
    type Call: Send + Sync;

    /// Sizes of a new transport. Process context, may sleep.
    fn limits(create: &Create) -> Result<Limits>;

    /// Makes the driver's data. Process context, may sleep.
    fn new(create: &Create) -> impl PinInit<Self, Error>;

    /// Makes the driver's data of one slot. Process context, may sleep.
    fn new_call() -> impl PinInit<Self::Call, Error>;

    /// Called when the transport exists, before its first request. On error it is destroyed, with
    /// [`Transport::stop`]. Process context, may sleep.
    fn start(xprt: &Xprt<Self>) -> Result;

    /// Starts a connection attempt that ends with [`ConnectLock::finish`]. Must not sleep.
    ///
    /// The errors that an attempt may end with, because the RPC client retries them: `ENETDOWN`,
    /// `ENETUNREACH`, `ECONNREFUSED`, `ECONNRESET`, `ECONNABORTED`, `EHOSTUNREACH`, `EPIPE`,
    /// `EPROTO` (after 3 s), `EADDRINUSE`, `ENOTCONN`, `EAGAIN`, `ETIMEDOUT` (at once), `ENOBUFS`
    /// (after 250 ms). Every other error ends the request.
    fn connect(lock: ConnectLock<Self>);

    /// Ends the connection: when it returns, nothing of it is left. May sleep, under NOFS.
    fn close(lock: &mut SendLock<'_, Self>);

    /// Sends a request. May sleep briefly; under NOFS, perhaps in a thread that reclaims memory.
    /// The reply may be processed before it returns.
    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent>;

    /// The task of a request that was sent while no other was in flight would go to sleep now. Here it
    /// may wait in the driver's own way; afterwards it goes to sleep if the request is not over. As long
    /// as it is here nobody but the driver wakes it, not even to kill it, and its time is not looked
    /// at; so the driver lets it go after some seconds at the latest. Tasks whose time is short do not
    /// come here, nor those of threads with a low priority. Task context without locks of the RPC client, NOFS; may sleep.
    fn attend(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>);

    /// Sends the reply to a request of the server.
    fn send_callback_reply(
        lock: &mut SendLock<'_, Self>,
        callback: &Callback<'_>,
    ) -> Result<(), NotSent>;

    /// Whether a request, just encoded, can be carried at all. An error ends it. Task context, may
    /// sleep.
    fn check(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Result;

    /// The request ends, or was given to `send` and is encoded again: brings its memory out of the
    /// peer's reach, or starts to. The caller waits until no [`Lease`](crate::lease::Lease) is
    /// left. Task context, may sleep; the request is not pinned and will not be looked up any more. The task
    /// may hold the send lock or keep the RPC client's queues busy: if the connection is broken, its end
    /// has to bring the memory back without either.
    /// Before, the driver may give the peer some time with [`Leaving::linger`].
    fn revoke(xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving);

    /// The request gives its credit back. If it was sent and its reply is still to come, the server
    /// is not done with it: returns how many requests may be in flight now, in units of 1/256.
    /// Called under the transport's lock; must not sleep.
    fn abandon(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Option<u32>;

    /// The request's timeout has passed without a reply. Task context, may sleep.
    fn timed_out(xprt: &Xprt<Self>, call: &Encoded<'_, Self>);

    /// Attempts shall take no longer than this, and the pauses between them not either; both only get
    /// lower (pNFS gives a data server up sooner). Called under RCU, must not sleep.
    fn lower_timeouts(xprt: &Xprt<Self>, connect: Jiffies, reconnect: Jiffies);

    /// The driver's last call: ends everything that could call back or that holds a
    /// [`BackRef`](crate::xprt::BackRef). May sleep.
    fn stop(lock: &mut SendLock<'_, Self>);

    /// Writes the line of `/proc/self/mountstats`. May sleep; the connection may come and go.
    fn show_stats(xprt: &Xprt<Self>, m: &SeqFile);

    /// Our address on the current or last connection. May sleep.
    fn local_addr(xprt: &Xprt<Self>) -> Option<SocketAddr>;

    /// Gets ready for requests of the server, at least as many as
    /// [`Transport::CALLBACK_SLOTS`] at a time. May sleep.
    fn start_callbacks(xprt: &Xprt<Self>) -> Result;

    /// Requests of the server that are served at a time.
    const CALLBACK_SLOTS: u16;

    /// Longest request of the server, and longest reply to one, in octets. Called under RCU, must
    /// not sleep.
    fn callback_size(xprt: &Xprt<Self>) -> usize;
}

/// The C operations of a driver.
pub(crate) struct Ops<T: Transport>(core::marker::PhantomData<T>);

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<T: Transport> Ops<T> {
    pub(crate) const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        set_buffer_size: None,
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(Self::alloc_slot),
        free_slot: Some(Self::free_slot),
        rpcbind: Some(bindings::rpcb_getport_async),
        set_port: Some(Self::set_port),
        connect: Some(Self::connect),
        get_srcaddr: Some(Self::get_srcaddr),
        get_srcport: Some(Self::get_srcport),
        buf_alloc: Some(Self::buf_alloc),
        buf_free: Some(Self::buf_free),
        prepare_request: Some(Self::prepare_request),
        send_request: Some(Self::send_request),
        abort_send_request: None,
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        timer: Some(Self::timer),
        release_request: Some(Self::release_request),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        set_connect_timeout: Some(Self::set_connect_timeout),
        print_stats: Some(Self::print_stats),
        enable_swap: Some(Self::enable_swap),
        disable_swap: Some(Self::disable_swap),
        inject_disconnect: Some(Self::inject_disconnect),
        bc_setup: Some(Self::bc_setup),
        bc_maxpayload: Some(Self::bc_maxpayload),
        bc_num_slots: Some(Self::bc_num_slots),
        bc_free_rqst: Some(Self::bc_free_rqst),
        bc_destroy: Some(Self::bc_destroy),
    };

    /// # Safety
    ///
    /// `raw` is a transport of class `T` for the duration of the caller.
    unsafe fn xprt<'a>(raw: *mut bindings::rpc_xprt) -> &'a Xprt<T> {
        // SAFETY: By the caller's contract; the RPC client never passes null.
        unsafe { Xprt::from_raw(NonNull::new_unchecked(raw)) }
    }

    unsafe extern "C" fn alloc_slot(xprt: *mut bindings::rpc_xprt, task: *mut bindings::rpc_task) {
        // SAFETY: Called by the RPC client for a transport of ours.
        unsafe { Pool::alloc(Self::xprt(xprt), task) }
    }

    unsafe extern "C" fn free_slot(xprt: *mut bindings::rpc_xprt, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: As above, with a request that `alloc_slot` gave out; `buf_free` has waited for
        // its leases.
        unsafe { Pool::free(Self::xprt(xprt), rqst) }
    }

    unsafe extern "C" fn set_port(xprt: *mut bindings::rpc_xprt, port: c_ushort) {
        // SAFETY: As above.
        unsafe { crate::class::set_port(xprt, port) }
    }

    unsafe extern "C" fn connect(xprt: *mut bindings::rpc_xprt, task: *mut bindings::rpc_task) {
        // SAFETY: As above; `task` holds the send lock.
        if let Some(lock) = unsafe { Self::xprt(xprt).lock_connect(task) } {
            T::connect(lock);
        } else {
            // Cannot be: the caller has just taken the lock for `task`.
            // SAFETY: As above.
            unsafe { bindings::xprtrdma_xprt_clear_connecting(xprt) };
        }
    }

    unsafe extern "C" fn get_srcaddr(
        xprt: *mut bindings::rpc_xprt,
        buf: *mut c_char,
        len: usize,
    ) -> c_int {
        // SAFETY: As above.
        let Some(addr) = T::local_addr(unsafe { Self::xprt(xprt) }) else {
            return compat::ENOTCONN;
        };
        // SAFETY: The buffer has `len` writable octets.
        let out = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
        match kernel::str::CString::try_from_fmt(fmt!("{}", Show(&addr.ip()))) {
            Ok(text) => {
                let text = text.to_bytes_with_nul();
                match out.get_mut(..text.len()) {
                    Some(out) => {
                        out.copy_from_slice(text);
                        // CAST: An address has at most 40 characters.
                        text.len() as c_int - 1
                    }
                    None => ENOSPC.to_errno(),
                }
            }
            Err(e) => e.to_errno(),
        }
    }

    unsafe extern "C" fn get_srcport(xprt: *mut bindings::rpc_xprt) -> c_ushort {
        // SAFETY: As above.
        T::local_addr(unsafe { Self::xprt(xprt) }).map_or(0, |addr| addr.port())
    }

    unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: The task has a request, which is in a slot of ours and belongs to the task.
        let (rqst, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: These fields belong to the task.
        let (call_len, reply_len) = unsafe { ((*rqst).rq_callsize, (*rqst).rq_rcvsize) };
        // SAFETY: The slot's buffers belong to this task.
        let buffers = unsafe { &mut *slot.buffers.get() };
        let alloc = || -> Result<(*mut c_void, *mut c_void)> {
            // SAFETY: As above.
            let grown = |octets| unsafe { xprt_of::<T>(rqst) }.pool().count_buffered(octets);
            Ok((
                buffers.call.ensure(call_len, grown)?,
                buffers.reply.ensure(reply_len, grown)?,
            ))
        };
        match { alloc }() {
            Ok((call, reply)) => {
                // SAFETY: As above.
                unsafe {
                    (*rqst).rq_buffer = call;
                    (*rqst).rq_rbuffer = reply;
                }
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: As in `buf_alloc`.
        let (rqst, xprt, slot) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst))
        };
        // SAFETY: The request is off all queues and not pinned, so nobody else works on it.
        let call = unsafe { Encoded::new(slot) };
        // SAFETY: The task runs here.
        T::revoke(xprt, &call, unsafe { Leaving::for_good(task) });
        slot.leases.wait();
        // The memory stays with the slot.
        // SAFETY: These fields belong to the task.
        unsafe {
            (*rqst).rq_buffer = ptr::null_mut();
            (*rqst).rq_rbuffer = ptr::null_mut();
        }
    }

    /// Stands in for the function with which the security flavour releases the pages of a call that
    /// was lent ([`Call::lend`]): not before they are out of the peer's reach. Sleeps.
    ///
    /// The RPC client calls it when it encodes the request anew, long before [`Ops::prepare`], and
    /// perhaps without coming that far: encoding may fail and be tried again later. The second
    /// caller is the end of the request, which has waited already. Both are the request's task,
    /// without locks.
    pub(crate) unsafe extern "C" fn release_call(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: The request is in a slot of ours.
        let slot = unsafe { Slot::<T>::from_rqst(rqst) };
        if slot.is_leased() {
            // SAFETY: As above. The request is off all queues and not pinned, so nobody else works
            // on it; the thread that encodes it anew is this one.
            unsafe {
                T::revoke(
                    xprt_of::<T>(rqst),
                    &Encoded::new(slot),
                    Leaving::to_be_encoded(),
                )
            };
            slot.leases.wait();
        }
        // SAFETY: The request is not being sent, so its task, which calls this, has it alone.
        let release = unsafe { &mut *slot.release.get() }.take();
        if let Some(release) = release {
            // SAFETY: The function was the request's own; the memory that it frees is lent no more.
            unsafe { release(rqst) };
        }
    }

    unsafe extern "C" fn prepare_request(
        rqst: *mut bindings::rpc_rqst,
        buf: *mut bindings::xdr_buf,
    ) -> c_int {
        // Errors about the call's buffer would be lost: nothing is done about it.
        // SAFETY: Called by the RPC client for a request of ours.
        if unsafe { buf != &raw mut (*rqst).rq_rcv_buf || is_callback(rqst) } {
            return 0;
        }
        // SAFETY: As above, and it is not a callback.
        unsafe { Self::prepare(rqst) }
    }

    /// Gets a request ready to be queued. Returns 0 or an errno. Sleeps.
    ///
    /// Out of line: half the calls of `prepare_request` end before they need a frame.
    ///
    /// # Safety
    ///
    /// `rqst` is in a slot of ours, and its task is about to queue it.
    #[inline(never)]
    unsafe fn prepare(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: By the caller's contract.
        let (xprt, slot) = unsafe { (xprt_of::<T>(rqst), Slot::<T>::from_rqst(rqst)) };
        // SAFETY: The request is on no queue and not pinned.
        let call = unsafe { Encoded::new(slot) };
        // Zero in a slot that is handed out, set by `send_request`.
        // SAFETY: By the caller's contract.
        let encoded_anew = unsafe { (*rqst).rq_xtime } != 0;
        if encoded_anew {
            let verdict = slot.verdict.xchg(0, Relaxed);
            if verdict != 0 {
                return verdict;
            }
            T::revoke(xprt, &call, Leaving::to_be_encoded());
        }
        slot.leases.wait();
        // SAFETY: By the caller's contract.
        let result = unsafe { prepare_reply(slot) }.and_then(|()| T::check(xprt, &call));
        result.err().map_or(0, Error::to_errno)
    }

    unsafe extern "C" fn send_request(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: Called by the RPC client for a request of ours, with the send lock held and the
        // request pinned.
        let (xprt, callback) = unsafe { (xprt_of::<T>(rqst), is_callback(rqst)) };
        if !xprt.is_connected() {
            return NotSent::NotConnected.errno();
        }
        // SAFETY: The send lock is held by the thread that called us.
        let mut lock = unsafe { SendLock::new(xprt) };
        // SAFETY: `rq_xtime` is ours to set, before the reply can arrive.
        unsafe { (*rqst).rq_xtime = kernel::bindings::ktime_get() };
        let sent = if callback {
            // SAFETY: The request is a callback that `Backchannel` made.
            let callback = unsafe { Callback::new(rqst) };
            // Before it is sent: the server's next one may come at once.
            xprt.inner.backchannel.answering(callback.slot());
            T::send_callback_reply(&mut lock, &callback)
        } else {
            // SAFETY: The request is encoded and pinned, and only the holder of the send lock sends
            // it.
            T::send(&mut lock, &unsafe { Call::new(Slot::from_rqst(rqst)) })
        };
        match sent {
            Ok(()) => {
                // SAFETY: The request is pinned, so it still is what it was.
                unsafe { (*rqst).rq_xmit_bytes_sent += (*rqst).rq_snd_buf.len as usize };
                if !callback {
                    // SAFETY: The request is pinned and was sent just now.
                    unsafe { Self::add_step(xprt, rqst) };
                }
                0
            }
            Err(e) => e.errno(),
        }
    }

    /// Gives the task that runs a next step of ours, if what was sent is its own request: one that failed
    /// then belongs to no connection any more, and one that its task waits for, and that is the only one
    /// in flight, may be waited for in [`Transport::attend`].
    ///
    /// # Safety
    ///
    /// `rqst` is pinned and has a task; the send lock is held by the caller's task.
    #[inline]
    unsafe fn add_step(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) {
        // SAFETY: By the caller's contract. If the task holds the send lock it is the one that runs
        // here; then its next step, and nothing before that, looks at the callback.
        unsafe {
            let task = (*rqst).rq_task;
            let failed = Slot::<T>::from_rqst(rqst).verdict.read_once() != 0;
            if (failed || Self::may_attend(xprt, rqst))
                && (*xprt.as_raw()).snd_task == task
                && (*task).tk_callback.is_none()
            {
                (*task).tk_callback = Some(if failed { Self::leave } else { Self::attend });
            }
        }
    }

    /// Whether the task of a request may be out of the RPC client's sight for a while, and nobody else
    /// waits for its connection.
    ///
    /// # Safety
    ///
    /// As for [`Ops::add_step`].
    #[inline]
    unsafe fn may_attend(xprt: &Xprt<T>, rqst: *mut bindings::rpc_rqst) -> bool {
        // SAFETY: By the caller's contract.
        unsafe {
            // CAST: A single bit.
            (*(*rqst).rq_task).tk_flags & bindings::RPC_TASK_ASYNC as u16 == 0
                && !xprt.has_others()
                && (*rqst).rq_timeout >= ATTEND_FROM
                && Jiffies((*rqst).rq_majortimeo).is_at_least_ahead(ATTEND_FROM)
                && is_prompt()
        }
    }

    /// The step of a task whose request failed while it was sent. The RPC client has noted the connection
    /// as that of the request after [`Pinned::fail`](crate::call::Pinned::fail), and would end it.
    unsafe extern "C" fn leave(task: *mut bindings::rpc_task) {
        // SAFETY: As for `attend`.
        unsafe {
            let rqst = (*task).tk_rqstp;
            (*rqst).rq_connect_cookie = (*(*rqst).rq_xprt).connect_cookie.wrapping_sub(1);
        }
    }

    unsafe extern "C" fn attend(task: *mut bindings::rpc_task) {
        // SAFETY: Called by the RPC client as the task's next step, as `add_step` asked for: the task
        // has a request of ours, and does nothing else meanwhile.
        unsafe {
            let xprt = xprt_of::<T>((*task).tk_rqstp);
            let _nofs = NoFs::enter();
            T::attend(xprt, &Waiting::new(xprt, task));
        }
    }

    unsafe extern "C" fn timer(xprt: *mut bindings::rpc_xprt, task: *mut bindings::rpc_task) {
        // SAFETY: As above; the task has a request of ours.
        let (xprt, slot) = unsafe { (Self::xprt(xprt), Slot::<T>::from_rqst((*task).tk_rqstp)) };
        // SAFETY: The request belongs to this task, whose context this is.
        T::timed_out(xprt, &unsafe { Encoded::new(slot) });
    }

    unsafe extern "C" fn release_request(task: *mut bindings::rpc_task) {
        // SAFETY: Called by the RPC client with the transport's lock held, which protects `rq_cong`
        // and the window, for a task with a request of ours that is on no queue.
        unsafe {
            let rqst = (*task).tk_rqstp;
            if is_callback(rqst) {
                // The reply to a callback never took a forward credit.
                (*rqst).rq_cong = 0;
                return;
            }
            let xprt = xprt_of::<T>(rqst);
            if (*rqst).rq_cong != 0 {
                // The window gets smaller before the credit comes back: nobody takes it in between.
                if let Some(cwnd) = T::abandon(xprt, &Encoded::new(Slot::from_rqst(rqst))) {
                    (*xprt.as_raw()).cwnd = cwnd as usize;
                }
            }
            bindings::xprt_release_rqst_cong(task);
        }
    }

    unsafe extern "C" fn close(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: As above; the send lock is held.
        T::close(&mut unsafe { SendLock::new(Self::xprt(xprt)) });
        // SAFETY: As above.
        unsafe { bindings::xprt_disconnect_done(xprt) };
    }

    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The last call for this transport; the send lock is held for good.
        unsafe { crate::class::destroy::<T>(raw) }
    }

    unsafe extern "C" fn set_connect_timeout(
        xprt: *mut bindings::rpc_xprt,
        connect: c_ulong,
        reconnect: c_ulong,
    ) {
        // SAFETY: As above.
        let xprt = unsafe { Self::xprt(xprt) };
        xprt.lower_timeouts(connect, reconnect);
        T::lower_timeouts(xprt, Jiffies(connect), Jiffies(reconnect));
    }

    unsafe extern "C" fn print_stats(
        xprt: *mut bindings::rpc_xprt,
        seq: *mut kernel::bindings::seq_file,
    ) {
        // SAFETY: As above; the file is ours for the duration of the call.
        unsafe { T::show_stats(Self::xprt(xprt), SeqFile::from_raw(seq)) }
    }

    unsafe extern "C" fn enable_swap(_xprt: *mut bindings::rpc_xprt) -> c_int {
        // Connecting allocates in rdma_cm and in the device's driver, which cannot promise
        // progress while memory is being swapped out to this very transport.
        pr_warn!("swap files on NFS over RDMA are not supported\n");
        compat::EOPNOTSUPP
    }

    unsafe extern "C" fn disable_swap(_xprt: *mut bindings::rpc_xprt) {}

    unsafe extern "C" fn inject_disconnect(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: As above.
        unsafe { Self::xprt(xprt) }.force_disconnect();
    }

    unsafe extern "C" fn bc_setup(xprt: *mut bindings::rpc_xprt, _min: c_uint) -> c_int {
        // SAFETY: As above.
        let xprt = unsafe { Self::xprt(xprt) };
        Backchannel::setup(xprt)
            .and_then(|()| T::start_callbacks(xprt))
            .err()
            .map_or(0, Error::to_errno)
    }

    unsafe extern "C" fn bc_maxpayload(xprt: *mut bindings::rpc_xprt) -> usize {
        // SAFETY: As above; the destruction of a transport waits for RCU readers.
        T::callback_size(unsafe { Self::xprt(xprt) })
    }

    unsafe extern "C" fn bc_num_slots(_xprt: *mut bindings::rpc_xprt) -> c_uint {
        T::CALLBACK_SLOTS.into()
    }

    unsafe extern "C" fn bc_free_rqst(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: Called once for every callback that was delivered.
        unsafe { Backchannel::<T>::free(rqst) }
    }

    unsafe extern "C" fn bc_destroy(_xprt: *mut bindings::rpc_xprt, _max: c_uint) {
        // The requests are freed with the transport.
    }
}
