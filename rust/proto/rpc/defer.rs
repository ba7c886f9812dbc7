// SPDX-License-Identifier: GPL-2.0

//! What is to be posted to a queue that is full now and then ([`PostQueue`]).
//!
//! A queue announces that there is room, but only to who found it full, and only once. Whatever waits is
//! in a list that an announcement finds. So who has put something there must ask for room once more:
//! what came in between was announced to an empty list.

/// A queue, and the list of what waits for it. Others may use both at any time.
pub trait PostQueue {
    /// Posts `item`. `false`: there is no room, and it will be announced when there is.
    fn post(&self, item: u16) -> bool;

    /// Whether there is room for `item`; if not it will be announced, also if that was promised before
    /// and has happened in between.
    fn has_room(&self, item: u16) -> bool;

    /// Adds to the list.
    fn defer(&self, item: u16);

    /// Takes from the list.
    fn next_deferred(&self) -> Option<u16>;
}

/// Posts `item`, now or as soon as there is room.
#[inline]
pub fn post(queue: &impl PostQueue, item: u16) {
    if !queue.post(item) && wait(queue, item) {
        resume(queue);
    }
}

/// Posts what waits, until there is no room again, which will be announced. For announcements.
pub fn resume(queue: &impl PostQueue) {
    while let Some(item) = queue.next_deferred() {
        if !queue.post(item) && !wait(queue, item) {
            return;
        }
    }
}

/// Lets an item wait. True if there is room by now.
fn wait(queue: &impl PostQueue, item: u16) -> bool {
    queue.defer(item);
    queue.has_room(item)
}
