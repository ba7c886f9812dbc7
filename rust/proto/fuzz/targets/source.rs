// SPDX-License-Identifier: GPL-2.0

//! Numbers and other choices that are derived from the fuzzer's bytes.

use xprtrdma_proto::{
    Handle,
    Segment, //
};

/// Takes numbers from the front of some bytes. When the bytes are used up, all numbers are zero.
pub struct Source<'a> {
    rest: &'a [u8],
}

impl<'a> Source<'a> {
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Returns the bytes that have not been taken.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn u8(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&first, rest)) => {
                self.rest = rest;
                first
            }
            None => 0,
        }
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    pub fn u32(&mut self) -> u32 {
        (u32::from(self.u16()) << 16) | u32::from(self.u16())
    }

    pub fn u64(&mut self) -> u64 {
        (u64::from(self.u32()) << 32) | u64::from(self.u32())
    }

    pub fn bool(&mut self) -> bool {
        self.u8() & 1 != 0
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: u8) -> u8 {
        self.u8() % end
    }

    /// Returns a number of at most 8 or 16 bits, a number close to 1024, 4096 or [`u32::MAX`], or
    /// an arbitrary number.
    pub fn length(&mut self) -> u32 {
        match self.below(6) {
            0 => u32::from(self.u8()),
            1 => u32::from(self.u16()),
            2 => 1024 + u32::from(self.u8()) - 128,
            3 => 4096 + u32::from(self.u8()) - 128,
            4 => u32::MAX - u32::from(self.u8()),
            _ => self.u32(),
        }
    }

    /// Returns at most `most` segments.
    pub fn segments(&mut self, most: u8) -> Vec<Segment> {
        let count = self.below(most + 1);
        (0..count)
            .map(|_| Segment {
                handle: Handle(self.u32()),
                length: self.length(),
                offset: self.u64(),
            })
            .collect()
    }
}
