// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers that this end has received ([`Owed`]), and sequence numbers that the peer has
//! acknowledged ([`Acknowledged`]).

/// The acknowledgements that this end still has to send on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    received: u64,
    wanted: bool,
    sending: bool,
}

impl Owed {
    /// Records that a complete message was received.
    pub fn received(&mut self, sequence: u64, ack_required: bool) {
        self.received = self.received.max(sequence);
        self.wanted |= ack_required;
    }

    /// Returns the sequence number to acknowledge in the header of a frame that is sent for another
    /// reason.
    pub fn piggyback(&mut self) -> u64 {
        self.wanted = false;
        self.received
    }

    /// Returns true if the peer needs an acknowledgement, and no frame that only acknowledges is
    /// already being sent.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        self.wanted && !self.sending
    }

    /// Returns the sequence number for a frame that only acknowledges. Returns `None` if the peer
    /// needs no acknowledgement, or if such a frame is already being sent.
    pub fn frame(&mut self) -> Option<u64> {
        if !self.is_due() {
            return None;
        }
        self.sending = true;
        Some(self.piggyback())
    }

    /// Records that a frame that only acknowledges was sent or has failed, so that another may
    /// follow. `again` says that the frame was not sent and the peer still needs the
    /// acknowledgement.
    pub fn frame_over(&mut self, again: bool) {
        self.sending = false;
        self.wanted |= again;
    }
}

/// The sequence numbers that the peer has acknowledged.
///
/// When a message is acknowledged, the memory of the message and of its operation is freed. A Read
/// of the operation may still be in flight when the acknowledgement arrives (RDS-59). So
/// [`Self::advance`] returns only numbers below those of all operations that have not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    heard: u64,
    applied: u64,
    left_out: Option<LeftOut>,
}

/// A message that is never sent on this connection, because its operation could not begin (RDS-05).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeftOut {
    /// The highest sequence number that was sent before the message.
    after: u64,
    sequence: u64,
}

impl Acknowledged {
    /// Records that the peer has acknowledged all messages up to `ack`.
    ///
    /// `sent` is the highest sequence number that was sent on this connection. If the
    /// peer acknowledges a higher number, `sent` counts in its place.
    pub fn heard(&mut self, ack: u64, sent: u64) {
        self.heard = self.heard.max(ack.min(sent));
        self.pass();
    }

    /// Records that the message with this sequence number is not sent. It counts as acknowledged as
    /// soon as all messages before it are acknowledged.
    ///
    /// `sent` is the highest sequence number that was sent on this connection.
    pub fn leave_out(&mut self, sequence: u64, sent: u64) {
        // An earlier such message is forgotten. If a message was sent between the two, the
        // acknowledgement of that message includes it.
        self.left_out = Some(LeftOut {
            after: sent,
            sequence,
        });
        self.pass();
    }

    /// Returns whether the message with this sequence number is not sent.
    #[must_use]
    pub fn leaves_out(&self, sequence: u64) -> bool {
        self.left_out
            .is_some_and(|message| message.sequence == sequence)
    }

    /// Counts the message that is not sent as acknowledged, if all messages before it are.
    fn pass(&mut self) {
        if let Some(message) = self.left_out {
            if self.heard >= message.after {
                self.heard = self.heard.max(message.sequence);
            }
        }
    }

    /// Returns the sequence number up to which messages are complete, including their operations.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// Returns the sequence number up to which messages are complete, if it has increased since the
    /// last call. `under_way` is the lowest sequence number of a message whose operation has not
    /// completed.
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
