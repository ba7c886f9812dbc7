// SPDX-License-Identifier: GPL-2.0

//! The private data of connection set-up (RFC 8797).

/// What a peer announces when a connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// The sender supports remote invalidation of every handle that it exposes (CM-15).
    pub remote_invalidation: bool,
    /// Largest message that the sender will send, in bytes.
    pub send_size: u32,
    /// Largest message that the sender can receive, in bytes.
    pub receive_size: u32,
}

/// The threshold that every version 1 peer supports (V1-025), in bytes.
pub const MIN_THRESHOLD: u32 = 1024;
/// Bytes of the message.
pub const PRIVATE_DATA_LEN: usize = 8;
/// The largest size that can be announced, in bytes.
pub const MAX_SIZE: u32 = 262_144;

const IDENTIFIER: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
const VERSION: u8 = 1;
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;

impl PrivateData {
    /// What a peer without private data is taken to have announced (CM-10).
    pub const ABSENT: Self = Self {
        remote_invalidation: false,
        send_size: MIN_THRESHOLD,
        receive_size: MIN_THRESHOLD,
    };

    /// The bytes to announce.
    ///
    /// Sizes are rounded down to a multiple of 1024, so that we never announce more than the buffer
    /// holds (CM-07), and clamped to 1024 to [`MAX_SIZE`].
    pub const fn encode(&self) -> [u8; PRIVATE_DATA_LEN] {
        let [a, b, c, d] = IDENTIFIER;
        let flags = if self.remote_invalidation {
            FLAG_REMOTE_INVALIDATION
        } else {
            0
        };
        [
            a,
            b,
            c,
            d,
            VERSION,
            flags,
            size_code(self.send_size),
            size_code(self.receive_size),
        ]
    }

    /// Searches everything that the peer sent for valid private data, at any alignment (CM-12).
    ///
    /// An identifier with an unknown version or without room for the rest is passed over
    /// (CM-14). `None` means that the peer announced nothing.
    pub fn find(received: &[u8]) -> Option<Self> {
        received.windows(PRIVATE_DATA_LEN).find_map(Self::parse)
    }

    fn parse(window: &[u8]) -> Option<Self> {
        let (identifier, rest) = window.split_first_chunk::<4>()?;
        let &[version, flags, send, receive] = rest.first_chunk::<4>()?;
        if *identifier != IDENTIFIER || version != VERSION {
            return None;
        }
        Some(Self {
            remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
            send_size: size_of_code(send),
            receive_size: size_of_code(receive),
        })
    }
}

/// Code of the largest announceable size that is not above `size`.
const fn size_code(size: u32) -> u8 {
    if size >= MAX_SIZE {
        0xff
    } else {
        // CAST: less than 256 * 1024.
        (size / 1024).saturating_sub(1) as u8
    }
}

/// Size that a code stands for.
const fn size_of_code(code: u8) -> u32 {
    // CAST: widening. At most 256 * 1024.
    (code as u32).saturating_add(1).saturating_mul(1024)
}
