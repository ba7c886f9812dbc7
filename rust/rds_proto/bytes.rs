// SPDX-License-Identifier: GPL-2.0

//! Fields of fixed length that follow each other without gaps.

/// Reads fields from the front of a byte slice.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    /// Returns the next `N` bytes, or `None` if fewer are left.
    #[inline]
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Writes fields to a buffer without gaps. A field that does not fit is omitted.
pub(crate) struct Writer<'a>(pub(crate) &'a mut [u8]);

impl Writer<'_> {
    #[inline]
    pub(crate) fn put(&mut self, field: &[u8]) {
        let room = core::mem::take(&mut self.0);
        if let Some((part, rest)) = room.split_at_mut_checked(field.len()) {
            part.copy_from_slice(field);
            self.0 = rest;
        }
    }
}
