// SPDX-License-Identifier: GPL-2.0

//! Transaction ids that a server cannot foresee ([`Xids`]).
//!
//! The RPC client counts its xids up, so a server knows the next one. A reply that repeats such a
//! number does not prove that its call had left. A number of this room does.
//!
//! It comes from a bag. A call puts the number that the RPC client gave it into a random place of
//! the bag and takes what was there. So each number is used once, at a random time, and of the
//! [`NUMBERS`] in the bag each is as likely as the others, whatever was used before.
//!
//! Only calls of procedures that need it take part, as the driver says
//! ([`Call::wants_secret_xid`](crate::call::Call::wants_secret_xid)). One bit tells both kinds of
//! numbers apart, so they never meet. Within 2^30 calls no number is used twice.

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

/// Numbers in the bag: 14 bits that a server would have to guess.
pub(crate) const NUMBERS: u32 = 1 << 14;

/// Set in a number from the bag. The RPC client's counter is in host order, as all numbers here
/// are.
const SECRET: u32 = 1 << 31;

/// A place of the bag without a number. A place with a number has the [`SECRET`] bit.
const EMPTY: u32 = 0;

/// Number of calls after which a number is not used any more, because the counter wraps around.
pub(crate) const OLD: u32 = 1 << 30;

/// The unforeseeable numbers of a transport.
pub(crate) struct Xids {
    /// The procedures whose calls take part: a set of bits. The bit is the procedure's number in
    /// the statistics, modulo the bits of a word. Two procedures that share a bit both take part.
    procedures: Atomic<usize>,
    bag: KVVec<Atomic<u32>>,
    /// The counter when the bag was last searched for old numbers.
    searched: Atomic<u32>,
}

impl Xids {
    /// Makes a bag of [`NUMBERS`] numbers. They begin at `counter`, that of the RPC client, which
    /// goes on behind them. May sleep.
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

    /// Whether a number comes from a bag.
    #[inline]
    pub(crate) fn is_secret(xid: u32) -> bool {
        xid & SECRET != 0
    }

    /// Makes later calls of this procedure take part.
    #[cold]
    pub(crate) fn include(&self, procedure: u32) {
        let bits = self.procedures.load(Relaxed);
        // If another thread adds a procedure at this moment, one of the two is lost. It is added
        // again with its next call.
        self.procedures.store(bits | bit(procedure), Relaxed);
    }

    /// Replaces the number that the RPC client gave to a call of this procedure.
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

    /// Puts a number into the bag and takes another one; returns `plain` itself if the bag is empty
    /// or old.
    #[inline]
    pub(crate) fn draw(&self, plain: u32, random: u32) -> u32 {
        // CAST: Wider.
        let Some(place) = self.bag.get((random % NUMBERS) as usize) else {
            return plain;
        };
        let drawn = place.xchg(plain | SECRET, Relaxed);
        match is_usable(drawn, plain) {
            true => drawn,
            false => plain,
        }
    }

    /// Removes old numbers. Must be called at least every 2^28 calls; `counter` is the RPC
    /// client's.
    pub(crate) fn trim(&self, counter: u32) {
        const SELDOM: u32 = 1 << 28;
        if counter.wrapping_sub(self.searched.load(Relaxed)) < SELDOM {
            return;
        }
        self.searched.store(counter, Relaxed);
        for place in &self.bag {
            let number = place.load(Relaxed);
            if !is_usable(number, counter) {
                // If a call has just taken the old number, another number is there.
                let _ = place.cmpxchg(number, EMPTY, Relaxed);
            }
        }
    }
}

/// Whether a number from the bag may be used while the RPC client's counter has this value.
#[inline]
fn is_usable(drawn: u32, counter: u32) -> bool {
    drawn != EMPTY && counter.wrapping_sub(drawn) & !SECRET < OLD
}

#[inline]
fn bit(procedure: u32) -> usize {
    1 << (procedure % usize::BITS)
}
