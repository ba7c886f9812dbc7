// SPDX-License-Identifier: GPL-2.0

//! Whether a connection request is accepted, and with what (RFC 8797, seen from the passive side).

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

/// What this end of a connection can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Bytes of a Receive; at least [`MIN_THRESHOLD`] count.
    pub receive_size: u32,
    /// Bytes of the longest Send; at least [`MIN_THRESHOLD`] count.
    pub send_size: u32,
    /// The device can Send With Invalidate.
    pub invalidates: bool,
    /// RDMA Reads that the device can have under way.
    pub reads: u8,
}

/// A request as the connection manager hands it over.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// All private data; on InfiniBand zeroes follow what the client sent.
    pub private_data: &'a [u8],
    /// RDMA Reads that the client can answer at once.
    pub reads: u8,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// The client answers no RDMA Reads, or the device cannot post any.
    NoReads,
}

/// What a connection agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Longest messages in version one: `call` from the client, `reply` to the client.
    pub thresholds: Thresholds,
    /// The longest message to the client in version two, which may be longer.
    pub reply_v2: u32,
    /// RDMA Reads that may be under way; the depth to accept with. The client may have none, for no
    /// memory of ours is open to it.
    pub reads: u8,
    /// The private data of the accept.
    pub private_data: [u8; PRIVATE_DATA_LEN],
    /// The client announced nothing, so the smallest sizes hold.
    pub unannounced: bool,
}

/// Decides about a request.
///
/// # Errors
///
/// The reason to reject it.
pub fn accept(own: &Own, request: &Request<'_>) -> Result<Accepted, Rejected> {
    let reads = own.reads.min(request.reads);
    if reads == 0 {
        return Err(Rejected::NoReads);
    }
    let announced = PrivateData {
        remote_invalidation: own.invalidates,
        send_size: own.send_size.max(MIN_THRESHOLD),
        receive_size: own.receive_size.max(MIN_THRESHOLD),
    };
    let peer = PrivateData::find(request.private_data);
    let agreed = |version| Thresholds::negotiate(version, &announced, peer.as_ref());
    // The client's calls are what this end receives.
    let Thresholds {
        call: sent,
        reply: received,
        remote_invalidation,
    } = agreed(Version::V1);
    Ok(Accepted {
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
