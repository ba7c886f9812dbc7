// SPDX-License-Identifier: GPL-2.0

//! Empty transfers of one connection that wait to be used again ([`Blanks`]).

use crate::transfer::Blank;
use kernel::prelude::*;

/// Maximum number of empty transfers that are kept to be used again.
const MOST: usize = 16;

/// Empty transfers that wait to be used again, all for the same device.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{blanks::Blanks, pd::Pd, transfer::Blank};
/// fn example(pd: &Arc<Pd>) -> Result {
///     let mut blanks = Blanks::new()?;
///     let blank = match blanks.take() {
///         Some(blank) => blank,
///         None => Blank::new(pd)?,
///     };
///     let rest = blanks.put(blank);
///     assert!(rest.is_none());
/// // Called from time to time: frees all transfers if none was taken since the last time.
///     while let Some(blank) = blanks.trim() {
///         drop(blank);
///     }
///     Ok(())
/// }
/// ```
pub struct Blanks {
    /// The kept transfers. The list never grows beyond its capacity, which is zero after
    /// [`Blanks::close`].
    spare: KVec<Blank>,
    /// Whether a transfer was taken since the last [`Blanks::trim`].
    used: bool,
}

impl Blanks {
    /// Creates a store without transfers. May sleep.
    pub fn new() -> Result<Self> {
        Ok(Self {
            spare: KVec::with_capacity(MOST, GFP_KERNEL)?,
            used: false,
        })
    }

    /// Returns a kept transfer, if there is one.
    #[inline]
    pub fn take(&mut self) -> Option<Blank> {
        self.used = true;
        self.spare.pop()
    }

    /// Keeps the transfer if the list of kept transfers has space for it. Otherwise returns the
    /// transfer.
    #[inline]
    pub fn put(&mut self, blank: Blank) -> Option<Blank> {
        match self.spare.push_within_capacity(blank) {
            Ok(()) => None,
            Err(full) => Some(full.0),
        }
    }

    /// Returns all transfers. Transfers that are put back later are not kept.
    pub fn close(&mut self) -> KVec<Blank> {
        core::mem::take(&mut self.spare)
    }

    /// Returns one of the kept transfers, which the caller must drop. Returns `None` if no transfer
    /// is kept, or if a transfer was taken for use since the last call of this method. The caller
    /// calls this method repeatedly until the result is `None`.
    pub fn trim(&mut self) -> Option<Blank> {
        match core::mem::take(&mut self.used) {
            true => None,
            false => self.spare.pop(),
        }
    }
}
