// SPDX-License-Identifier: GPL-2.0

//! The header of every fragment.

use crate::bytes::{
    Fields,
    Writer, //
};

/// Length of a header, in bytes.
pub const HEADER_BYTES: usize = 48;
/// Maximum number of bytes of a message that one Send carries.
pub const FRAGMENT_BYTES: u32 = 4096;
/// Maximum length of a message, in bytes.
pub const MESSAGE_BYTES: u32 = 1 << 20;
/// Number of bytes in a congestion map, which has one bit for each port.
pub const MAP_BYTES: u32 = 8192;
/// Number of bytes for extensions.
pub const EXTENSION_BYTES: usize = 16;
/// Offset of the checksum in the header, in bytes.
const CHECKSUM_AT: usize = 30;

/// Flag: the fragment belongs to a congestion map.
pub const CONGESTION_MAP: u8 = 0x01;
/// Flag: the receiver must acknowledge the message at once.
pub const ACK_REQUIRED: u8 = 0x02;
/// Flag: the message was sent before, perhaps on another connection.
pub const RETRANSMITTED: u8 = 0x04;
/// Flag: the header contains an extension of type [`RDMA_BYTES`](crate::extension).
pub const HAS_RDMA_BYTES: u8 = 0x20;

/// A protocol error of the peer, after which the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The fragment is shorter than a header.
    Short,
    /// The checksum of the header is wrong.
    Checksum,
    /// The message is longer than [`MESSAGE_BYTES`].
    TooLong,
    /// The length of the fragment does not fit its position in the message.
    Fragment,
    /// A message is incomplete, and the fragment does not belong to that message.
    Interleaved,
    /// The length of a congestion map is not [`MAP_BYTES`].
    Map,
    /// The peer grants more credits than the limit.
    Number,
    /// An earlier fragment on this connection was lost.
    Ended,
}

/// The header of a fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sequence number of the message. Meaningless in acknowledgements and in congestion maps.
    pub sequence: u64,
    /// The sequence number up to which the sender of this header has received all messages.
    pub ack: u64,
    /// Length of the whole message in bytes.
    pub len: u32,
    /// The port of the sender.
    pub sport: u16,
    /// The port of the receiver.
    pub dport: u16,
    /// Flag bits, see the constants of this module.
    pub flags: u8,
    /// Number of Receives that the sender of this header has posted but not advertised in earlier
    /// headers.
    pub credit: u8,
    /// The extensions, see [`crate::extension`].
    pub extensions: [u8; EXTENSION_BYTES],
}

impl Header {
    /// Decodes the header at the front of a fragment. Also returns the bytes after the header.
    ///
    /// # Errors
    ///
    /// Returns [`Fault::Short`] or [`Fault::Checksum`]. A header with a checksum of zero was sent
    /// without a checksum, and is accepted.
    #[inline]
    pub fn decode(fragment: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let (head, payload) = fragment
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(Fault::Short)?;
        let (header, checksum) = Self::fields(head).ok_or(Fault::Short)?;
        if checksum != 0 && sum(head) != u16::MAX {
            return Err(Fault::Checksum);
        }
        Ok((header, payload))
    }

    /// Decodes a header that this host made, and that has no checksum yet.
    #[inline]
    #[must_use]
    pub fn of_own(head: &[u8; HEADER_BYTES]) -> Self {
        Self::fields(head).map_or(Self::default(), |(header, _)| header)
    }

    #[inline]
    fn fields(head: &[u8; HEADER_BYTES]) -> Option<(Self, u16)> {
        let mut fields = Fields(head);
        let mut header = Self {
            sequence: fields.u64()?,
            ack: fields.u64()?,
            len: fields.u32()?,
            sport: fields.u16()?,
            dport: fields.u16()?,
            flags: fields.u8()?,
            credit: fields.u8()?,
            ..Self::default()
        };
        let _padding = fields.u32()?;
        let checksum = fields.u16()?;
        header.extensions = fields.take()?;
        Some((header, checksum))
    }

    /// Encodes the header, with its checksum.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut head = [0; HEADER_BYTES];
        self.write(&mut head);
        let checksum = !sum(&head);
        if let Some(place) = head.get_mut(CHECKSUM_AT..) {
            Writer(place).put(&checksum.to_ne_bytes());
        }
        head
    }

    /// Writes the header without its checksum.
    #[inline]
    fn write(&self, head: &mut [u8]) {
        let mut writer = Writer(head);
        writer.put(&self.sequence.to_be_bytes());
        writer.put(&self.ack.to_be_bytes());
        writer.put(&self.len.to_be_bytes());
        writer.put(&self.sport.to_be_bytes());
        writer.put(&self.dport.to_be_bytes());
        writer.put(&[self.flags, self.credit, 0, 0, 0, 0, 0, 0]);
        writer.put(&self.extensions);
    }

    /// Returns whether the header has this flag.
    #[inline]
    #[must_use]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Returns the one's complement sum of the 16-bit words, as in IPv4. The result is all ones if the
/// words include a correct checksum. The words are read in the byte order of this host. A checksum
/// must be written in the same byte order (RFC 1071, section 2).
#[inline]
fn sum(head: &[u8; HEADER_BYTES]) -> u16 {
    let words = head.chunks_exact(8).map(|word| {
        let word = word.first_chunk().copied().unwrap_or_default();
        u64::from_ne_bytes(word)
    });
    // The checksum is defined as a sum of words of 16 bits. A sum of words of 64 bits gives the
    // same result, because every carry out of the sum is added again.
    let (total, carries) = words.fold((0u64, 0u64), |(total, carries), word| {
        let (total, carry) = total.overflowing_add(word);
        // NO-OVERFLOW: A header has six words of 64 bits, so there are at most five carries.
        (total, carries.wrapping_add(carry.into()))
    });
    // NO-OVERFLOW: Two numbers of 32 bits and a small number are added as numbers of 64 bits.
    let once = (total & 0xffff_ffff)
        .wrapping_add(total >> 32)
        .wrapping_add(carries);
    let twice = (once & 0xffff)
        .wrapping_add((once >> 16) & 0xffff)
        .wrapping_add(once >> 32);
    let folded = (twice & 0xffff).wrapping_add(twice >> 16);
    let folded = (folded & 0xffff).wrapping_add(folded >> 16);
    // CAST: The sum was folded into 16 bits.
    folded as u16
}
