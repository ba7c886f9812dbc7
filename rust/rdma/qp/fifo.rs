// SPDX-License-Identifier: GPL-2.0

//! A queue of fixed capacity.

use kernel::prelude::*;

/// A queue of fixed capacity.
pub(super) struct Fifo<T: Copy> {
    slots: KVec<T>,
    first: usize,
    len: usize,
}

impl<T: Copy> Fifo<T> {
    pub(super) fn new(capacity: usize, fill: T) -> Result<Self> {
        Ok(Self {
            slots: KVec::from_elem(fill, capacity, GFP_KERNEL)?,
            first: 0,
            len: 0,
        })
    }

    /// Returns the number of values in the queue.
    #[cfg(xprtrdma_server)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn push(&mut self, value: T) -> Result {
        let cap = self.slots.len();
        if self.len == cap {
            return Err(ENOSPC);
        }
        // NO-OVERFLOW: Both numbers are at most `cap`, which is a number of elements in memory.
        let at = self.first.wrapping_add(self.len);
        let at = if at < cap { at } else { at.wrapping_sub(cap) };
        *self.slots.get_mut(at).ok_or(ENOSPC)? = value;
        self.len = self.len.wrapping_add(1);
        Ok(())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = *self.slots.get(self.first)?;
        // NO-OVERFLOW: `first` is less than the number of slots, and `len` is not zero.
        self.first = self.first.wrapping_add(1);
        if self.first == self.slots.len() {
            self.first = 0;
        }
        self.len = self.len.wrapping_sub(1);
        Some(value)
    }
}
