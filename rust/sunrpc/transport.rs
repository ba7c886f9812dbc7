// SPDX-License-Identifier: GPL-2.0

//! The driver's side of a transport class: [`Transport`], with the arguments and results of its
//! methods.

use crate::{
    call::{
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    callback::Callback,
    common::Common,
    settings::Check,
    xprt::{
        ConnectLock,
        SendLock,
        Xprt, //
    },
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};
use xprtrdma_base::{
    compat,
    time::Jiffies, //
};

/// The RPC client's wishes for a new transport.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// The server.
    pub peer: SocketAddr,
    /// Connect timeout in milliseconds, if the caller has a wish.
    pub connect_timeout_ms: Option<u32>,
    /// Time between reconnects in milliseconds, if the caller has a wish.
    pub reconnect_timeout_ms: Option<u32>,
    /// The connection is to be kept, however long nothing uses it.
    pub keep_idle: bool,
}

/// Sizes and timeouts of a new transport.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests at a time.
    pub slots: u16,
    /// Bytes of data in one request.
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
    pub(crate) fn errno(self) -> c_int {
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
/// send lock. Everything else may run at any time between creation and `stop`; [`Check`] also while
/// there is no transport.
///
/// # Examples
///
/// ```
/// # use core::net::SocketAddr;
/// # use kernel::{prelude::*, seq_file::SeqFile, sync::Arc};
/// # use xprtrdma_base::time::Jiffies;
/// # use xprtrdma_sunrpc::{
/// #     call::{Call, Encoded, Leaving, Waiting},
/// #     callback::Callback,
/// #     class::Registration,
/// #     common::Common,
/// #     settings::{Check, Setting},
/// #     transport::{Create, Limits, NotSent, Transport},
/// #     xprt::{ConnectLock, SendLock, Xprt},
/// # };
/// /// A driver that answers each call itself, with an empty reply.
/// struct Mirror;
///
/// impl Check for Mirror {
///     fn check_setting(_: Setting, text: &str) -> Result {
///         if text.is_empty() { Ok(()) } else { Err(EINVAL) }
///     }
/// }
///
/// impl Transport for Mirror {
///     type Data = SocketAddr;
///     type Locked = ();
///     type SlotData = ();
///     const CALLBACK_SLOTS: u16 = 0;
///
///     fn limits(_: &Create) -> Result<Limits> {
///         Ok(Limits {
///             slots: 128,
///             max_payload: 1 << 20,
///             rpc_timeout_ms: 60_000,
///             connect_timeout_ms: 60_000,
///             reconnect_timeout_ms: 5000,
///         })
///     }
///
///     fn new(create: &Create, _: &Arc<Common>) -> impl PinInit<SocketAddr, Error> {
///         Ok(create.peer)
///     }
///
///     fn connect(mut lock: ConnectLock<Self>) {
///         let send_lock = lock.send_lock();
///         // 128 calls may be in flight.
///         send_lock.xprt().reset_window(&send_lock, 128 << 8);
///         lock.finish(Ok(()));
///     }
///
///     fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent> {
///         let xprt = lock.xprt();
///         if !call.take_credit(xprt) {
///             return Err(NotSent::NoCredit);
///         }
///         // Accepted, no verifier, success.
///         let mut reply = [0; 24];
///         reply[..4].copy_from_slice(&call.xid().to_be_bytes());
///         reply[7] = 1;
///         if let Some(mut pinned) = xprt.lookup(call.xid()) {
///             if pinned.place_inline(&reply).is_ok() {
///                 let _ = pinned.complete(reply.len());
///             }
///         }
///         Ok(())
///     }
///
///     // What has no use here.
///     fn new_slot_data() -> impl PinInit<(), Error> {
///         Ok(())
///     }
///     fn start(_: &Xprt<Self>) -> Result {
///         Ok(())
///     }
///     fn close(_: &mut SendLock<'_, Self>) {}
///     fn busy_poll(_: &Xprt<Self>, _: &Waiting<'_, Self>) {}
///     fn send_callback_reply(
///         _: &mut SendLock<'_, Self>,
///         _: &Callback<'_>,
///     ) -> Result<(), NotSent> {
///         Ok(())
///     }
///     fn check(_: &Xprt<Self>, _: &Encoded<'_, Self>) -> Result {
///         Ok(())
///     }
///     fn revoke(_: &Xprt<Self>, _: &Encoded<'_, Self>, _: Leaving) {}
///     fn abandon(_: &Xprt<Self>, _: &Encoded<'_, Self>) -> Option<u32> {
///         None
///     }
///     fn timed_out(_: &Xprt<Self>, _: &Encoded<'_, Self>) {}
///     fn lower_timeouts(_: &Xprt<Self>, _: Jiffies, _: Jiffies) {}
///     fn stop(_: &mut SendLock<'_, Self>) {}
///     fn show_stats(_: &Xprt<Self>, _: &SeqFile) {}
///     fn local_addr(_: &Xprt<Self>) -> Option<SocketAddr> {
///         None
///     }
///     fn start_callbacks(_: &Xprt<Self>) -> Result {
///         Err(EOPNOTSUPP)
///     }
///     fn callback_size(_: &Xprt<Self>) -> usize {
///         0
///     }
/// }
///
/// // While this exists, mounts with `-o rdma` use the driver.
/// let class = Registration::<Mirror>::new()?;
/// # Ok::<(), Error>(())
/// ```
pub trait Transport: Check + Sized + Send + Sync + 'static {
    /// The driver's data about a transport.
    type Data: Send + Sync;
    /// State protected by the send lock.
    type Locked: Default + Send;
    /// The driver's data about a request, kept from one use of a slot to the next.
    type SlotData: Send + Sync;

    /// Sizes of a new transport. Process context, may sleep.
    fn limits(create: &Create) -> Result<Limits>;

    /// Makes the driver's data; `common` is shared with the other transports. Process context, may
    /// sleep.
    fn new(create: &Create, common: &Arc<Common>) -> impl PinInit<Self::Data, Error>;

    /// Makes the driver's data of one slot. Process context, may sleep.
    fn new_slot_data() -> impl PinInit<Self::SlotData, Error>;

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

    /// Polls for the reply to the only request in flight, in place of sleeping. Called after the
    /// request was sent; when this returns, the task sleeps unless the request is over.
    ///
    /// During the call the RPC client cannot wake, kill or time out the task, so the driver returns
    /// after some seconds at the latest. It is not called for tasks whose timeout is short, nor in
    /// threads of low priority. Task context without locks of the RPC client, NOFS; may sleep.
    fn busy_poll(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>);

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
    /// left. Task context, may sleep; the request is not pinned and will not be looked up any more.
    /// The task may hold the send lock or keep the RPC client's queues busy: if the connection is
    /// broken, its end has to bring the memory back without either. Before, the driver may give the
    /// peer some time with [`Leaving::wait_for_reply`].
    fn revoke(xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving);

    /// The request gives its credit back. If it was sent and its reply is still to come, the server
    /// is not done with it: returns how many requests may be in flight now, in units of 1/256.
    /// Called under the transport's lock; must not sleep.
    fn abandon(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Option<u32>;

    /// The request's timeout has passed without a reply. Task context, may sleep.
    fn timed_out(xprt: &Xprt<Self>, call: &Encoded<'_, Self>);

    /// Limits the time of a connection attempt and of the pause between two; both limits only get
    /// lower (pNFS gives up a data server sooner). Called under RCU, must not sleep.
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

    /// Longest request of the server, and longest reply to one, in bytes. Called under RCU, must
    /// not sleep.
    fn callback_size(xprt: &Xprt<Self>) -> usize;
}
