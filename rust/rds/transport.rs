// SPDX-License-Identifier: GPL-2.0

//! What a driver does for RDS ([`Transport`]).

use crate::{
    connection::Connection,
    memory::Memory,
    message::Message,
    util::Net, //
};
use core::net::IpAddr;
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// What a program wants to open to peers.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The address of its first byte, in the program.
    pub start: u64,
    /// The length of the memory, in bytes.
    pub len: u64,
    /// The region is released when the RDMA ACK arrives.
    pub use_once: bool,
    /// Its release ends the access of peers.
    pub invalidate: bool,
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// This number of bytes of payload went out, and the header.
    Some(u32),
    /// Nothing: RDS tries again soon, or when
    /// [`wake_sender`](crate::connection::Entered::wake_sender) is called.
    Later,
}

/// A transport of RDS.
///
/// All methods but [`Transport::create`] are called in process context, and may sleep. Calls of
/// [`Transport::connect`] and [`Transport::shut_down`] of a connection do not overlap, nor do calls
/// of the three that send, nor does `shut_down` with those.
pub trait Transport: Sized + Send + Sync + 'static {
    /// The driver's state of a connection.
    type Connection: Send + Sync;

    /// Memory of a program that peers can reach. Dropping it ends that, and may sleep.
    type Region: Send + Sync;

    /// Makes the driver's part of a connection. Must not sleep.
    fn create() -> impl PinInit<Self::Connection, Error>;

    /// Returns whether a device of the driver has this address of the namespace.
    fn is_local(net: &Net, addr: IpAddr, scope: u32) -> bool;

    /// Connects. RDS tries again after an error, with more and more time in between.
    fn connect(connection: &Arc<Connection<Self>>) -> Result;

    /// Ends the connection: when this returns, nothing is received and nothing of a message is
    /// used. Called for one that is not connected, too.
    fn shut_down(connection: &Connection<Self>);

    /// Sends from the byte `at` of the payload on. `begun`: some of the message was sent.
    fn transmit(
        connection: &Arc<Connection<Self>>,
        message: &Message<'_>,
        at: u32,
        begun: bool,
    ) -> Sent;

    /// Starts the operation of a message that is sent next. `false`: RDS tries again soon.
    fn operate(connection: &Arc<Connection<Self>>, message: &Message<'_>) -> bool;

    /// Nothing more is sent for the moment.
    fn sent(connection: &Arc<Connection<Self>>);

    /// Opens memory of a socket with this address to peers. Returns the region and its key. A peer
    /// addresses the memory by its offset in its first page. RDS passes on `EAGAIN`, `EBUSY`,
    /// `EINVAL` and `ENOMEM`; `ENODEV` means that no device has the address.
    fn expose(
        self: &Arc<Self>,
        local: IpAddr,
        range: Range,
        memory: Memory,
    ) -> Result<(KBox<Self::Region>, u32)>;

    /// The RDMA ACK of a region is here, and is given to the program when this returns.
    fn acknowledged(region: &Self::Region);

    /// A program is about to name the region to a peer, after it may have written to it.
    fn offered(region: &Self::Region);

    /// The last reference to a region was dropped.
    fn release(region: KBox<Self::Region>);
}
