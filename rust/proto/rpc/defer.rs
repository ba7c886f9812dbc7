// SPDX-License-Identifier: GPL-2.0

//! Posting work to a queue that may be full ([`PostQueue`]).
//!
//! If a post finds the queue full, the caller puts the item on the deferred list. When the queue
//! has free entries again, it announces this, but only once. Then the items of the list are posted.
//!
//! The announcement may come too early: after the failed post, but before the item is on the list.
//! Then it misses the item. So the caller puts the item on the list, and then asks the queue again
//! whether it has free entries.

/// A queue with a list of deferred items. Other contexts may use the queue and the list at any
/// time.
pub trait PostQueue {
    /// Posts `item`. Returns `false` if the queue is full; the queue then calls [`resume`] as soon
    /// as it has free entries.
    fn post(&self, item: u16) -> bool;

    /// Returns whether the queue has free entries for `item`. If not, the queue calls [`resume`] as
    /// soon as it has free entries. The queue does so even if it has already called [`resume`]
    /// after an earlier failed post.
    fn has_room(&self, item: u16) -> bool;

    /// Puts `item` on the deferred list.
    fn defer(&self, item: u16);

    /// Takes an item from the deferred list.
    fn next_deferred(&self) -> Option<u16>;
}

/// Posts `item` now, or defers it until the queue has free entries.
#[inline]
pub fn post(queue: &impl PostQueue, item: u16) {
    if !queue.post(item) && wait(queue, item) {
        resume(queue);
    }
}

/// Posts deferred items until the deferred list is empty or the queue is full. The queue calls this
/// function when it has free entries again.
pub fn resume(queue: &impl PostQueue) {
    while let Some(item) = queue.next_deferred() {
        if !queue.post(item) && !wait(queue, item) {
            return;
        }
    }
}

/// Defers `item`. Returns whether the queue now has free entries for the item.
fn wait(queue: &impl PostQueue, item: u16) -> bool {
    queue.defer(item);
    queue.has_room(item)
}
