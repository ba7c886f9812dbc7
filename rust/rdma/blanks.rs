// SPDX-License-Identifier: GPL-2.0

//! Transfers of one connection that wait to be used again ([`Blanks`]).

use crate::{
    pd::Pd,
    transfer::Blank, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// Transfers that are kept at most.
const MOST: usize = 16;

/// Transfers that wait to be used again.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{blanks::Blanks, pd::Pd};
/// fn example(pd: &Arc<Pd>) -> Result {
///     let blanks = Blanks::new()?;
///     let blank = blanks.take(pd)?;
///     blanks.put(blank);
///     // Once in a while: without use since the last time all are freed.
///     blanks.trim();
///     Ok(())
/// }
/// ```
pub struct Blanks(Pin<KBox<SpinLock<State>>>);

struct State {
    /// Does not grow beyond its capacity, which is zero after [`Blanks::close`].
    spare: KVec<Blank>,
    /// One was taken since the last [`Blanks::trim`].
    used: bool,
}

impl Blanks {
    /// Makes it without transfers. May sleep.
    pub fn new() -> Result<Self> {
        let state = State {
            spare: KVec::with_capacity(MOST, GFP_KERNEL)?,
            used: false,
        };
        let lock = new_spinlock!(state, "Blanks::state");
        Ok(Self(KBox::pin_init(lock, GFP_KERNEL)?))
    }

    /// Returns a transfer for the device of `pd`, which is always the same one. May sleep.
    pub fn take(&self, pd: &Arc<Pd>) -> Result<Blank> {
        let mut state = self.0.lock();
        state.used = true;
        let found = state.spare.pop();
        drop(state);
        match found {
            Some(blank) => Ok(blank),
            None => Blank::new(pd),
        }
    }

    /// Keeps a transfer, or frees it. Does not sleep.
    pub fn put(&self, blank: Blank) {
        let pushed = self.0.lock().spare.push_within_capacity(blank);
        // It is freed without the lock.
        drop(pushed);
    }

    /// Frees all transfers, and keeps none any more.
    pub fn close(&self) {
        let spare = core::mem::take(&mut self.0.lock().spare);
        // They are freed without the lock.
        drop(spare);
    }

    /// Frees all transfers, if none was taken since the last call.
    pub fn trim(&self) {
        if core::mem::replace(&mut self.0.lock().used, false) {
            return;
        }
        loop {
            let blank = self.0.lock().spare.pop();
            if blank.is_none() {
                return;
            }
        }
    }
}
