// SPDX-License-Identifier: GPL-2.0

//! The private data that peers exchange during connection setup (RFC 8797).

/// The values that a peer announces during connection setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateData {
    /// Whether the sender supports remote invalidation of every handle that it exposes (CM-15).
    pub remote_invalidation: bool,
    /// Maximum size of the messages that the sender of this announcement will send, in bytes.
    pub send_size: u32,
    /// Maximum size of the messages that the sender of this announcement can receive, in bytes.
    pub receive_size: u32,
}

/// The inline threshold that every version 1 peer supports (V1-025), in bytes.
pub const MIN_THRESHOLD: u32 = 1024;
/// Length of the private data in bytes.
pub const PRIVATE_DATA_LEN: usize = 8;
/// The largest size that can be announced, in bytes.
pub const MAX_SIZE: u32 = 262_144;

const IDENTIFIER: [u8; 4] = [0xf6, 0xab, 0x0e, 0x18];
const VERSION: u8 = 1;
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;

impl PrivateData {
    /// The announcement that is assumed for a peer that sends no private data (CM-10).
    pub const ABSENT: Self = Self {
        remote_invalidation: false,
        send_size: MIN_THRESHOLD,
        receive_size: MIN_THRESHOLD,
    };

    /// Encodes the private data.
    ///
    /// Sizes are rounded down to a multiple of 1024, so that no announced size exceeds the buffer
    /// (CM-07). Sizes are clamped to the range from 1024 to [`MAX_SIZE`].
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

    /// Searches the received bytes for valid private data, at any alignment (CM-12).
    ///
    /// The search skips an occurrence of the identifier if an unknown version or too few bytes
    /// follow it (CM-14). Returns `None` if the peer announced nothing.
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

/// Returns the code for `size`, rounded down to a size that can be announced.
const fn size_code(size: u32) -> u8 {
    if size >= MAX_SIZE {
        0xff
    } else {
        // CAST: `size` is below 256 * 1024, so the quotient is below 256.
        (size / 1024).saturating_sub(1) as u8
    }
}

/// Returns the size in bytes that a code represents.
const fn size_of_code(code: u8) -> u32 {
    // CAST: The cast widens the number. The result is at most 256 * 1024.
    (code as u32).saturating_add(1).saturating_mul(1024)
}
