// SPDX-License-Identifier: GPL-2.0

//! Accounting of the memory that the calls of all connections hold.
//!
//! For each call two kinds of pages are counted before they are allocated: the pages that the
//! call's Reads fill, and the pages that the call's results may need. The pages stay counted until
//! the RPC server has finished the call. Only pages that RDMA Writes send stay counted longer,
//! until the Writes have completed. A call that needs only a few pages is not counted, because the
//! number of calls is limited as well. The RDMA Writes of such a call keep only these few pages
//! allocated.

use crate::{
    sizes::{
        LEAST_MEMORY,
        MEMORY, //
    },
    turns::{
        self,
        Member,
        Wake, //
    }, //
};
use core::{
    net::IpAddr,
    ops::Deref,
    sync::atomic::{
        AtomicU32,
        AtomicU64,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Arc, //
};
pub(crate) use xprtrdma_proto::responder::budget::Pages as Counted;
use xprtrdma_proto::responder::budget::{
    Budget,
    Share,
    Wait, //
};
use xprtrdma_rdma::transfer::{
    Kind,
    Transfer, //
};
use xprtrdma_svc::util::{
    new_spinlock,
    SetInPlace,
    SpinLock,
    SMALL as SMALL_BYTES, //
};

/// A call that needs at most this number of pages does not count towards the limits.
// CAST: The number is small.
const SMALL: u32 = (SMALL_BYTES / PAGE_SIZE) as u32;

/// Number of pages that calls may still take before the memory limit of all calls is reached. The
/// atomic variable orders no other memory accesses.
static FREE: AtomicU32 = AtomicU32::new(0);
/// Maximum number of pages for the calls of one connection.
static OF_ONE: AtomicU32 = AtomicU32::new(0);
/// Maximum number of pages for the calls of all connections of one client address.
static OF_ADDRESS: AtomicU32 = AtomicU32::new(0);

/// Number of times that a call could not get memory because other calls held the memory. The times
/// when the call's connection or address had reached its own limit are not counted. The counter
/// orders no other memory accesses.
static SHORTAGES: AtomicU64 = AtomicU64::new(0);

/// The accounts of client addresses, each with the number of its objects of type [`Address`].
type Accounts = RBTree<IpAddr, (Arc<Account>, u32)>;

/// The accounts of all client addresses that have connections. The accounts are in a global
/// variable, because the limits on memory apply to all listeners together.
static ACCOUNTS: SetInPlace<SpinLock<Accounts>> = SetInPlace::new();

/// Sets the memory limit of all calls to an eighth of the host's memory, but at least to
/// `LEAST_MEMORY` and at most to `MEMORY`. Must be called once, before the first connection.
pub(crate) fn set(host_pages: usize) -> Result {
    let pages = (MEMORY / PAGE_SIZE).min(host_pages / 8);
    // CAST: Both numbers of pages are far below 2^32.
    let all = Budget::new(pages as u32, (LEAST_MEMORY / PAGE_SIZE) as u32).free();
    FREE.store(all, Relaxed);
    OF_ONE.store(all / 4, Relaxed);
    OF_ADDRESS.store(all / 2, Relaxed);
    ACCOUNTS.set(new_spinlock!(RBTree::new(), "memory::ACCOUNTS"))?;
    Ok(())
}

/// The account of one client address. The atomic variables order no other memory accesses.
struct Account {
    /// The number of the client address. Each account has another number.
    number: u64,
    /// Number of pages that all connections of the client address hold together.
    pages: AtomicU32,
}

impl Account {
    /// Creates the account of a client address that has no connections yet.
    fn new() -> Result<Arc<Self>> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let account = Self {
            number: NUMBER.fetch_add(1, Relaxed),
            pages: AtomicU32::new(0),
        };
        Ok(Arc::new(account, GFP_KERNEL)?)
    }

    /// Adds pages to the account, unless the client address would hold too many pages.
    fn take(&self, pages: u32) -> Result<(), Wait> {
        let counted = self.pages.fetch_update(Relaxed, Relaxed, |held| {
            let may = free_now().leaves(held, OF_ADDRESS.load(Relaxed), pages);
            may.then(|| held.saturating_add(pages))
        });
        counted.map(|_| ()).map_err(|_| Wait::Address)
    }

    fn give_back(&self, pages: u32) {
        self.pages.fetch_sub(pages, Relaxed);
    }
}

/// A reference to the account of a client address. Dropping the last reference removes the account.
struct Address {
    peer: IpAddr,
    account: Arc<Account>,
}

impl Address {
    /// Returns the account of a client address. Creates the account if the client address has none.
    /// May sleep.
    fn of(peer: IpAddr) -> Result<Self> {
        // The memory is allocated and freed without the lock.
        let node = RBTreeNode::new(peer, (Account::new()?, 0), GFP_KERNEL)?;
        let mut all = ACCOUNTS.get().ok_or(ENODEV)?.lock();
        let unused = match all.get(&peer) {
            Some(_) => Some(node),
            None => all.insert(node),
        };
        let found = all.get_mut(&peer).map(|(account, references)| {
            // NO-OVERFLOW: Each reference is an object in memory.
            *references = references.wrapping_add(1);
            account.clone()
        });
        drop(all);
        drop(unused);
        let account = found.ok_or(EINVAL)?;
        Ok(Self { peer, account })
    }
}

impl Deref for Address {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let Some(all) = ACCOUNTS.get() else {
            return;
        };
        let mut all = all.lock();
        let is_last = all.get_mut(&self.peer).is_some_and(|(_, references)| {
            *references = references.saturating_sub(1);
            *references == 0
        });
        let unused = match is_last {
            true => all.remove_node(&self.peer),
            false => None,
        };
        // The memory is freed without the lock.
        drop(all);
        drop(unused);
    }
}

/// A connection that may hold memory.
pub(crate) struct Holder {
    address: Address,
    member: Member,
}

impl Holder {
    /// Adds a connection from a client address. `waker` makes the connection process its waiting
    /// calls. May sleep.
    pub(crate) fn new(peer: IpAddr, waker: Arc<dyn Wake>) -> Result<Self> {
        let address = Address::of(peer)?;
        let member = Member::join(address.number, waker)?;
        Ok(Self { address, member })
    }

    /// Makes the connection delay no other connection until it requests memory again.
    pub(crate) fn stop_waiting(&self) {
        self.member.stop_waiting();
    }
}

/// Returns the number of times that a call could not get memory because other calls held the
/// memory.
pub(crate) fn shortages() -> u64 {
    SHORTAGES.load(Relaxed)
}

fn free_now() -> Budget {
    Budget::of(FREE.load(Relaxed))
}

/// Returns the maximum number of pages that the calls of one connection may hold.
pub(crate) fn of_one() -> u32 {
    OF_ONE.load(Relaxed)
}

/// Creates the account of the memory that one connection holds. The connection may have `reads`
/// RDMA Reads in flight.
pub(crate) fn share(reads: u8) -> Share {
    Share::new(of_one(), reads.into())
}

/// Returns the number of pages to count for a call with RDMA Reads of `read` bytes and with results
/// of `written` bytes.
#[inline]
pub(crate) fn counted(read: u32, written: u32) -> u32 {
    // Most calls need no RDMA Reads, and only a few pages.
    if read == 0 && written as usize <= SMALL_BYTES {
        return 0;
    }
    // NO-OVERFLOW: Both numbers of pages are less than 2^20.
    let pages = pages(read as usize).wrapping_add(pages(written as usize));
    match pages > SMALL {
        true => pages,
        false => 0,
    }
}

fn pages(bytes: usize) -> u32 {
    // CAST: A message has at most a few megabytes.
    bytes.div_ceil(PAGE_SIZE) as u32
}

/// Returns how many pages must be counted for RDMA Writes of `bytes` bytes.
#[inline]
pub(crate) fn counted_writes(bytes: usize) -> u32 {
    match bytes > SMALL_BYTES {
        true => pages(bytes),
        false => 0,
    }
}

/// Returns how many pages of a transfer are counted until the transfer has completed. The pages of
/// RDMA Reads are counted for their call.
pub(crate) fn counted_transfer(transfer: &Transfer) -> u32 {
    match transfer.kind() {
        Kind::Write => counted_writes(transfer.bytes()),
        Kind::Read => 0,
    }
}

/// Counts `pages` pages for a call. Adds them to three accounts: the budget of all calls, the share
/// of the connection, and the account of the client address. If other connections wait for memory,
/// the call may have to wait behind them.
pub(crate) fn take(share: &mut Share, holder: &Holder, pages: u32) -> Result<Counted, Wait> {
    if !turns::has_waiting() {
        if let Ok(taken) = take_now(share, &holder.address, pages) {
            return Ok(taken);
        }
    }
    take_in_turn(share, holder, pages)
}

/// Counts the pages of a call when other calls wait, or when too few pages seem to be free.
#[cold]
#[inline(never)]
fn take_in_turn(share: &mut Share, holder: &Holder, pages: u32) -> Result<Counted, Wait> {
    let address = &holder.address;
    let most = OF_ADDRESS.load(Relaxed);
    let held = || address.pages.load(Relaxed);
    let wait = |share: &Share| free_now().wait(share, (held(), most), pages);
    let why = wait(share);
    if why == Wait::Share && !turns::has_waiting() {
        return Err(why);
    }
    let taken = holder.member.take(why, || {
        take_now(share, address, pages).map_err(|_| wait(share))
    });
    let is_short = match taken {
        Err(Wait::Budget) => true,
        // If this address alone had reached a limit, other addresses are not to blame.
        Err(Wait::Address) => why == Wait::Address && held().saturating_add(pages) <= most,
        Ok(_) | Err(Wait::Share) => false,
    };
    if is_short {
        SHORTAGES.fetch_add(1, Relaxed);
    }
    taken
}

fn take_now(share: &mut Share, address: &Account, pages: u32) -> Result<Counted, Wait> {
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

/// Stops counting the pages of a call. Removes them from three accounts: the budget of all calls,
/// the share of the connection, and the account of the client address. Wakes the connections that
/// waited first.
pub(crate) fn give_back(share: &mut Share, holder: &Holder, pages: Counted) {
    holder.address.give_back(pages.count());
    let mut budget = Budget::of(0);
    budget.give_back(share, pages);
    FREE.fetch_add(budget.free(), Relaxed);
    if turns::has_waiting() {
        holder.member.wake_next();
    }
}

/// Returns the number of pages that calls may still take before the memory limit of all calls is
/// reached.
pub(crate) fn free() -> u32 {
    FREE.load(Relaxed)
}

/// Stops counting the pages of an ended connection in the budget of all calls and in the account of
/// the client address. The drop of `holder` then wakes the connections that waited first.
pub(crate) fn end(share: &Share, holder: &Holder) {
    holder.address.give_back(share.pages());
    FREE.fetch_add(share.pages(), Relaxed);
}
