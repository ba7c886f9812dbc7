// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers that were received, and that the peer has received.

/// What a connection owes the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    received: u64,
    wanted: bool,
    sending: bool,
}

impl Owed {
    /// Takes note of a complete message.
    pub fn received(&mut self, sequence: u64, ack_required: bool) {
        self.received = self.received.max(sequence);
        self.wanted |= ack_required;
    }

    /// Returns the number for a header that goes out anyway.
    pub fn piggyback(&mut self) -> u64 {
        self.wanted = false;
        self.received
    }

    /// Returns the number for a frame that only acknowledges, if one is wanted and none is under
    /// way.
    pub fn frame(&mut self) -> Option<u64> {
        if !self.wanted || self.sending {
            return None;
        }
        self.sending = true;
        Some(self.piggyback())
    }

    /// The frame was sent, or was not: another one may follow. `again`: it was not, and is wanted
    /// still.
    pub fn frame_over(&mut self, again: bool) {
        self.sending = false;
        self.wanted |= again;
    }
}

/// What the peer has acknowledged.
///
/// An acknowledgement frees the memory of a message and of its operation. A Read of the operation
/// may still be under way when the acknowledgement of its message arrives (RDS-59), so no number is
/// passed on that is not below every operation that has not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    heard: u64,
    applied: u64,
}

impl Acknowledged {
    /// The peer has acknowledged everything up to `ack`.
    ///
    /// `sent` is the highest sequence number that was sent on this connection; a peer that says
    /// more is held to that.
    pub fn heard(&mut self, ack: u64, sent: u64) {
        self.heard = self.heard.max(ack.min(sent));
    }

    /// Returns the number up to which messages are over.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the number up to which messages are over, if that is news. `under_way` is the lowest
    /// sequence number of a message whose operation has not completed.
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
