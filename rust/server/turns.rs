// SPDX-License-Identifier: GPL-2.0

//! The order in which connections get memory while memory is short.
//!
//! `responder::turns` decides the order. This module stores the order for all connections of this
//! host, and wakes the connections that are first.
//!
//! Lock order (outer first): the lock of a connection's waiting calls, the lock of the order, the
//! lock of a ticker.

use crate::sizes::RETRY_MS;
use core::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    responder::{
        budget::{
            Pages,
            Wait, //
        },
        turns::{
            self,
            Turns,
            LAPSE, //
        }, //
    },
    time::Time, //
};
use xprtrdma_svc::util::{
    new_spinlock,
    now_ms,
    SetInPlace,
    SpinLock, //
};

// A waiting connection that is alive never seems to have stopped waiting.
const _: () = assert!(RETRY_MS * 5 <= LAPSE.get());

/// An object that makes a connection process its waiting calls.
pub(crate) trait Wake: Send + Sync {
    /// Requests that the waiting calls are processed. Does not sleep.
    fn wake(self: Arc<Self>);
}

/// A list of connections. The list always has as many elements as its memory can hold.
type Members = KVec<Option<turns::Member<Arc<dyn Wake>>>>;

/// Minimum length of a list of connections.
const LEAST: usize = 16;

/// The order of all connections. The order is in a global variable, because the memory limit
/// applies to all listeners together.
static TURNS: SetInPlace<SpinLock<Turns<Members>>> = SetInPlace::new();

/// Number of connections that wait. Changed only with the lock of `TURNS` held. The atomic variable
/// orders no other memory accesses. So a thread may miss a connection that has just begun to wait.
/// One call then gets its pages too early, or the connection is woken only by its own ticker.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// Prepares the order. Must be called once, before the first connection.
pub(crate) fn set() -> Result {
    TURNS.set(new_spinlock!(Turns::new(KVec::new()), "turns::TURNS"))?;
    Ok(())
}

/// Returns true if a connection waits for memory.
#[inline(always)]
pub(crate) fn has_waiting() -> bool {
    WAITING.load(Relaxed) != 0
}

/// The participation of a connection in the order. Dropping this object removes the connection.
pub(crate) struct Member {
    /// The number of the client address.
    address: u64,
    number: usize,
}

impl Member {
    /// Adds a connection from the client address with this number. May sleep.
    pub(crate) fn join(address: u64, mut waker: Arc<dyn Wake>) -> Result<Self> {
        let all = TURNS.get().ok_or(ENODEV)?;
        loop {
            let mut turns = all.lock();
            let capacity = turns.capacity();
            match turns.join(address, waker) {
                Ok(number) => return Ok(Self { address, number }),
                Err(refused) => waker = refused,
            }
            drop(turns);
            // The list is full. Memory is allocated and freed without the lock.
            let longer = empty(capacity.saturating_mul(2).max(LEAST))?;
            let unused = all.lock().move_to(longer);
            drop(unused);
        }
    }

    /// Requests pages for the first waiting call of the connection, or for a call that has just
    /// arrived while no call of the connection waits. `wait` and `take` are described at
    /// [`Turns::take`].
    pub(crate) fn take(
        &self,
        wait: Wait,
        take: impl FnOnce() -> Result<Pages, Wait>,
    ) -> Result<Pages, Wait> {
        self.change(|turns, now| turns.take(self.number, wait, now, take))
            .unwrap_or(Err(wait))
    }

    /// Makes the connection delay no other connection until it requests pages again.
    pub(crate) fn stop_waiting(&self) {
        if has_waiting() {
            self.change(|turns, _| ((), turns.stop_waiting(self.number)));
        }
    }

    /// Wakes the connections that may get the pages that a call of this connection has returned.
    /// Does not sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn wake_next(&self) {
        self.change(|_, _| ((), true));
    }

    /// Changes the order. If `change` also returns true, wakes the connections that are now first.
    fn change<R>(&self, change: impl FnOnce(&mut Turns<Members>, Time) -> (R, bool)) -> Option<R> {
        let mut turns = TURNS.get()?.lock();
        let now = Time::from_millis(now_ms());
        let (result, wakes) = change(&mut turns, now);
        WAITING.store(turns.waiting(), Relaxed);
        if wakes {
            let next = turns.next(self.address, now);
            next.for_each(|waker| waker.clone().wake());
        }
        Some(result)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The last connection frees the list. Memory is freed without the lock.
        let freed = self.change(|turns, _| {
            let waker = turns.leave(self.number);
            ((waker, turns.move_to(KVec::new())), true)
        });
        drop(freed);
    }
}

/// Allocates a list without connections.
fn empty(len: usize) -> Result<Members> {
    let mut members = KVec::with_capacity(len, GFP_KERNEL)?;
    while members.push_within_capacity(None).is_ok() {}
    Ok(members)
}
