// SPDX-License-Identifier: GPL-2.0

//! Work that waits for room in a queue ([`PostQueue`]).
//!
//! A queue announces that it has room again, but only after a post found it full, and only once.
//! Deferred items are in a list that the announcement empties. So after an item was put on the list
//! the queue has to be asked once more: an announcement in between found an empty list.

/// A queue, and the list of items that wait for it. Other contexts may use both at any time.
pub trait PostQueue {
    /// Posts `item`. Returns `false` if there is no room; [`resume`] is called when there is.
    fn post(&self, item: u16) -> bool;

    /// Returns whether there is room for `item`. If not, [`resume`] is called when there is, even
    /// if it was called for an earlier promise in between.
    fn has_room(&self, item: u16) -> bool;

    /// Puts `item` on the list.
    fn defer(&self, item: u16);

    /// Takes an item from the list.
    fn next_deferred(&self) -> Option<u16>;
}

/// Posts `item`, now or as soon as there is room.
#[inline]
pub fn post(queue: &impl PostQueue, item: u16) {
    if !queue.post(item) && wait(queue, item) {
        resume(queue);
    }
}

/// Posts deferred items until the list is empty or the queue has no room. The announcement calls
/// this.
pub fn resume(queue: &impl PostQueue) {
    while let Some(item) = queue.next_deferred() {
        if !queue.post(item) && !wait(queue, item) {
            return;
        }
    }
}

/// Defers an item. Returns whether there is room by now.
fn wait(queue: &impl PostQueue, item: u16) -> bool {
    queue.defer(item);
    queue.has_room(item)
}
