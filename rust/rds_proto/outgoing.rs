// SPDX-License-Identifier: GPL-2.0

//! The extensions and flags in the header of a message that is sent.

use crate::{
    extension::{
        add,
        only,
        Extension, //
    },
    header::{
        Header,
        ACK_REQUIRED,
        EXTENSION_BYTES,
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
    /// Whether the operation writes to the receiver's memory. If false, the operation reads from
    /// that memory.
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
/// the message is retransmitted. The second call adds no extension that the header already has.
///
/// A message with a handle requests an acknowledgement. So the socket layer drops its reference to
/// the region after one round trip, and FREE_MR can then drop the last reference (RDS-47). A
/// message also requests an acknowledgement if the program wants a report about its operation,
/// because success is reported only when the acknowledgement arrives (RDS-05).
#[inline]
pub fn complete(header: &mut Header, facts: &Facts) {
    let reported = facts.operation.is_some_and(|operation| operation.notify);
    if facts.ack_required || facts.cookie.is_some() || reported {
        header.flags |= ACK_REQUIRED;
    }
    if facts.retransmitted {
        header.flags |= RETRANSMITTED;
    }
    if let Some(operation) = facts.operation {
        let named = Extension::Rdma { key: operation.key };
        let moved = Extension::RdmaBytes {
            bytes: operation.bytes,
            written: operation.written,
        };
        if extend(header, named, Some(moved)) {
            header.flags |= HAS_RDMA_BYTES;
        }
    }
    if let Some(cookie) = facts.cookie {
        // The header has space for the handle unless it contains the extensions of an RDMA
        // operation. It never contains both: the socket layer refuses a message that has a handle
        // and an operation.
        let handle = Extension::RdmaDest {
            key: cookie.key(),
            offset: cookie.offset(),
        };
        let _ = extend(header, handle, None);
    }
}

/// Appends one or two extensions to a header, which usually has no extension yet. Returns false if
/// an extension does not fit.
#[inline(always)]
fn extend(header: &mut Header, first: Extension, second: Option<Extension>) -> bool {
    // The extensions are copied, so that the compiler can keep the other fields in registers.
    let mut all = header.extensions;
    let fits = if all == [0; EXTENSION_BYTES] {
        let written = only(first, second);
        all = written.unwrap_or(all);
        written.is_some()
    } else {
        add(&mut all, first) && second.is_none_or(|second| add(&mut all, second))
    };
    header.extensions = all;
    fits
}

/// A port that no socket can have, because the socket layer reserves it for itself.
pub const NO_PORT: u16 = 1;

/// Returns the header of the frame that replaces a message whose operation could not begin.
///
/// The peer must not conclude from the frame that the bytes of the operation were moved (RDS-05).
/// So the frame has no payload and no extension, and no socket receives it. The frame requests the
/// acknowledgement of its sequence number, because it is possible that no later message requests
/// one.
#[inline]
#[must_use]
pub fn substitute(header: &Header) -> Header {
    Header {
        sequence: header.sequence,
        // If the source port were zero, the peer would take the frame for the answer to a ping.
        sport: header.sport,
        // If the destination port were zero, the peer would take the frame for a ping, and answer
        // it.
        dport: NO_PORT,
        flags: ACK_REQUIRED,
        ..Header::default()
    }
}

/// The encoded header of the fragments of a message. The header is encoded again only if its
/// acknowledgement or its credits change.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    header: Header,
    bytes: Option<[u8; HEADER_BYTES]>,
}

impl Front {
    /// Creates the object for the fragments of the message with this header.
    #[inline]
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
