// SPDX-License-Identifier: GPL-2.0

//! The extensions and flags in the header of a message that is sent.

use crate::{
    extension::{
        add,
        Extension, //
    },
    header::{
        Header,
        ACK_REQUIRED,
        HAS_RDMA_BYTES,
        HEADER_BYTES,
        RETRANSMITTED, //
    },
    region::Cookie, //
};

/// The RDMA operation that precedes a message. The message is the RDMA ACK of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chased {
    /// The key of the receiver's region.
    pub key: u32,
    /// Number of bytes that the operation moves.
    pub bytes: u32,
    /// Whether the operation writes to the receiver's memory. If not, it reads from it.
    pub written: bool,
    /// Whether the program receives a report when the operation has completed (RDS-35).
    pub notify: bool,
}

/// The facts on which the header of a message depends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the socket layer requests an acknowledgement.
    pub ack_required: bool,
    /// Whether the message was sent before.
    pub retransmitted: bool,
    /// The RDMA operation that the message follows.
    pub operation: Option<Chased>,
    /// The handle that the message carries.
    pub cookie: Option<Cookie>,
}

/// Completes the header that the socket layer has made for a message. May be called again before
/// the message is retransmitted: an existing extension is not added twice.
///
/// A message with a handle requests an acknowledgement. So the socket layer drops its reference to
/// the region after one round trip, and FREE_MR then drops the last reference (RDS-47). A message
/// whose operation is reported requests an acknowledgement as well, because success is reported
/// only when the acknowledgement arrives (RDS-05).
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
        // This fails only if the message has an operation too, and the socket layer refuses such a
        // message.
        let _ = add(
            &mut header.extensions,
            Extension::RdmaDest {
                key: cookie.key(),
                offset: cookie.offset(),
            },
        );
    }
}

/// A port that no socket can have. The socket layer keeps it for itself.
pub const NO_PORT: u16 = 1;

/// Returns the header of the frame that replaces a message whose operation could not begin.
///
/// The peer must not take the frame for the proof that the bytes have moved (RDS-05). So the frame
/// has no payload and no extension, and no socket receives it. The frame requests the
/// acknowledgement of its sequence number, because other messages do not always request one.
#[must_use]
pub fn substitute(header: &Header) -> Header {
    Header {
        sequence: header.sequence,
        // Port zero would make the frame the answer to a ping.
        sport: header.sport,
        // Port zero would make the frame a ping, which the peer answers.
        dport: NO_PORT,
        flags: ACK_REQUIRED,
        ..Header::default()
    }
}

/// The encoded header of the fragments of a message. It is encoded again only when the
/// acknowledgement or the credits in it change.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    header: Header,
    bytes: Option<[u8; HEADER_BYTES]>,
}

impl Front {
    /// Returns the front of the fragments that have this header.
    #[must_use]
    pub const fn new(header: &Header) -> Self {
        Self {
            header: *header,
            bytes: None,
        }
    }

    /// Returns the encoded header of the next fragment, with this acknowledgement and these
    /// credits.
    #[inline]
    pub fn next(&mut self, ack: u64, credit: u8) -> &[u8; HEADER_BYTES] {
        if (self.header.ack, self.header.credit) != (ack, credit) {
            self.header.ack = ack;
            self.header.credit = credit;
            self.bytes = None;
        }
        let header = &self.header;
        self.bytes.get_or_insert_with(|| header.encode())
    }
}
