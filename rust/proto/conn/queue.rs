// SPDX-License-Identifier: GPL-2.0

//! A queue of fixed size, without allocation.

/// A first-in, first-out queue of at most `ROOM` items.
#[derive(Clone, Debug)]
pub(super) struct Queue<T, const ROOM: usize> {
    slots: [Option<T>; ROOM],
}

impl<T: Copy + PartialEq, const ROOM: usize> Queue<T, ROOM> {
    pub(super) const fn new() -> Self {
        Self {
            slots: [None; ROOM],
        }
    }

    /// Appends `item` unless an equal item is in the queue. The queue must have space for the item.
    pub(super) fn push(&mut self, item: T) {
        let fits = self.offer(item);
        // The assertion is checked only in tests on the host. In the kernel the assertion would be
        // a panic, and the object file must not contain panics.
        debug_assert!(fits || cfg!(CONFIG_RUST));
    }

    /// Appends `item` unless an equal item is in the queue. Returns false if the queue has no space
    /// for the item.
    pub(super) fn offer(&mut self, item: T) -> bool {
        self.offer_instead(item, |queued| *queued == item)
    }

    /// Replaces the first queued item for which `replaces` is true by `item`. If there is no such
    /// item, appends `item`, or returns false if the queue is full.
    pub(super) fn offer_instead(&mut self, item: T, replaces: impl Fn(&T) -> bool) -> bool {
        let mut slots = self.slots.iter_mut();
        let slot = slots.find(|slot| slot.as_ref().is_none_or(&replaces));
        slot.map(|slot| *slot = Some(item)).is_some()
    }

    /// Removes and returns the oldest item.
    pub(super) fn pop(&mut self) -> Option<T> {
        let item = self.slots.first_mut()?.take();
        self.slots.rotate_left(1);
        item
    }
}
