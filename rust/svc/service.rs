// SPDX-License-Identifier: GPL-2.0

//! The driver's side of a transport class: [`Service`].

use crate::{
    bell::Bell,
    inbox::InboxOwner,
    reply::Reply,
    reverse::{
        Line,
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

/// A listener and the address that it is bound to.
pub struct Listening<S: Service> {
    /// The listener.
    pub listener: S::Listener,
    /// Its address, with the port that it was given if it had asked for any.
    pub local: SocketAddr,
}

/// A connection that was accepted.
pub struct Accepted<S: Service> {
    /// The connection.
    pub connection: S::Connection,
    /// Where its calls arrive.
    pub inbox: InboxOwner<S>,
    /// Where the replies to our calls of the client arrive.
    pub line: Line<S>,
    /// Our address.
    pub local: SocketAddr,
    /// The client's address.
    pub peer: SocketAddr,
}

/// A transport driver.
///
/// All methods are called in process context and may sleep. Several calls of one connection may be
/// at work at the same time, also while it is detached.
pub trait Service: Sized + Send + Sync + 'static {
    /// A listener. The driver's last chance to end it is dropping it, after which nothing of it
    /// may be left.
    type Listener: Send + Sync;
    /// A connection. Dropped when the RPC server does not know it any more.
    type Connection: Send + Sync;
    /// The memory that a call arrives in.
    type Message: Buffer;
    /// Memory in pages that data of a call were brought to.
    type Pages: PageArray;
    /// The driver's data about a call.
    type Call: Send;
    /// What sends calls to the client of a connection. The connection does not keep it.
    type Sender: Clone + Send + Sync + Unpin;

    /// Calls to a client that may be in flight at most.
    const CALLS: u32;
    /// What the sysctls show.
    const SIZES: Sizes;

    /// Listens at an address of a namespace; `bell` is rung for each connection request.
    fn listen(net: &Net, addr: &SocketAddr, bell: Bell) -> Result<Listening<Self>>;

    /// Accepts a connection request, if there is one that can be accepted. No call of it may have
    /// more than `longest_call` bytes.
    fn accept(listener: &Self::Listener, longest_call: u32) -> Option<Accepted<Self>>;

    /// Returns whether another connection request waits.
    fn has_requests(listener: &Self::Listener) -> bool;

    /// Stops the listener: no connection is accepted any more. It is dropped later.
    fn close(listener: &Self::Listener);

    /// Sends a reply. `front` are the bytes of the message in front of the call that was given to
    /// the RPC server. After an error the connection is closed.
    fn reply(
        connection: &Self::Connection,
        call: &mut Self::Call,
        front: &[u8],
        reply: &Reply<'_>,
    ) -> Result;

    /// Marks `len` bytes of the reply from the byte `from` as a result that may travel apart from
    /// it; `front` is as in [`Service::reply`]. After an error the RPC server fails the operation.
    fn result(call: &mut Self::Call, front: &[u8], from: u32, len: u32) -> Result;

    /// Ends a call, whether it was answered or not. The memory that it arrived in goes after this.
    fn over(connection: &Self::Connection, call: Self::Call);

    /// Ends a connection: when this returns, the hardware reaches no memory of it any more. Calls
    /// may still be at work and find that they cannot reply.
    fn detach(connection: &Self::Connection);

    /// Returns what sends calls to the client, which allows them from now on.
    fn sender(connection: &Self::Connection) -> Self::Sender;

    /// Returns how many bytes a call to the client may have.
    fn longest_outgoing(sender: &Self::Sender) -> usize;

    /// Sends a call to the client; its reply goes to [`Line::reply`]. Must not sleep for long. May
    /// be called when the connection has ended.
    fn call(sender: &Self::Sender, call: &Outgoing<'_>) -> Result<(), NotSent>;

    /// Ends the connection, since no call is sent to the client any more. Does not sleep.
    fn hang_up(sender: &Self::Sender);
}
