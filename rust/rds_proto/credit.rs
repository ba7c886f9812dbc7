// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits: each is a Receive that the other end has posted.
//!
//! Both ends offer it in the private data of the connection; without it a sender relies on the
//! retries of its device.

use crate::header::Fault;

/// The most that one header can advertise.
const MOST: u16 = u8::MAX as u16;
/// The number of newly posted Receives from which on a frame of its own tells the peer.
const ENOUGH: u16 = 16;

/// The credits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    used: bool,
    /// Receives of the peer.
    theirs: u32,
    /// Receives of ours that the peer does not know.
    ours: u16,
    /// How many Receives the peer can have at most.
    bound: u32,
}

impl Credits {
    /// The credits of a connection. `granted` is the number in the private data of the peer; zero
    /// means that the peer uses no credits. `wanted` says whether this end uses them. `posted` is
    /// the number of Receives that this end has posted, and `told` the number of them that the peer
    /// was told of.
    #[must_use]
    pub fn new(wanted: bool, granted: u32, posted: u16, told: u16) -> Self {
        let granted = granted.min(1 << 16);
        Self {
            used: wanted && granted != 0,
            theirs: granted,
            ours: posted.saturating_sub(told),
            bound: 1 << 16,
        }
    }

    /// The peer has answered, and grants this number; zero means that it uses none.
    pub fn agreed(&mut self, wanted: bool, granted: u32) {
        self.theirs = self.theirs.saturating_add(granted).min(self.bound);
        self.used = wanted && granted != 0;
    }

    /// Whether they are used.
    #[must_use]
    pub fn are_used(&self) -> bool {
        self.used
    }

    /// The peer has posted Receives.
    ///
    /// # Errors
    ///
    /// [`Fault::Number`]: more than there can be.
    pub fn granted(&mut self, credits: u8) -> Result<(), Fault> {
        let theirs = self.theirs.saturating_add(credits.into());
        if self.used && theirs > self.bound {
            return Err(Fault::Number);
        }
        self.theirs = theirs.min(self.bound);
        Ok(())
    }

    /// Receives of ours were posted.
    pub fn posted(&mut self, receives: u16) {
        self.ours = self.ours.saturating_add(receives);
    }

    /// Takes a credit for a frame, and returns what its header advertises. `None`: the frame waits.
    ///
    /// The last credit goes to a frame that advertises, or both ends could wait for each other.
    pub fn spend(&mut self) -> Option<u8> {
        if !self.used {
            return Some(0);
        }
        let told = self.ours.min(MOST);
        match self.theirs {
            0 => return None,
            1 if told == 0 => return None,
            _ => {}
        }
        self.theirs = self.theirs.saturating_sub(1);
        self.ours = self.ours.saturating_sub(told);
        // CAST: At most 255.
        Some(told as u8)
    }

    /// Whether Receives of ours are worth a frame of their own.
    #[must_use]
    pub fn is_worth_a_frame(&self) -> bool {
        self.used && self.ours >= ENOUGH
    }
}
