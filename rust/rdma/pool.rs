// SPDX-License-Identifier: GPL-2.0

//! Pages of one connection that wait to be used again ([`Pool`]).
//!
//! Pages that a device filled for one peer are used again for that peer alone, so they need not be
//! zeroed. A page that others took a reference to does not come back: it stays with them.

use crate::block::Block;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::Relaxed, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};

/// Blocks of pages that a pool keeps at most.
const BLOCKS: usize = 16;

/// Pages in all pools. It is a number, and orders nothing.
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
///     // Once in a while: without use since the last time everything is freed.
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
    /// In the order in which they came. Does not grow beyond its capacity, which is zero after
    /// [`Pool::close`].
    spare: KVec<Block>,
    pages: usize,
    /// A block was taken since the last [`Pool::trim`].
    used: bool,
}

impl Pool {
    /// Makes a pool that keeps `most` pages, as long as all pools have no more than `most_of_all`.
    /// May sleep.
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

    /// Returns a block of at least `count` pages, which hold what they happen to hold. Does not
    /// sleep.
    pub(crate) fn take(&self, count: usize) -> Option<Block> {
        let mut state = self.state.lock();
        let index = fitting(&state.spare, count)?;
        state.used = true;
        state.remove(index)
    }

    /// Keeps a block: the oldest ones are freed if there is no room for it. If that makes none, it
    /// is freed. Does not sleep.
    pub(crate) fn put(&self, block: Block) {
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
                // It is freed without the lock.
                drop(block);
                return;
            };
            drop(state);
            drop(oldest);
            state = self.state.lock();
        }
        // NO-OVERFLOW: Numbers of pages in memory.
        state.pages = state.pages.wrapping_add(count);
        KEPT.fetch_add(count, Relaxed);
        // There is room.
        let pushed = state.spare.push_within_capacity(block);
        drop(state);
        drop(pushed);
    }

    /// Returns whether there is room for this number of pages. Pools that look at the same time may
    /// keep a few more together.
    fn fits(&self, state: &State, count: usize) -> bool {
        state.spare.len() < state.spare.capacity()
            // NO-OVERFLOW: Numbers of pages in memory.
            && state.pages.wrapping_add(count) <= self.most
            && KEPT.load(Relaxed).wrapping_add(count) <= self.most_of_all
    }

    /// Returns whether there is room for this number of pages if this pool frees all that it keeps.
    fn may_fit(&self, state: &State, count: usize) -> bool {
        let others = KEPT.load(Relaxed).saturating_sub(state.pages);
        state.spare.capacity() != 0
            && count <= self.most
            // NO-OVERFLOW: Numbers of pages in memory.
            && others.wrapping_add(count) <= self.most_of_all
    }

    /// Frees everything, and keeps no block any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        KEPT.fetch_sub(core::mem::take(&mut state.pages), Relaxed);
        let spare = core::mem::take(&mut state.spare);
        drop(state);
        // It is freed without the lock.
        drop(spare);
    }

    /// Frees everything, if no block was taken since the last call.
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
    /// Removes a block, and counts it no more.
    fn remove(&mut self, index: usize) -> Option<Block> {
        let block = self.spare.remove(index).ok()?;
        // NO-OVERFLOW: They were counted when they came.
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

/// Returns the place of the smallest block with `count` pages. The block has at most an eighth
/// more, because the limits on memory count `count` pages for it.
fn fitting(spare: &[Block], count: usize) -> Option<usize> {
    let fits = |block: &Block| (count..=count.saturating_add(count / 8)).contains(&block.len());
    let all = spare.iter().enumerate().filter(|(_, block)| fits(block));
    all.min_by_key(|(_, block)| block.len())
        .map(|(index, _)| index)
}
