// SPDX-License-Identifier: GPL-2.0

//! Decides whether a connection request is accepted, and with which parameters (RFC 8797, passive
//! side).

use crate::wire::{
    header::Version,
    private_data::{
        PrivateData,
        PRIVATE_DATA_LEN, //
    },
    threshold::{
        Thresholds,
        MIN_THRESHOLD, //
    }, //
};

/// The capabilities of this end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Size of a Receive buffer in bytes. If the value is less than [`MIN_THRESHOLD`], the size is
    /// [`MIN_THRESHOLD`].
    pub receive_size: u32,
    /// Maximum size of a Receive buffer in bytes. A client that announces longer messages than
    /// `receive_size` gets larger buffers, up to this size.
    pub longest_receive: u32,
    /// Maximum length of a Send in bytes. If the value is less than [`MIN_THRESHOLD`], the maximum
    /// is [`MIN_THRESHOLD`].
    pub send_size: u32,
    /// Whether the device supports Send with Invalidate.
    pub invalidates: bool,
    /// Maximum number of RDMA Reads that the device can have in flight as requester.
    pub reads: u8,
}

/// A connection request, as the connection manager reports it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// All private data of the request. On InfiniBand, zeroes follow the bytes that the client
    /// sent.
    pub private_data: &'a [u8],
    /// Maximum number of RDMA Reads that the client can serve at a time.
    pub reads: u8,
}

/// Why a connection request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// The client serves no RDMA Reads, or the device of the server cannot post RDMA Reads.
    NoReads,
}

/// The parameters of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Size in bytes that each Receive buffer of the connection must have.
    pub receive_size: u32,
    /// Maximum message sizes in version 1: `call` from the client, `reply` to the client.
    pub thresholds: Thresholds,
    /// Maximum size of a message to the client in version 2; may exceed the version 1 limit.
    pub reply_v2: u32,
    /// Maximum number of RDMA Reads that the server may have in flight: the initiator depth of the
    /// accept. The client must not post RDMA Reads, because the server exposes no memory.
    pub reads: u8,
    /// The private data of the accept.
    pub private_data: [u8; PRIVATE_DATA_LEN],
    /// Whether the client sent no private data, so that the minimum sizes are in force.
    pub unannounced: bool,
}

/// Decides whether a connection request is accepted.
///
/// # Errors
///
/// Returns the reason for rejecting the request.
pub fn accept(own: &Own, request: &Request<'_>) -> Result<Accepted, Rejected> {
    let reads = own.reads.min(request.reads);
    if reads == 0 {
        return Err(Rejected::NoReads);
    }
    let peer = PrivateData::find(request.private_data);
    let least = own.receive_size.max(MIN_THRESHOLD);
    let receive_size = peer.as_ref().map_or(least, |peer| {
        peer.send_size.min(own.longest_receive).max(least)
    });
    let announced = PrivateData {
        remote_invalidation: own.invalidates,
        send_size: own.send_size.max(MIN_THRESHOLD),
        receive_size,
    };
    let agreed = |version| Thresholds::negotiate(version, &announced, peer.as_ref());
    // In the result of `negotiate`, `call` is the maximum size of sent messages, and `reply` is the
    // maximum size of received messages. The server sends replies and receives calls, so the two
    // fields are swapped here.
    let Thresholds {
        call: sent,
        reply: received,
        remote_invalidation,
    } = agreed(Version::V1);
    Ok(Accepted {
        receive_size,
        thresholds: Thresholds {
            call: received,
            reply: sent,
            remote_invalidation,
        },
        reply_v2: agreed(Version::V2).call,
        reads,
        private_data: announced.encode(),
        unannounced: peer.is_none(),
    })
}
