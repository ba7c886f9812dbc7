// SPDX-License-Identifier: GPL-2.0

//! Flow control by credits. Each credit corresponds to a Receive that the peer has posted.
//!
//! Credits are used if both ends offer credits in the private data of the connection. Without
//! credits, the sender's device sends a message again if the receiver has no Receive for it.
//!
//! The in-tree transport offers no credits in its private data. But if its flow control is on, it
//! counts the credits that this end has offered, and grants credits in headers. In this case this
//! end also grants credits, but does not wait for credits of the in-tree transport.

use crate::header::Fault;

/// Maximum number of credits that one header can advertise.
const MOST: u16 = u8::MAX as u16;
/// After this number of newly posted Receives, this end sends a frame that only advertises credits.
const ENOUGH: u16 = 16;

/// The credits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    /// Whether this end offers credits.
    wanted: bool,
    /// Whether this end grants credits.
    grants: bool,
    /// Whether this end waits for credits.
    used: bool,
    /// Number of Receives that the peer has posted and this end has not used.
    theirs: u32,
    /// Number of Receives that this end has posted but not advertised to the peer.
    ours: u16,
    /// Maximum value of `theirs`.
    bound: u32,
}

impl Credits {
    /// Returns the credits of a connection:
    ///
    /// * `wanted`: whether this end uses credits
    /// * `granted`: the number in the peer's private data; zero means that the peer uses no credits
    /// * `posted`: the number of Receives that this end has posted
    /// * `told`: the number of these Receives that were advertised to the peer
    #[must_use]
    pub fn new(wanted: bool, granted: u32, posted: u16, told: u16) -> Self {
        let granted = granted.min(1 << 16);
        let used = wanted && granted != 0;
        Self {
            wanted,
            grants: used,
            used,
            theirs: granted,
            ours: posted.saturating_sub(told),
            bound: 1 << 16,
        }
    }

    /// Adds the credits that the peer grants when it accepts the connection. Zero means that the
    /// peer does not use credits. The peer may already have advertised credits in a header.
    ///
    /// Returns whether the caller must now send a frame that advertises credits. If this end has
    /// granted no credits before this call, the peer may have used all its credits. The peer then
    /// waits and sends no frame. So this end must not wait for a frame of the peer before it
    /// advertises credits.
    #[must_use]
    pub fn agreed(&mut self, granted: u32) -> bool {
        self.theirs = self.theirs.saturating_add(granted).min(self.bound);
        self.used = self.wanted && granted != 0;
        self.grants |= self.used;
        self.is_worth_a_frame()
    }

    /// Adds the credits that the peer has advertised in a header. Each credit stands for a Receive
    /// that the peer has posted. A peer that advertises credits also waits for credits, so this end
    /// grants credits to it. Does nothing if this end uses no credits.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Number`] if the peer has granted more credits than the limit.
    #[inline]
    pub fn granted(&mut self, credits: u8) -> Result<(), Fault> {
        if !self.wanted {
            return Ok(());
        }
        let theirs = self.theirs.saturating_add(credits.into());
        if self.used && theirs > self.bound {
            return Err(Fault::Number);
        }
        self.theirs = theirs.min(self.bound);
        self.grants |= credits != 0;
        Ok(())
    }

    /// Records that this end has posted Receives. Does nothing if this end uses no credits.
    #[inline]
    pub fn posted(&mut self, receives: u16) {
        if self.wanted {
            self.ours = self.ours.saturating_add(receives);
        }
    }

    /// Takes a credit for a frame. Returns the number of credits that the frame's header
    /// advertises, or `None` if the frame must wait.
    ///
    /// Only a frame that advertises credits may use the last credit. Otherwise each end could use
    /// its last credit for a frame without new credits, and the two ends would then wait for each
    /// other.
    #[inline]
    pub fn spend(&mut self) -> Option<u8> {
        if !self.grants {
            return Some(0);
        }
        let told = self.ours.min(MOST);
        if self.used {
            match self.theirs {
                0 => return None,
                1 if told == 0 => return None,
                _ => {}
            }
            self.theirs = self.theirs.saturating_sub(1);
        }
        self.ours = self.ours.saturating_sub(told);
        // CAST: `told` is at most 255.
        Some(told as u8)
    }

    /// Returns whether enough new Receives were posted to justify a frame that only advertises
    /// credits.
    #[inline]
    #[must_use]
    pub fn is_worth_a_frame(&self) -> bool {
        self.grants && self.ours >= ENOUGH
    }
}
