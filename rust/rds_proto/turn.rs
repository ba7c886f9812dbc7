// SPDX-License-Identifier: GPL-2.0

//! How a message is sent, depending on what became of its RDMA operation ([`Turn`]).
//!
//! The socket layer starts the operation of a message, then sends the message, and only then starts
//! the operation of the next message. So at most one message waits for its operation, and at most
//! one message is to be replaced. A silent message without payload is never sent, so the next
//! message may overwrite its entry in [`Turn`].

use crate::operation::Completion;

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The message is sent as it is.
    Message,
    /// The frame of [`substitute`](crate::outgoing::substitute) is sent in place of the message.
    Substitute,
    /// Nothing is sent yet.
    Later,
}

/// The message that must wait for its operation, and the message that must be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The sequence number of a message that must not be sent before its operation has completed.
    held: Option<u64>,
    /// The sequence number of a message whose operation could not begin.
    replaced: Option<u64>,
}

impl Turn {
    /// Records that a message must not be sent before its operation has completed (RDS-34). Needed
    /// only if the device cannot ensure this order.
    pub fn hold(&mut self, sequence: u64) {
        self.held = Some(sequence);
    }

    /// Records that the operation of a message could not begin. An earlier attempt to start the
    /// operation may have called [`Self::hold`]. In this case the message no longer waits, because
    /// the operation will not complete.
    pub fn replace(&mut self, sequence: u64) {
        self.replaced = Some(sequence);
        self.held.take_if(|held| *held == sequence);
    }

    /// Records how the operation of a message has ended. If the operation was a Read, its data must
    /// be in the program's memory already. Returns true if the message has waited for the operation
    /// and may be sent now.
    ///
    /// After a failure the message still waits, because the peer would conclude from the message
    /// that the operation has succeeded (RDS-05). The caller must then end the connection.
    #[must_use]
    pub fn completed(&mut self, sequence: u64, completion: Completion) -> bool {
        let done = completion == Completion::Done;
        let held = self.held.take_if(|held| done && *held == sequence);
        held.is_some()
    }

    /// Returns how a message is sent now.
    #[inline]
    #[must_use]
    pub fn way(&self, sequence: u64) -> Way {
        if self.held == Some(sequence) {
            Way::Later
        } else if self.replaced == Some(sequence) {
            Way::Substitute
        } else {
            Way::Message
        }
    }
}
