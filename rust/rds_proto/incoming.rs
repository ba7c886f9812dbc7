// SPDX-License-Identifier: GPL-2.0

//! Assembly of a peer's fragments into messages.
//!
//! The fragments of a message arrive in order, and no other message comes between them. Each
//! fragment begins with the complete header of the message. The acknowledgement and the credits may
//! differ between the headers of the fragments.

use crate::header::{
    Fault,
    Header,
    CONGESTION_MAP,
    FRAGMENT_BYTES,
    MAP_BYTES,
    MESSAGE_BYTES, //
};

/// The type of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The fragment carries no data. It only acknowledges messages or grants credits.
    Acknowledgement,
    /// The fragment contains bytes of a congestion map.
    Map {
        /// Position of the fragment's first byte in the congestion map.
        at: u32,
        /// Whether the map is complete with these bytes.
        last: bool,
    },
    /// The fragment contains bytes of a message. The message starts with this fragment if `at` is
    /// zero.
    Message {
        /// Offset of the bytes in the message.
        at: u32,
        /// Whether the message is complete with these bytes.
        last: bool,
    },
}

/// The fields that all fragments of a message have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Common {
    sequence: u64,
    len: u32,
    sport: u16,
    dport: u16,
    flags: u8,
}

impl Common {
    #[inline]
    const fn of(header: &Header) -> Self {
        Self {
            sequence: header.sequence,
            len: header.len,
            sport: header.sport,
            dport: header.dport,
            flags: header.flags,
        }
    }
}

/// The incomplete message of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assembly {
    /// The message, and the number of its bytes that have arrived.
    begun: Option<(Common, u32)>,
    /// Whether a fragment was lost.
    ended: bool,
}

impl Assembly {
    /// Classifies a fragment with `payload` bytes after its header.
    ///
    /// Checks the length of a message before its first fragment is kept. So a peer cannot make this
    /// host keep more than [`MESSAGE_BYTES`].
    ///
    /// # Errors
    ///
    /// Returns a [`Fault`], after which the caller must close the connection. After a fault no
    /// fragment is accepted any more, because the acknowledgement of a later message would also
    /// acknowledge the lost message.
    #[inline]
    pub fn take(&mut self, header: &Header, payload: usize) -> Result<Part, Fault> {
        if self.ended {
            return Err(Fault::Ended);
        }
        let part = self.sort(header, payload);
        self.ended = part.is_err();
        part
    }

    /// Records that a fragment was lost for a reason that [`Self::take`] cannot see. No fragment is
    /// accepted any more.
    pub fn end(&mut self) {
        self.ended = true;
    }

    #[inline]
    fn sort(&mut self, header: &Header, payload: usize) -> Result<Part, Fault> {
        let payload = u32::try_from(payload).map_err(|_| Fault::Fragment)?;
        if (header.sport, header.dport, header.len) == (0, 0, 0) {
            // An acknowledgement may arrive between the fragments of a message, but is not a part
            // of the message.
            return if payload == 0 {
                Ok(Part::Acknowledgement)
            } else {
                Err(Fault::Fragment)
            };
        }
        let is_map = header.flags == CONGESTION_MAP;
        let at = match &self.begun {
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
                if *begun != Common::of(header) {
                    return Err(Fault::Interleaved);
                }
                *at
            }
        };
        let rest = header.len.checked_sub(at).ok_or(Fault::Fragment)?;
        if payload != rest.min(FRAGMENT_BYTES) {
            return Err(Fault::Fragment);
        }
        // NO-OVERFLOW: The sum is at most the length of the message.
        let end = at.wrapping_add(payload);
        let last = end == header.len;
        match &mut self.begun {
            begun if last => *begun = None,
            Some((_, arrived)) => *arrived = end,
            begun => *begun = Some((Common::of(header), end)),
        }
        Ok(if is_map {
            Part::Map { at, last }
        } else {
            Part::Message { at, last }
        })
    }
}

/// Returns the bits of a congestion map's word that are set in `before` and clear in `after`. These
/// bits stand for the ports that can receive again.
#[must_use]
pub fn opened(before: u64, after: u64) -> u64 {
    before & !after
}
