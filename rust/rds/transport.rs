// SPDX-License-Identifier: GPL-2.0

//! The operations that a driver provides to RDS ([`Transport`]).

use crate::{
    connection::Connection,
    memory::Memory,
    message::Message,
    util::{
        Net,
        WorkQueue, //
    }, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// The memory that a program makes accessible to peers, and how the access ends.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The length of the memory, in bytes.
    pub len: u64,
    /// Whether the region is released when the RDMA ACK for it arrives.
    pub use_once: bool,
    /// Whether the release of the region ends the access of peers.
    pub invalidate: bool,
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The header and this number of bytes of the payload were sent.
    Some(u32),
    /// Nothing was sent. RDS tries again soon, or when
    /// [`wake_sender`](crate::connection::Entered::wake_sender) is called.
    Later,
}

/// A transport of RDS.
///
/// All methods except [`Transport::create`] and [`Transport::queue`] are called in process context
/// and may sleep. For one connection, calls of [`Transport::connect`] and [`Transport::shut_down`]
/// do not overlap. Calls of [`Transport::transmit`] and [`Transport::operate`] overlap neither with
/// each other nor with `shut_down`.
pub trait Transport: Sized + Send + Sync + 'static {
    /// The driver's state of a connection.
    type Connection: Send + Sync;

    /// Memory of a program that peers can access. Dropping it ends the access, and may sleep.
    type Region: Send + Sync;

    /// Creates the driver's state of a connection. Must not sleep.
    fn create() -> impl PinInit<Self::Connection, Error>;

    /// Returns true if a device that the driver can use has this address in the network namespace.
    fn is_local(net: &Net, addr: IpAddr, scope: u32) -> bool;

    /// Connects to the peer. After an error RDS tries again, with longer and longer pauses.
    fn connect(connection: &Arc<Connection<Self>>) -> Result;

    /// Disconnects from the peer. When this method returns, no message is received any more, and no
    /// memory of a message is used. RDS also calls this method if the connection is not connected.
    fn shut_down(connection: &Connection<Self>);

    /// Sends the payload from offset `at` on. `begun` says whether an earlier call has sent a part
    /// of the message.
    fn transmit(
        connection: &Arc<Connection<Self>>,
        message: &Message<'_>,
        at: u32,
        begun: bool,
    ) -> Sent;

    /// Starts the RDMA operation of the message that RDS will send next. Returns false if RDS must
    /// try again soon.
    fn operate(connection: &Arc<Connection<Self>>, message: &Message<'_>) -> bool;

    /// Makes memory of a program accessible to peers. Returns the region and its key. A peer
    /// addresses a byte by its offset from the beginning of the first page.
    ///
    /// - `local` returns the local address of the program's socket.
    /// - `connection` is the connection on which the program is about to send the handle; `None` if
    ///   RDS does not know the connection.
    ///
    /// RDS passes the errors `EAGAIN`, `EBUSY`, `EINVAL` and `ENOMEM` to the program. `ENODEV`
    /// means that no device has the local address.
    ///
    /// RDS drops the returned region when the last reference to it was dropped. The key must differ
    /// from the keys of all regions that are not dropped yet. If a socket had two regions with the
    /// same key, RDS would stop the kernel (`BUG_ON()`). Only the driver ensures that this does not
    /// happen.
    fn expose(
        self: &Arc<Self>,
        local: impl FnOnce() -> IpAddr,
        connection: Option<&Connection<Self>>,
        range: Range,
        memory: Memory,
    ) -> Result<(Self::Region, u32)>;

    /// Records that the RDMA ACK of a region has arrived. The program can read the ACK after this
    /// method has returned.
    fn acknowledged(region: &Self::Region);

    /// Called when a program is about to send the handle of the region to a peer. The program may
    /// have written to the memory, so the driver must make these writes visible to the device.
    fn offered(region: &Self::Region);

    /// Returns a queue for work items that drop regions. They are used if RDS drops the last
    /// reference to a region in a context that must not sleep. Must not sleep.
    fn queue(&self) -> &WorkQueue;
}
