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

/// Of a number from the bag. The RPC client's counter is in host order, as all here is.
const SECRET: u32 = 1 << 31;

/// Of a place in the bag: there is no number. One that is has its [`SECRET`] bit.
const EMPTY: u32 = 0;

/// Calls behind which a number is not used any more, for the counter comes round.
pub(crate) const OLD: u32 = 1 << 30;

/// The numbers of a transport that cannot be foreseen.
pub(crate) struct Xids {
    /// The procedures whose calls take part: a bit for the number of each one's statistics, modulo
    /// the bits of a word. Two that share a bit both take part.
    procedures: Atomic<usize>,
    bag: KVVec<Atomic<u32>>,
    /// The counter when the bag was last searched for old numbers.
    searched: Atomic<u32>,
}

impl Xids {
    /// Makes a bag of [`NUMBERS`] numbers. They begin at `counter`, the RPC client's, which goes on
    /// behind them. May sleep.
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

    /// Whether a number is from a bag.
    #[inline]
    pub(crate) fn is_secret(xid: u32) -> bool {
        xid & SECRET != 0
    }

    /// From now on calls of this procedure take part.
    #[cold]
    pub(crate) fn include(&self, procedure: u32) {
        let bits = self.procedures.load(Relaxed);
        // What another thread adds at this moment is lost, and comes with that procedure's next
        // call.
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

    /// Throws old numbers away. To be called more often than every 2^28 calls; `counter` is the RPC
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
                // If a call has just taken it, another is there.
                let _ = place.cmpxchg(number, EMPTY, Relaxed);
            }
        }
    }
}

/// Whether a number from the bag may be used when the RPC client's counter is here.
#[inline]
fn is_usable(drawn: u32, counter: u32) -> bool {
    drawn != EMPTY && counter.wrapping_sub(drawn) & !SECRET < OLD
}

#[inline]
fn bit(procedure: u32) -> usize {
    1 << (procedure % usize::BITS)
}
