// SPDX-License-Identifier: GPL-2.0

//! A counter of an object's holders ([`Holders`]). The owner can wait until the counter is zero.

use crate::{
    access_once::AccessOnce,
    time::Jiffies, //
};
use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};
use xprtrdma_bindings as bindings;

/// The bit of the counter that is set while the owner waits. The number of holders always stays
/// below this value: on a 64-bit host, safe code that forgets its holders would need years to reach
/// it.
const AWAITED: isize = 1 << (isize::BITS - 2);

/// Counts the holders of an object. The owner must not destroy the object before the last holder is
/// gone.
///
/// A waiting owner sets a bit of the counter, so a leaving holder wakes the owner only if the bit
/// is set. All changes of one atomic variable have a single order. If the last holder leaves after
/// the bit was set, the holder sees that it must wake the owner. If the last holder leaves before
/// the bit is set, the owner sees that it need not sleep.
///
/// # Examples
///
/// ```
/// # use xprtrdma_base::holders::Holders;
/// let users = Holders::new();
/// users.add();
/// // In the thread of the user, when it is done:
/// // SAFETY: `users` is valid and counts this user.
/// unsafe { Holders::remove(&users) };
/// // In the thread that ends what is used:
/// users.wait();
/// ```
#[repr(transparent)]
pub struct Holders(Atomic<isize>);

impl Holders {
    /// Makes a counter without a holder.
    #[allow(
        clippy::new_without_default,
        reason = "it is made in constant expressions, where a default cannot be"
    )]
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Adds a holder to the count.
    #[inline]
    pub fn add(&self) {
        // ORDERING: `Relaxed` is enough: the caller guarantees that the object exists until this
        // holder is counted.
        self.0.add(1, Relaxed);
    }

    /// Counts the first holder without an atomic read-modify-write. Returns `false` and does
    /// nothing if there are holders already.
    ///
    /// # Safety
    ///
    /// During the call no other thread adds a holder or waits. All earlier additions and waits of
    /// other threads are ordered before this call.
    #[inline]
    pub unsafe fn add_first(&self) -> bool {
        // No other thread changes the counter while it is zero.
        let first = self.0.read_once() == 0;
        if first {
            self.0.write_once(1);
        }
        first
    }

    /// Removes the only holder without an atomic read-modify-write. Returns `false` and does
    /// nothing if there are other holders.
    ///
    /// # Safety
    ///
    /// The counter includes the caller. During the call no thread waits for the last holder, and no
    /// other thread adds a holder. Other threads may nevertheless call [`Holders::add_first`]: it
    /// does nothing while the caller is counted.
    #[inline]
    pub unsafe fn remove_only(&self) -> bool {
        // If the caller is the only holder, no other thread changes the counter.
        // ORDERING: When the owner waits, it reads the counter with an acquire. So the release
        // below makes the caller's work visible to the owner. Because of the acquire here, the
        // owner also sees the work of earlier holders.
        let only = self.0.read_acquire() == 1;
        if only {
            self.0.write_release(0);
        }
        only
    }

    /// Removes the caller from the counted holders. Wakes the owner if the owner waits and no
    /// holder is left.
    ///
    /// # Safety
    ///
    /// `this` is valid, and the caller is a counted holder. The object may be freed before the call
    /// returns.
    #[inline]
    pub unsafe fn remove(this: *const Self) {
        // ORDERING: `Full` orders the holder's work before everything that the owner does after its
        // wait. `Full` also orders the change of the counter before the check for a sleeping
        // thread.
        // SAFETY: By the caller's contract, `this` is valid: the object is not freed before this
        // subtraction.
        if unsafe { (*this).0.fetch_sub(1, Full) } == AWAITED + 1 {
            // SAFETY: `xprtrdma_wake_var` only uses the address, so the counter may be freed
            // already.
            unsafe { bindings::xprtrdma_wake_var(this.cast_mut().cast()) };
        }
    }

    /// Returns whether there is no holder.
    #[inline]
    pub fn is_none(&self) -> bool {
        // ORDERING: Pairs with the release in `remove`, so the work of all earlier holders is
        // visible.
        self.0.read_acquire() & !AWAITED == 0
    }

    /// Waits until there is no holder. Only one thread may wait at a time. May sleep.
    #[inline]
    pub fn wait(&self) {
        if !self.is_none() {
            self.wait_for_last();
        }
    }

    #[cold]
    fn wait_for_last(&self) {
        // ORDERING: `Full` orders this change before `xprtrdma_wait_value` reads the counter.
        self.0.fetch_add(AWAITED, Full);
        let count = &raw const self.0;
        // CAST: `Atomic<isize>` and `atomic_long_t` both have the layout of a `long`.
        // SAFETY: The counter is valid for the duration of the call.
        unsafe { bindings::xprtrdma_wait_value(count.cast_mut().cast(), AWAITED) };
        // ORDERING: `Relaxed` is enough: the last read in `xprtrdma_wait_value` was an acquire, and
        // no other thread relies on the order of this change.
        self.0.fetch_sub(AWAITED, Relaxed);
    }

    /// Waits until there is no holder, but for at most `span`. Only one thread may wait at a time.
    /// May sleep.
    #[cold]
    pub fn wait_at_most(&self, span: Jiffies) {
        // ORDERING: `Full` orders this change before `xprtrdma_wait_value_timeout` reads the
        // counter.
        self.0.fetch_add(AWAITED, Full);
        let count = &raw const self.0;
        // CAST: `Atomic<isize>` and `atomic_long_t` both have the layout of a `long`.
        // SAFETY: The counter is valid for the duration of the call.
        unsafe {
            bindings::xprtrdma_wait_value_timeout(count.cast_mut().cast(), AWAITED, span.count())
        };
        // ORDERING: `Relaxed` is enough: this change only stops the remaining holders from waking
        // the owner.
        self.0.fetch_sub(AWAITED, Relaxed);
    }

    /// Adds this number of holders to the count.
    #[cfg(xprtrdma_kunit)]
    pub fn add_many(&self, number: isize) {
        self.0.add(number, Relaxed);
    }

    /// Returns whether the owner waits.
    #[cfg(xprtrdma_kunit)]
    pub fn is_awaited(&self) -> bool {
        self.0.load(Relaxed) & AWAITED != 0
    }
}
