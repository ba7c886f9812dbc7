// SPDX-License-Identifier: GPL-2.0

//! Transaction ids that a server cannot foresee ([`Xids`]).
//!
//! The RPC client increments its xid for each call, so a server knows the next xid in advance. A
//! reply with such an xid does not prove that the server has received the call. A reply with an xid
//! from this module proves that the server has received the call.
//!
//! The xids come from a bag (a table of unused xids). A call puts its own xid, which the RPC client
//! assigned, into a random slot of the bag. Then the call uses the xid that was in the slot before.
//! So each xid is used once, at a random time. Each of the [`NUMBERS`] xids in the bag is equally
//! likely, whichever xids were used before.
//!
//! Only calls of certain procedures get xids from the bag: the driver selects these procedures with
//! [`Call::wants_secret_xid`](crate::call::Call::wants_secret_xid). One bit distinguishes xids from
//! the bag from the xids that the RPC client assigns, so the two sets are disjoint. No xid is used
//! twice within 2^30 calls.

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use xprtrdma_base::{
    access_once::AccessOnce,
    random::unforeseen16, //
};

/// Number of xids in the bag of xids. Calls draw their xids from the bag at random. A server has to
/// guess 14 bits to predict a drawn xid.
pub(crate) const NUMBERS: u32 = 1 << 14;

/// This bit is set in each xid from the bag of xids. In this file all xids are in host byte order.
const SECRET: u32 = 1 << 31;

/// The value of an empty slot in the bag of xids. The value of any other slot has the [`SECRET`]
/// bit.
const EMPTY: u32 = 0;

/// Number of calls after which an unused xid is discarded from the bag of xids. An older xid could
/// be used twice within 2^30 calls, because the RPC client's counter wraps around.
pub(crate) const OLD: u32 = 1 << 30;

/// The xids of a transport that a server cannot foresee.
pub(crate) struct Xids {
    /// A bitmap of the procedures whose calls get xids from the bag of xids. The index of a
    /// procedure's bit is the procedure's number in the statistics, modulo the number of bits in a
    /// word. If two procedures share a bit, the calls of both get xids from the bag.
    procedures: Atomic<usize>,
    bag: KVVec<Atomic<u32>>,
    /// The RPC client's counter at the time when the bag of xids was last searched for old xids.
    searched: Atomic<u32>,
}

impl Xids {
    /// Fills a bag of xids with [`NUMBERS`] xids, beginning with `counter`. Advances `counter`,
    /// which belongs to the RPC client, past these xids. May sleep.
    pub(crate) fn new(counter: &mut u32) -> Result<Self> {
        let mut bag = KVVec::with_capacity(NUMBERS as usize, GFP_KERNEL)?;
        for _ in 0..NUMBERS {
            bag.push(Atomic::new(*counter | SECRET), GFP_KERNEL)?;
            *counter = counter.wrapping_add(1);
        }
        Ok(Self {
            procedures: Atomic::new(0),
            bag,
            searched: Atomic::new(*counter),
        })
    }

    /// Returns whether an xid comes from a bag of xids.
    #[inline]
    pub(crate) fn is_secret(xid: u32) -> bool {
        xid & SECRET != 0
    }

    /// Makes later calls of this procedure take their xids from the bag of xids.
    #[cold]
    pub(crate) fn include(&self, procedure: u32) {
        let bits = self.procedures.load(Relaxed);
        // If two threads set the bits of two procedures at the same time, one of the two bits may
        // be lost. The next call of the procedure with the lost bit sets the bit again.
        self.procedures.store(bits | bit(procedure), Relaxed);
    }

    /// Replaces the xid that the RPC client gave to a call of this procedure.
    #[inline]
    pub(crate) fn renumber(&self, xid: &mut u32, procedure: u32) {
        *xid &= !SECRET;
        if self.procedures.read_once() & bit(procedure) != 0 {
            self.draw_for(xid);
        }
    }

    #[inline(never)]
    fn draw_for(&self, xid: &mut u32) {
        *xid = self.draw(*xid, unforeseen16().into());
    }

    /// Puts the xid `plain` into a random slot of the bag of xids, and returns the xid that was in
    /// the slot. Returns `plain` itself if the slot was empty or the xid in the slot was too old.
    #[inline]
    pub(crate) fn draw(&self, plain: u32, random: u32) -> u32 {
        // CAST: `usize` is wider than `u32`.
        let Some(place) = self.bag.get((random % NUMBERS) as usize) else {
            return plain;
        };
        let drawn = place.xchg(plain | SECRET, Relaxed);
        match is_usable(drawn, plain) {
            true => drawn,
            false => plain,
        }
    }

    /// Removes old xids from the bag of xids. `counter` is the RPC client's counter. Must be called
    /// at least once in 2^28 calls.
    pub(crate) fn trim(&self, counter: u32) {
        const SELDOM: u32 = 1 << 28;
        if counter.wrapping_sub(self.searched.load(Relaxed)) < SELDOM {
            return;
        }
        self.searched.store(counter, Relaxed);
        for place in &self.bag {
            let number = place.load(Relaxed);
            if !is_usable(number, counter) {
                // If a call has drawn the old xid after the `load` above, the slot contains a new
                // xid. In that case the compare-and-exchange does not change the slot.
                let _ = place.cmpxchg(number, EMPTY, Relaxed);
            }
        }
    }
}

/// Returns whether an xid from the bag of xids may still be used when the RPC client's counter is
/// `counter`.
#[inline]
fn is_usable(drawn: u32, counter: u32) -> bool {
    drawn != EMPTY && counter.wrapping_sub(drawn) & !SECRET < OLD
}

#[inline]
fn bit(procedure: u32) -> usize {
    1 << (procedure % usize::BITS)
}
