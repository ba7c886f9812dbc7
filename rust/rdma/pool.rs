// SPDX-License-Identifier: GPL-2.0

//! Pages of one connection that wait to be used again ([`Pool`]).
//!
//! A page that was filled for one peer is used again only for the same peer, so it need not be
//! zeroed. If other code took a reference to a page, that code keeps the page, and the page does
//! not return to the pool.

use crate::block::Block;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::prelude::*;
use xprtrdma_base::{
    new_spinlock,
    spin::SpinLock, //
};

/// Maximum number of blocks that a pool keeps.
const BLOCKS: usize = 16;

/// Number of pages in all pools. Accesses to this counter do not order other memory accesses.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Pages that wait to be used again.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{pages::Pages, pool::Pool};
/// fn example() -> Result {
///     // At most 16 pages are kept, if all pools together have no more than 1000.
///     let pool = Arc::new(Pool::new(16, 1000)?, GFP_KERNEL)?;
///     let pages = Pages::of(&pool, 4096)?;
///     // Goes back to the pool.
///     drop(pages);
/// // Called from time to time: frees everything if nothing was taken since the last time.
///     pool.trim();
///     Ok(())
/// }
/// ```
pub struct Pool {
    state: Pin<KBox<SpinLock<State>>>,
    most: usize,
    most_of_all: usize,
}

struct State {
    /// The kept blocks, oldest first. The list never grows beyond its capacity, which is zero after
    /// [`Pool::close`].
    spare: KVec<KBox<Block>>,
    pages: usize,
    /// Whether a block was taken since the last [`Pool::trim`].
    used: bool,
}

impl Pool {
    /// Makes a pool that keeps at most `most` pages. The pool keeps no further pages if all pools
    /// together would then keep more than `most_of_all` pages. May sleep.
    pub fn new(most: usize, most_of_all: usize) -> Result<Self> {
        let state = State {
            spare: KVec::with_capacity(BLOCKS, GFP_KERNEL)?,
            pages: 0,
            used: false,
        };
        Ok(Self {
            state: KBox::pin_init(new_spinlock!(state, "Pool::state"), GFP_KERNEL)?,
            most,
            most_of_all,
        })
    }

    /// Returns a block of at least `count` pages, which contain old data. Does not sleep.
    pub(crate) fn take(&self, count: usize) -> Option<KBox<Block>> {
        let mut state = self.state.lock();
        let index = fitting(&state.spare, count)?;
        state.used = true;
        state.remove(index)
    }

    /// Keeps `block`. If the pool has no room for `block`, frees the oldest blocks in the pool
    /// first. If the pool then still has no room, frees `block`. Does not sleep.
    pub(crate) fn put(&self, block: KBox<Block>) {
        if !block.is_unshared() {
            return;
        }
        let count = block.len();
        let mut state = self.state.lock();
        while !self.fits(&state, count) {
            let oldest = match self.may_fit(&state, count) {
                true => state.remove(0),
                false => None,
            };
            let Some(oldest) = oldest else {
                drop(state);
                // The lock is not held while the block is freed.
                drop(block);
                return;
            };
            drop(state);
            drop(oldest);
            state = self.state.lock();
        }
        // NO-OVERFLOW: The sum is a number of pages in memory.
        state.pages = state.pages.wrapping_add(count);
        KEPT.fetch_add(count, Relaxed);
        // The push does not fail, because the list has room.
        let pushed = state.spare.push_within_capacity(block);
        drop(state);
        drop(pushed);
    }

    /// Returns whether there is room for `count` more pages. If several pools check this at the
    /// same time, they may together keep a few pages too many.
    fn fits(&self, state: &State, count: usize) -> bool {
        state.spare.len() < state.spare.capacity()
            // NO-OVERFLOW: The sum is a number of pages in memory.
            && state.pages.wrapping_add(count) <= self.most
            && KEPT.load(Relaxed).wrapping_add(count) <= self.most_of_all
    }

    /// Returns whether there would be room for `count` pages if this pool freed all its pages.
    fn may_fit(&self, state: &State, count: usize) -> bool {
        let others = KEPT.load(Relaxed).saturating_sub(state.pages);
        state.spare.capacity() != 0
            && count <= self.most
            // NO-OVERFLOW: The sum is a number of pages in memory.
            && others.wrapping_add(count) <= self.most_of_all
    }

    /// Frees all blocks. Blocks that are put back later are freed at once.
    pub fn close(&self) {
        let mut state = self.state.lock();
        KEPT.fetch_sub(core::mem::take(&mut state.pages), Relaxed);
        let spare = core::mem::take(&mut state.spare);
        drop(state);
        // The lock is not held while the blocks are freed.
        drop(spare);
    }

    /// Frees all blocks if no block was taken since the last call.
    pub fn trim(&self) {
        if core::mem::replace(&mut self.state.lock().used, false) {
            return;
        }
        loop {
            let block = self.state.lock().remove(0);
            if block.is_none() {
                return;
            }
        }
    }
}

impl State {
    /// Removes a block from the list and from the count of pages.
    fn remove(&mut self, index: usize) -> Option<KBox<Block>> {
        let block = match index.wrapping_add(1) == self.spare.len() {
            true => self.spare.pop()?,
            false => self.spare.remove(index).ok()?,
        };
        // NO-OVERFLOW: The block's pages were counted when it was added.
        self.pages = self.pages.wrapping_sub(block.len());
        KEPT.fetch_sub(block.len(), Relaxed);
        Some(block)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the index of the smallest block that has at least `count` pages, and at most an eighth
/// more than `count`. A larger block is not used, because the limits on memory count only `count`
/// pages for the block.
#[inline]
fn fitting(spare: &[KBox<Block>], count: usize) -> Option<usize> {
    // Usually the newest block has exactly `count` pages.
    match spare.last() {
        Some(newest) if newest.len() == count => spare.len().checked_sub(1),
        _ => smallest(spare, count),
    }
}

/// Finds the smallest block that [`fitting`] may choose. Called if the newest block does not have
/// exactly `count` pages.
#[cold]
fn smallest(spare: &[KBox<Block>], count: usize) -> Option<usize> {
    let fits = |block: &Block| (count..=count.saturating_add(count / 8)).contains(&block.len());
    let all = spare.iter().enumerate().filter(|(_, block)| fits(block));
    all.min_by_key(|(_, block)| block.len())
        .map(|(index, _)| index)
}
