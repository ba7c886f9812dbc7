// SPDX-License-Identifier: GPL-2.0

//! What waits its turn, in order, without allocation.

/// A first-in, first-out queue of at most `ROOM` things.
#[derive(Clone, Debug)]
pub(super) struct Queue<T, const ROOM: usize> {
    slots: [Option<T>; ROOM],
    lost: u32,
}

impl<T: Copy + PartialEq, const ROOM: usize> Queue<T, ROOM> {
    pub(super) const fn new() -> Self {
        Self {
            slots: [None; ROOM],
            lost: 0,
        }
    }

    /// Appends `item` unless the same already waits.
    pub(super) fn push(&mut self, item: T) {
        let wanted = Some(item);
        for slot in &mut self.slots {
            if *slot == wanted {
                return;
            }
            if slot.is_none() {
                *slot = wanted;
                return;
            }
        }
        self.lost = self.lost.saturating_add(1);
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<T> {
        let item = self.slots.first_mut()?.take();
        self.slots.rotate_left(1);
        item
    }

    /// How many found no room.
    pub(super) const fn lost(&self) -> u32 {
        self.lost
    }
}
