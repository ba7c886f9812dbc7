// SPDX-License-Identifier: GPL-2.0

//! The interface that a driver of a transport class implements ([`Service`]).

use crate::{
    bell::Bell,
    inbox::InboxOwner,
    reply::Reply,
    reverse::{
        LineOwner,
        NotSent,
        Outgoing, //
    },
    sysctl::Sizes, //
};
use core::net::SocketAddr;
use kernel::prelude::*;
use xprtrdma_base::{
    buffer::{
        Buffer,
        PageArray, //
    },
    net::Net, //
};

/// A listener, and the address to which it is bound.
pub struct Listening<S: Service> {
    /// The listener.
    pub listener: S::Listener,
    /// The address, with the port that was assigned if the requested port was zero.
    pub local: SocketAddr,
}

/// A connection that was accepted.
pub struct Accepted<S: Service> {
    /// The connection.
    pub connection: S::Connection,
    /// The queue of the calls that arrive on the connection.
    pub inbox: InboxOwner<S>,
    /// The owner of the line that takes the client's replies to calls of this server.
    pub line: LineOwner<S>,
    /// The address of this server.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
}

/// A transport driver.
///
/// All methods are called in process context and may sleep. Several methods may run at the same
/// time for one connection, even during `detach`.
pub trait Service: Sized + Send + Sync + 'static {
    /// A listener. Dropping the listener must release all resources of the listener.
    type Listener: Send + Sync;
    /// A connection. The connection is dropped when the RPC server does not use it any more.
    type Connection: Send + Sync;
    /// The buffer in which a call arrives.
    type Message: Buffer;
    /// Pages that contain fetched data of a call.
    type Pages: PageArray;
    /// The driver's data for a call.
    type Call: Send;
    /// What the driver needs to settle a call after the call was dropped.
    type Debt;
    /// The object that sends calls to the client of a connection. The object does not keep the
    /// connection open.
    type Sender: Clone + Send + Sync + Unpin;

    /// Maximum number of calls in flight to one client.
    const CALLS: u32;
    /// The sizes that the sysctls show.
    const SIZES: Sizes;

    /// Listens at an address of a namespace. The driver must ring `bell` for each connection
    /// request.
    fn listen(net: &Net, addr: &SocketAddr, bell: Bell) -> Result<Listening<Self>>;

    /// Accepts one of the waiting connection requests. Returns `None` if no request can be
    /// accepted. The connection must refuse calls of more than `longest_call` bytes.
    fn accept(listener: &Self::Listener, longest_call: u32) -> Option<Accepted<Self>>;

    /// Rejects a waiting connection request, because no memory is available for the connection.
    fn reject(listener: &Self::Listener);

    /// Returns true if a connection request waits to be accepted.
    fn has_requests(listener: &Self::Listener) -> bool;

    /// Stops the listener, so that no further connection is accepted. The listener is dropped
    /// later.
    fn close(listener: &Self::Listener);

    /// Sends a reply. `front` contains the first bytes of the received message, before the part
    /// that the RPC server uses. After an error the RPC server closes the connection.
    fn reply(
        connection: &Self::Connection,
        call: &mut Self::Call,
        front: &[u8],
        reply: &mut Reply<'_>,
    ) -> Result;

    /// Records that `len` bytes of the reply, from offset `from` on, are a result that may be sent
    /// in a Write chunk. `front` contains the same bytes as in [`Service::reply`]. After an error
    /// the RPC server fails the NFS operation.
    fn result(call: &mut Self::Call, front: &[u8], from: u32, len: u32) -> Result;

    /// Finishes a call, whether or not a reply was sent, and whether or not the RPC server has
    /// received the call. After this method the call, its pages and the buffer in which it arrived
    /// are dropped, and then [`Service::settle`] is called. May be called after
    /// [`Service::detach`].
    fn over(connection: &Self::Connection, call: &mut Self::Call) -> Self::Debt;

    /// Settles a call whose memory was freed. `debt` is the result of [`Service::over`].
    fn settle(connection: &Self::Connection, debt: Self::Debt);

    /// Ends a connection. When this method returns, the device no longer accesses memory of the
    /// connection. The RPC server may still be processing calls. Sending their replies then fails.
    fn detach(connection: &Self::Connection);

    /// Returns the object that sends calls to the client. From now on, the RPC server may send such
    /// calls.
    fn sender(connection: &Self::Connection) -> Self::Sender;

    /// Returns the maximum length of a call to the client in bytes.
    fn longest_outgoing(sender: &Self::Sender) -> usize;

    /// Sends a call to the client. The driver must pass the reply to the line
    /// ([`reply`](crate::reverse::Line::reply)). Must not sleep for long. May be called after the
    /// connection has ended.
    fn call(sender: &Self::Sender, call: &Outgoing<'_>) -> Result<(), NotSent>;

    /// Ends the connection, because calls can no longer be sent to the client. Does not sleep.
    fn hang_up(sender: &Self::Sender);
}
