// SPDX-License-Identifier: GPL-2.0

//! Reading and writing of XDR words over byte slices (RFC 4506).
//!
//! [`Reader`] and [`Writer`] hold the remaining slice and make it shorter with each item. So no
//! position can be past the end of the slice, and the code needs no arithmetic on positions. Items
//! of fixed size that follow each other are treated as one array, so that the length is checked
//! only once. A second cursor reads or writes the items of the array.

/// The error if the input ends too early, or contains a word that XDR does not allow at this
/// position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The error if the output buffer is too short for the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Takes XDR items from the front of a byte slice.
///
/// Every method that takes an item fails with [`Malformed`] if the slice ends too early.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Creates a reader that starts at the first byte of `bytes`.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the bytes that have not been taken yet.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Takes `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, tail) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = tail;
        Ok(*head)
    }

    /// Takes an unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Takes an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Takes the word that says whether an optional item is present: 0 or 1 (RFC 4506, section
    /// 4.19). Fails for any other number.
    #[inline]
    pub fn present(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Takes the next two words and returns true if both are 0, which means that two optional items
    /// are absent. Otherwise takes nothing and returns false.
    #[inline]
    pub fn both_absent(&mut self) -> bool {
        match self.rest.split_first_chunk() {
            Some((words, tail)) if u64::from_ne_bytes(*words) == 0 => {
                self.rest = tail;
                true
            }
            _ => false,
        }
    }

    /// Takes `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = tail;
        Ok(head)
    }
}

/// Puts XDR items at the front of a byte slice.
///
/// Putting an item fails with [`Full`] if the slice is too short. After a failure, every later
/// item fails as well.
#[derive(Debug)]
pub struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Creates a writer that starts at the first byte of `buf`.
    #[inline]
    pub fn new(buf: &'a mut [u8]) -> Self {
        Self { rest: buf }
    }

    /// Puts `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self, value: [u8; N]) -> Result<(), Full> {
        let rest = core::mem::take(&mut self.rest);
        match rest.split_first_chunk_mut::<N>() {
            Some((head, tail)) => {
                *head = value;
                self.rest = tail;
                Ok(())
            }
            // The slice was moved out above, so after one failure all later items fail too.
            None => Err(Full),
        }
    }

    /// Puts `N` unsigned integers.
    #[inline(always)]
    pub fn words<const N: usize>(&mut self, words: [u32; N]) -> Result<(), Full> {
        let rest = core::mem::take(&mut self.rest);
        let (head, tail) = rest.split_at_mut_checked(N.wrapping_mul(4)).ok_or(Full)?;
        let mut places = Writer::new(head);
        for word in words {
            places.u32(word)?;
        }
        self.rest = tail;
        Ok(())
    }

    /// Puts an unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) -> Result<(), Full> {
        self.array(value.to_be_bytes())
    }

    /// Puts an unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) -> Result<(), Full> {
        self.array(value.to_be_bytes())
    }
}

/// Rounds a length up to the XDR unit of four bytes. Returns `None` if the result overflows.
#[inline]
pub const fn round_up(len: u32) -> Option<u32> {
    match len.checked_add(3) {
        Some(sum) => Some(sum & !3),
        None => None,
    }
}

/// Returns the number of pad bytes after a variable-length item of `len` bytes.
#[inline]
pub const fn pad(len: u32) -> u32 {
    len.wrapping_neg() & 3
}
