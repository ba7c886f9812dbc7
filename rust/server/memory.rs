// SPDX-License-Identifier: GPL-2.0

//! The memory that calls of all connections hold.
//!
//! Pages are counted before they are allocated: those that Reads of a call fill, and those that its
//! results may need. They stay counted until the RPC server has ended the call, and those of its
//! Writes until they have completed. A few pages of a call are not counted: the number of calls
//! bounds them.

use crate::sizes::{
    LEAST_MEMORY,
    MEMORY, //
};
use core::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
pub(crate) use xprtrdma_proto::responder::budget::Pages as Counted;
use xprtrdma_proto::responder::budget::{
    Budget,
    Share,
    Wait, //
};

/// A call that needs no more pages is not counted.
const SMALL: u32 = 2;

/// Pages that no call holds. They are a number, and order nothing.
static FREE: AtomicU32 = AtomicU32::new(0);
/// Pages that the calls of one connection may hold, and those of all connections of one address.
static OF_ONE: AtomicU32 = AtomicU32::new(0);
static OF_ADDRESS: AtomicU32 = AtomicU32::new(0);

/// Sets the memory of all calls by that of the host: an eighth of it, within bounds. Called once,
/// before there is a connection.
pub(crate) fn set(host_pages: usize) {
    let pages = (MEMORY / PAGE_SIZE).min(host_pages / 8);
    // CAST: A small part of the memory of any host.
    let all = Budget::new(pages as u32, (LEAST_MEMORY / PAGE_SIZE) as u32).free();
    FREE.store(all, Relaxed);
    OF_ONE.store(all / 4, Relaxed);
    OF_ADDRESS.store(all / 2, Relaxed);
}

/// The pages that the connections of one address hold together.
pub(crate) struct Account(AtomicU32);

impl Account {
    /// Makes the account of an address without connections.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Ok(Arc::new(Self(AtomicU32::new(0)), GFP_KERNEL)?)
    }

    /// Counts pages, if the address may have as many.
    fn take(&self, pages: u32) -> Result<(), Wait> {
        let counted = self.0.fetch_update(Relaxed, Relaxed, |held| {
            let may = free_now().leaves(held, OF_ADDRESS.load(Relaxed), pages);
            may.then(|| held.saturating_add(pages))
        });
        counted.map(|_| ()).map_err(|_| Wait::Address)
    }

    fn give_back(&self, pages: u32) {
        self.0.fetch_sub(pages, Relaxed);
    }
}

fn free_now() -> Budget {
    Budget::of(FREE.load(Relaxed))
}

/// Makes the share of a connection that may have this number of RDMA Reads under way.
pub(crate) fn share(reads: u8) -> Share {
    Share::new(OF_ONE.load(Relaxed), reads.into())
}

/// Returns how many pages of a call with this number of bytes in each direction are counted.
pub(crate) fn counted(read: u32, written: u32) -> u32 {
    // NO-OVERFLOW: Both are less than 2^20.
    let pages = pages(read as usize).wrapping_add(pages(written as usize));
    match pages > SMALL {
        true => pages,
        false => 0,
    }
}

fn pages(bytes: usize) -> u32 {
    // CAST: A message has a few megabytes.
    bytes.div_ceil(PAGE_SIZE) as u32
}

/// Returns how many pages of RDMA Writes with this number of bytes are counted.
pub(crate) fn counted_writes(bytes: usize) -> u32 {
    match pages(bytes) {
        pages if pages > SMALL => pages,
        _ => 0,
    }
}

/// Takes pages for a call.
pub(crate) fn take(share: &mut Share, address: &Account, pages: u32) -> Result<Counted, Wait> {
    address.take(pages)?;
    take_free(share, pages).inspect_err(|_| address.give_back(pages))
}

fn take_free(share: &mut Share, pages: u32) -> Result<Counted, Wait> {
    let mut free = FREE.load(Relaxed);
    loop {
        let mut budget = Budget::of(free);
        let taken = budget.take(share, pages)?;
        match FREE.compare_exchange_weak(free, budget.free(), Relaxed, Relaxed) {
            Ok(_) => return Ok(taken),
            Err(now) => {
                budget.give_back(share, taken);
                free = now;
            }
        }
    }
}

/// Takes the pages of a call back.
pub(crate) fn give_back(share: &mut Share, address: &Account, pages: Counted) {
    address.give_back(pages.count());
    let mut budget = Budget::of(0);
    budget.give_back(share, pages);
    FREE.fetch_add(budget.free(), Relaxed);
}

/// Returns how many pages no call holds.
pub(crate) fn free() -> u32 {
    FREE.load(Relaxed)
}

/// Takes back the pages of a connection that ends.
pub(crate) fn end(share: &Share, address: &Account) {
    address.give_back(share.pages());
    FREE.fetch_add(share.pages(), Relaxed);
}
