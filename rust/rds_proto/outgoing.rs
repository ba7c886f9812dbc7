// SPDX-License-Identifier: GPL-2.0

//! What the first fragment of a message says about its RDMA operation, and what it asks for.

use crate::{
    extension::{
        add,
        Extension, //
    },
    header::{
        Header,
        ACK_REQUIRED,
        HAS_RDMA_BYTES,
        RETRANSMITTED, //
    },
    region::Cookie, //
};

/// The RDMA operation that a message follows; the message is its RDMA ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chased {
    /// The key of the receiver's region.
    pub key: u32,
    /// Number of bytes that the operation moves.
    pub bytes: u32,
    /// The operation writes to the receiver's memory, and does not read from it.
    pub written: bool,
    /// The program is told when the operation has completed (RDS-35).
    pub notify: bool,
}

/// What is known about a message before it is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The socket layer asks for an acknowledgement.
    pub ack_required: bool,
    /// The message was sent before.
    pub retransmitted: bool,
    /// The RDMA operation that the message follows.
    pub operation: Option<Chased>,
    /// The handle that the message carries.
    pub cookie: Option<Cookie>,
}

/// Completes the header of a message, as the socket layer made it. Called again before the message
/// is sent again: an extension that is there already is not added twice.
///
/// A message with a handle asks for an acknowledgement, so that the socket layer gives up its
/// reference to the region after one round trip, and FREE_MR holds the last one (RDS-47). A message
/// whose operation is reported does so because a success is only told then (RDS-05).
pub fn complete(header: &mut Header, facts: &Facts) {
    let reported = facts.operation.is_some_and(|operation| operation.notify);
    if facts.ack_required || facts.cookie.is_some() || reported {
        header.flags |= ACK_REQUIRED;
    }
    if facts.retransmitted {
        header.flags |= RETRANSMITTED;
    }
    if let Some(operation) = facts.operation {
        let _ = add(
            &mut header.extensions,
            Extension::Rdma { key: operation.key },
        );
        let moved = Extension::RdmaBytes {
            bytes: operation.bytes,
            written: operation.written,
        };
        if add(&mut header.extensions, moved) {
            header.flags |= HAS_RDMA_BYTES;
        }
    }
    if let Some(cookie) = facts.cookie {
        // The socket layer refuses a handle beside an operation, for which there is no room.
        let _ = add(
            &mut header.extensions,
            Extension::RdmaDest {
                key: cookie.key(),
                offset: cookie.offset(),
            },
        );
    }
}
