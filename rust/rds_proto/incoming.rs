// SPDX-License-Identifier: GPL-2.0

//! Which message the fragments of a peer belong to.
//!
//! The fragments of a message arrive in order, and no other message comes between them. Each has
//! the whole header; numbers for the connection (acknowledgement, credits) may differ.

use crate::header::{
    Fault,
    Header,
    CONGESTION_MAP,
    FRAGMENT_BYTES,
    MAP_BYTES,
    MESSAGE_BYTES, //
};

/// What a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The fragment carries no data. It only acknowledges messages or grants credits.
    Acknowledgement,
    /// The bytes of a congestion map from `at` on; the map is complete if `last`.
    Map {
        /// Where they belong.
        at: u32,
        /// No more follow.
        last: bool,
    },
    /// The bytes of a message from `at` on; the message begins with them if that is zero, and is
    /// complete if `last`.
    Message {
        /// Where they belong.
        at: u32,
        /// No more follow.
        last: bool,
    },
}

/// The message of a connection that is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assembly {
    /// The header of the message, and the number of its bytes that have arrived.
    begun: Option<(Header, u32)>,
    /// A fragment was lost.
    ended: bool,
}

impl Assembly {
    /// Classifies a fragment with `payload` bytes behind its header.
    ///
    /// # Errors
    ///
    /// A [`Fault`]; the connection ends. The length of a message is checked before its first
    /// fragment is kept, so a peer cannot make more than [`MESSAGE_BYTES`] wait.
    ///
    /// Behind a fault nothing is taken any more: an acknowledgement of what follows would cover
    /// what was lost.
    pub fn take(&mut self, header: &Header, payload: usize) -> Result<Part, Fault> {
        if self.ended {
            return Err(Fault::Ended);
        }
        let part = self.sort(header, payload);
        self.ended = part.is_err();
        part
    }

    /// A fragment was lost for another reason: nothing is taken any more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    fn sort(&mut self, header: &Header, payload: usize) -> Result<Part, Fault> {
        let payload = u32::try_from(payload).map_err(|_| Fault::Fragment)?;
        if (header.sport, header.dport, header.len) == (0, 0, 0) {
            // It may come between the fragments of a message, to which it does not belong.
            return if payload == 0 {
                Ok(Part::Acknowledgement)
            } else {
                Err(Fault::Fragment)
            };
        }
        let is_map = header.flags == CONGESTION_MAP;
        let at = match self.begun {
            None => {
                if is_map && header.len != MAP_BYTES {
                    return Err(Fault::Map);
                }
                if header.len > MESSAGE_BYTES {
                    return Err(Fault::TooLong);
                }
                0
            }
            Some((begun, at)) => {
                if message(&begun) != message(header) {
                    return Err(Fault::Interleaved);
                }
                at
            }
        };
        let rest = header.len.checked_sub(at).ok_or(Fault::Fragment)?;
        if payload != rest.min(FRAGMENT_BYTES) {
            return Err(Fault::Fragment);
        }
        // NO-OVERFLOW: At most the length of the message.
        let end = at.wrapping_add(payload);
        let last = end == header.len;
        self.begun = (!last).then_some((*header, end));
        Ok(if is_map {
            Part::Map { at, last }
        } else {
            Part::Message { at, last }
        })
    }
}

/// What all fragments of a message have in common.
fn message(header: &Header) -> (u64, u32, u16, u16, u8) {
    let Header {
        sequence,
        len,
        sport,
        dport,
        flags,
        ..
    } = *header;
    (sequence, len, sport, dport, flags)
}

/// The bits of one word of a congestion map that went from set to clear: ports that can receive
/// again.
#[must_use]
pub fn opened(before: u64, after: u64) -> u64 {
    before & !after
}
