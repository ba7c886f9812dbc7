// SPDX-License-Identifier: GPL-2.0

//! Empty transfers of one connection that wait to be used again ([`Blanks`]).

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

/// Maximum number of transfers that are kept.
const MOST: usize = 16;

/// Empty transfers that wait to be used again.
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
    /// The kept transfers. The list never grows beyond its capacity, which is zero after
    /// [`Blanks::close`].
    spare: KVec<Blank>,
    /// Whether a transfer was taken since the last [`Blanks::trim`].
    used: bool,
}

impl Blanks {
    /// Makes an empty store. May sleep.
    pub fn new() -> Result<Self> {
        let state = State {
            spare: KVec::with_capacity(MOST, GFP_KERNEL)?,
            used: false,
        };
        let lock = new_spinlock!(state, "Blanks::state");
        Ok(Self(KBox::pin_init(lock, GFP_KERNEL)?))
    }

    /// Returns an empty transfer for the device of `pd`. All calls must pass the same device. May
    /// sleep.
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

    /// Keeps the transfer, or frees it if enough transfers are kept. Does not sleep.
    pub fn put(&self, blank: Blank) {
        let pushed = self.0.lock().spare.push_within_capacity(blank);
        // The lock is not held here, so a transfer that was not kept is freed without it.
        drop(pushed);
    }

    /// Frees all transfers. Transfers that are put back later are freed at once.
    pub fn close(&self) {
        let spare = core::mem::take(&mut self.0.lock().spare);
        // The transfers are freed without the lock.
        drop(spare);
    }

    /// Frees all transfers if no transfer was taken since the last call.
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
