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
use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    }, //
};
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

    /// Returns a block of at least `count` pages, which contain old data. A block has at least one
    /// page. Does not sleep.
    #[inline]
    pub(crate) fn take(&self, count: usize) -> Option<KBox<Block>> {
        let mut state = self.state.lock();
        // Usually the newest block has exactly `count` pages.
        let block = match state.spare.last() {
            Some(newest) if newest.len() == count => state.spare.pop(),
            _ => state.remove_fitting(count),
        }?;
        state.used = true;
        state.forget(block.len());
        Some(block)
    }

    /// Keeps `block` in the pool `home`. If the pool has no room for `block`, frees the oldest
    /// blocks in the pool first. If the pool then still has no room, frees `block`. Does not sleep.
    pub(crate) fn put(home: Arc<Self>, block: KBox<Block>) {
        if block.is_unshared() {
            home.keep(block);
        }
        // The function `end` drops the pool. If `put` dropped the pool itself, `put` would have to
        // save more registers.
        if let Some(last) = Arc::into_unique_or_drop(home) {
            end(last);
        }
    }

    #[inline(always)]
    fn keep(&self, mut block: KBox<Block>) {
        let count = block.len();
        loop {
            let mut state = self.state.lock();
            if self.fits(&state, count) {
                // The push does not fail, because the list has room.
                let pushed = state.spare.push_within_capacity(block);
                // NO-OVERFLOW: The sum is a number of pages in memory.
                state.pages = state.pages.wrapping_add(count);
                KEPT.fetch_add(count, Relaxed);
                drop(state);
                drop(pushed);
                return;
            }
            drop(state);
            block = match self.make_room(block) {
                Some(block) => block,
                None => return,
            };
        }
    }

    /// Frees the oldest block of the pool, and returns `block`. If even an empty pool would have no
    /// room for `block`, or if the pool is empty, frees `block` and returns `None`.
    #[cold]
    #[inline(never)]
    fn make_room(&self, block: KBox<Block>) -> Option<KBox<Block>> {
        let mut state = self.state.lock();
        let oldest = match self.may_fit(&state, block.len()) {
            true => state.remove(0),
            false => None,
        };
        // The lock is not held while a block is freed.
        drop(state);
        oldest.map(|_| block)
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

    /// Frees all blocks. Blocks that are put back later are freed immediately.
    pub fn close(&self) {
        let mut state = self.state.lock();
        KEPT.fetch_sub(core::mem::take(&mut state.pages), Relaxed);
        let spare = core::mem::take(&mut state.spare);
        drop(state);
        // The lock is not held while the blocks are freed.
        drop(spare);
    }

    /// Frees all blocks if no block was taken since the last call of this function.
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
    /// Removes a block from the list, and subtracts its pages from the counters of pages.
    fn remove(&mut self, index: usize) -> Option<KBox<Block>> {
        let block = self.spare.remove(index).ok()?;
        self.forget(block.len());
        Some(block)
    }

    /// Subtracts `count` from the number of pages in this pool and from the number in all pools.
    #[inline]
    fn forget(&mut self, count: usize) {
        // NO-OVERFLOW: The pages were counted when their block was added.
        self.pages = self.pages.wrapping_sub(count);
        KEPT.fetch_sub(count, Relaxed);
    }

    /// Removes the smallest block with at least `count` pages from the list. Does not change the
    /// counters of pages. The block has at most an eighth more pages than `count`. A larger block
    /// is not used, because the limits on memory count only `count` pages for the block.
    #[cold]
    fn remove_fitting(&mut self, count: usize) -> Option<KBox<Block>> {
        let fits = |block: &Block| (count..=count.saturating_add(count / 8)).contains(&block.len());
        let all = self.spare.iter().enumerate();
        let fitting = all.filter(|(_, block)| fits(block));
        let (index, _) = fitting.min_by_key(|(_, block)| block.len())?;
        self.spare.remove(index).ok()
    }
}

/// Drops a pool.
#[cold]
#[inline(never)]
fn end(pool: Pin<UniqueArc<Pool>>) {
    drop(pool);
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}
