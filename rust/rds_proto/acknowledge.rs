// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers that this end has received ([`Owed`]), and sequence numbers that the peer has
//! acknowledged ([`Acknowledged`]).

/// The acknowledgements that this end must still send on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    received: u64,
    wanted: bool,
}

impl Owed {
    /// Records that a complete message was received.
    #[inline]
    pub fn received(&mut self, sequence: u64, ack_required: bool) {
        self.received = self.received.max(sequence);
        self.wanted |= ack_required;
    }

    /// Returns the sequence number to acknowledge in a frame. The caller must send this frame,
    /// because this object afterwards assumes that the peer needs no other acknowledgement.
    #[inline]
    pub fn piggyback(&mut self) -> u64 {
        self.wanted = false;
        self.received
    }

    /// Returns true if the peer needs an acknowledgement. If no message is about to carry the
    /// acknowledgement, the caller should send a frame that contains nothing else.
    #[inline]
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.wanted
    }
}

/// The sequence numbers that the peer has acknowledged.
///
/// When a message is acknowledged, the memory of the message and of its operation is freed. A Read
/// of the operation may still be in flight when the acknowledgement arrives (RDS-59). So
/// [`Self::advance`] returns only numbers below the sequence numbers of all operations that have
/// not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    heard: u64,
    /// The sequence number that [`Self::advance`] has returned last.
    applied: u64,
}

impl Acknowledged {
    /// Records that the peer has acknowledged all messages up to `ack`.
    ///
    /// `sent` is the highest sequence number that was sent on this connection. If `ack` is higher
    /// than `sent`, only the messages up to `sent` count as acknowledged.
    #[inline]
    pub fn heard(&mut self, ack: u64, sent: u64) {
        self.heard = self.heard.max(ack.min(sent));
    }

    /// Returns the sequence number up to which all messages were acknowledged and all their
    /// operations have completed. Returns `None` if the number has not increased since the last
    /// call. `under_way` is the lowest sequence number of a message whose operation has not
    /// completed.
    #[inline]
    pub fn advance(&mut self, under_way: Option<u64>) -> Option<u64> {
        let limit = under_way.map_or(u64::MAX, |first| first.saturating_sub(1));
        let now = self.heard.min(limit);
        if now <= self.applied {
            return None;
        }
        self.applied = now;
        Some(now)
    }
}
