// SPDX-License-Identifier: GPL-2.0

//! Inline thresholds: the maximum length of the message in one Send, for each direction (RFC 8166
//! 3.3.2).

use crate::wire::{
    header::Version,
    private_data::PrivateData, //
};

pub use super::private_data::MIN_THRESHOLD;

/// The inline threshold that every version 2 peer supports (V2-01), in bytes.
pub const MIN_THRESHOLD_V2: u32 = 4096;

/// The values on which the peers of one connection agreed when they connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Largest message from the client to the server, in bytes: forward Calls and reverse Replies.
    pub call: u32,
    /// Largest message from the server to the client, in bytes: forward Replies and reverse Calls.
    pub reply: u32,
    /// Whether both peers announced remote invalidation.
    pub remote_invalidation: bool,
}

impl Thresholds {
    /// The values for a peer that announced nothing, or that did not keep to its announcement
    /// (CM-24).
    pub const MINIMUM: Self = Self {
        call: MIN_THRESHOLD,
        reply: MIN_THRESHOLD,
        remote_invalidation: false,
    };

    /// Combines this host's announcement with the peer's. `peer` is `None` if the peer announced
    /// nothing valid (CM-08 to CM-10).
    ///
    /// The results are at most the sizes that this host announced (CM-23). A version 2 peer
    /// supports at least [`MIN_THRESHOLD_V2`], whatever it announces.
    pub fn negotiate(version: Version, own: &PrivateData, peer: Option<&PrivateData>) -> Self {
        let floor = match version {
            Version::V1 => MIN_THRESHOLD,
            Version::V2 => MIN_THRESHOLD_V2,
        };
        let peer = peer.copied().unwrap_or(PrivateData::ABSENT);
        Self {
            call: own.send_size.min(peer.receive_size.max(floor)),
            reply: own.receive_size.min(peer.send_size.max(floor)),
            remote_invalidation: own.remote_invalidation && peer.remote_invalidation,
        }
    }

    /// Returns the maximum length in bytes of an RPC message that is a callback or the reply to a
    /// callback. The RPC layer has one maximum for both types of message.
    pub fn callback_max(&self, version: Version) -> u32 {
        self.reverse_call_max(version)
            .min(self.reverse_reply_max(version))
    }

    /// Returns the maximum length of the RPC message of a reverse Call, in bytes (BC-06, BC-22).
    pub fn reverse_call_max(&self, version: Version) -> u32 {
        self.reply.saturating_sub(overhead(version))
    }

    /// Returns the maximum length of the RPC message of a reverse Reply, in bytes (BC-06, BC-23). A
    /// longer Reply is never sent; the connection is closed instead (MAL-131).
    pub fn reverse_reply_max(&self, version: Version) -> u32 {
        self.call.saturating_sub(overhead(version))
    }
}

const fn overhead(version: Version) -> u32 {
    // CAST: The shortest header has 28 bytes (version 1) or 32 bytes (version 2).
    version.min_header_len() as u32
}
