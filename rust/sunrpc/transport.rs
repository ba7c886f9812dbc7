// SPDX-License-Identifier: GPL-2.0

//! The driver's side of a transport class: the trait [`Transport`], and the arguments and results
//! of its methods.

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

/// The RPC client's parameters for a new transport.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Address of the server.
    pub peer: SocketAddr,
    /// Connect timeout in milliseconds, if the RPC client requests one.
    pub connect_timeout_ms: Option<u32>,
    /// Maximum time between reconnects in milliseconds, if the RPC client requests one.
    pub reconnect_timeout_ms: Option<u32>,
    /// Whether the connection must be kept even if no call uses it for a long time.
    pub keep_idle: bool,
}

/// Sizes and timeouts of a new transport.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of requests in flight at the same time.
    pub slots: u16,
    /// Maximum number of bytes of data in one request.
    pub max_payload: usize,
    /// Default RPC timeout in milliseconds.
    pub rpc_timeout_ms: u32,
    /// Maximum duration of a connection attempt, in milliseconds.
    pub connect_timeout_ms: u32,
    /// Maximum pause between connection attempts, in milliseconds.
    pub reconnect_timeout_ms: u32,
}

/// The reasons why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// A resource that the request needs is missing, and the driver has called
    /// [`Xprt::stop_senders`].
    Wait,
    /// No credit is left: [`Call::take_credit`] returned `false`.
    NoCredit,
    /// Memory is short. The RPC client tries to send the request again after a short time.
    NoBuffers,
    /// The transport has no connection.
    NotConnected,
}

impl NotSent {
    pub(crate) fn errno(self) -> c_int {
        // If `send` returns one of these errors, the RPC client tries again. Any other error could
        // end the request of another task.
        match self {
            Self::Wait => EAGAIN.to_errno(),
            // In the RPC client, EBADSLT means "no credit".
            Self::NoCredit => compat::EBADSLT,
            Self::NoBuffers => compat::ENOBUFS,
            Self::NotConnected => compat::ENOTCONN,
        }
    }
}

/// A transport driver.
///
/// `send`, `close`, `connect` and `stop` of one transport never run at the same time, because all
/// of them hold its send lock. All other methods may run at any time between creation and `stop`.
/// The methods of [`Check`] may run even while no transport exists.
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
/// // This example does not need the other methods.
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
    /// The driver's data for a request. A slot keeps the data for later requests.
    type SlotData: Send + Sync;

    /// Returns the sizes of a new transport. Process context, may sleep.
    fn limits(create: &Create) -> Result<Limits>;

    /// Creates the driver's data of a transport. All transports share `common`. Process context,
    /// may sleep.
    fn new(create: &Create, common: &Arc<Common>) -> impl PinInit<Self::Data, Error>;

    /// Creates the driver's data of one slot. Process context, may sleep.
    fn new_slot_data() -> impl PinInit<Self::SlotData, Error>;

    /// Starts the transport. Called after the transport was created and before its first request.
    /// If this method fails, [`Transport::stop`] is called and the transport is destroyed. Process
    /// context, may sleep.
    fn start(xprt: &Xprt<Self>) -> Result;

    /// Starts a connection attempt that ends with [`ConnectLock::finish`]. Must not sleep.
    ///
    /// If an attempt fails, it must end with one of these errors. The RPC client then tries again,
    /// usually after a pause:
    ///
    /// - 3 s after `ENETDOWN`, `ENETUNREACH`, `ECONNREFUSED`, `ECONNRESET`, `ECONNABORTED`,
    ///   `EHOSTUNREACH`, `EPIPE` or `EPROTO`.
    /// - 250 ms after `ENOBUFS`.
    /// - No pause after `EADDRINUSE`, `ENOTCONN`, `EAGAIN` or `ETIMEDOUT`.
    ///
    /// Any other error ends the request.
    fn connect(lock: ConnectLock<Self>);

    /// Closes the connection. When this method returns, the driver has released all resources of
    /// the connection. May sleep, under NOFS.
    fn close(lock: &mut SendLock<'_, Self>);

    /// Sends a request. May sleep briefly. Called under NOFS; the calling thread may be one that
    /// reclaims memory. The reply may be processed before this function returns.
    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent>;

    /// Polls for the reply to the only request in flight, instead of sleeping. Called after the
    /// request was sent. When this function returns, the task sleeps unless the request has ended.
    ///
    /// During the call the RPC client cannot wake, kill or time out the task, so the driver must
    /// return within a few seconds. Not called for tasks with a short timeout, nor in threads of
    /// low priority. Called in task context without locks of the RPC client, under NOFS; may sleep.
    fn busy_poll(xprt: &Xprt<Self>, waiting: &Waiting<'_, Self>);

    /// Sends the reply to a callback.
    fn send_callback_reply(
        lock: &mut SendLock<'_, Self>,
        callback: &Callback<'_>,
    ) -> Result<(), NotSent>;

    /// Checks whether the transport can carry a request, which has just been encoded. If this
    /// method returns an error, the request ends. Task context, may sleep.
    fn check(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Result;

    /// Revokes the peer's access to the request's memory, or starts to revoke it. Called when the
    /// request ends. Also called when a request that was passed to `send` is encoded again. After
    /// the call, the caller waits until no [`Lease`](crate::lease::Lease) is left. Before the
    /// driver revokes the access, it may wait some time for the reply, with
    /// [`Leaving::wait_for_reply`].
    ///
    /// Task context, may sleep. The request is not pinned and will not be looked up any more. The
    /// task may hold the send lock or block the RPC client's queues. So if the connection is
    /// broken, the driver must be able to close it and end the leases without the send lock and
    /// without these queues.
    fn revoke(xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving);

    /// Called when a request returns its credit. If the request was sent and its reply has not
    /// arrived, the server may still be processing the request. In that case this function returns
    /// the new congestion window, in units of 1/256 request. Called under the transport's lock;
    /// must not sleep.
    fn abandon(xprt: &Xprt<Self>, call: &Encoded<'_, Self>) -> Option<u32>;

    /// Called when the request's timeout has passed without a reply. Task context, may sleep.
    fn timed_out(xprt: &Xprt<Self>, call: &Encoded<'_, Self>);

    /// Lowers the maximum duration of a connection attempt and the maximum pause between attempts.
    /// Neither limit ever increases. pNFS uses this method to give up a data server sooner. Called
    /// under RCU, must not sleep.
    fn lower_timeouts(xprt: &Xprt<Self>, connect: Jiffies, reconnect: Jiffies);

    /// Ends everything that could call back into the transport, or that holds a
    /// [`BackRef`](crate::xprt::BackRef). No other method is called afterwards. May sleep.
    fn stop(lock: &mut SendLock<'_, Self>);

    /// Writes the transport's line of `/proc/self/mountstats`. May sleep. The connection may be
    /// established or closed during the call.
    fn show_stats(xprt: &Xprt<Self>, m: &SeqFile);

    /// Returns this host's address on the current or latest connection. May sleep.
    fn local_addr(xprt: &Xprt<Self>) -> Option<SocketAddr>;

    /// Prepares the transport for callbacks. At least [`Transport::CALLBACK_SLOTS`] callbacks must
    /// be possible at the same time. May sleep.
    fn start_callbacks(xprt: &Xprt<Self>) -> Result;

    /// Maximum number of callbacks that are in service at a time on one connection.
    const CALLBACK_SLOTS: u16;

    /// Returns the maximum length of a callback and of the reply to a callback, in bytes. Called
    /// under RCU, must not sleep.
    fn callback_size(xprt: &Xprt<Self>) -> usize;
}
