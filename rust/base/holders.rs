// SPDX-License-Identifier: GPL-2.0

//! A count of holders, and the wait for the last of them ([`Holders`]).

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

/// The bit of the count that says that the owner waits. It is more than there can be holders.
const AWAITED: i32 = 1 << 30;

/// Counts the holders of an object that its owner must not end before the last of them is gone.
///
/// A thread that waits says so in the count itself, so that only then a wake-up is paid for. All
/// changes of one atomic variable have one order: either the last holder goes after that and sees
/// that it must wake, or before, and then the owner sees that it need not sleep.
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
pub struct Holders(Atomic<i32>);

impl Holders {
    /// Makes a count of zero.
    #[allow(
        clippy::new_without_default,
        reason = "it is made in constant expressions, where a default cannot be"
    )]
    pub const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts a holder.
    #[inline]
    pub fn add(&self) {
        // ORDERING: The object of a thread that counts itself is kept by other means until then.
        self.0.add(1, Relaxed);
    }

    /// Like [`Holders::add`] for the first holder, without an atomic instruction. `false`: there
    /// are other holders, and nothing was done.
    ///
    /// # Safety
    ///
    /// No other thread adds a holder or waits during the call. If another thread did so before,
    /// that came before the call in the order of this thread's memory.
    #[inline]
    pub unsafe fn add_first(&self) -> bool {
        // While there is no holder no other thread changes the count.
        let first = self.0.read_once() == 0;
        if first {
            self.0.write_once(1);
        }
        first
    }

    /// Like [`Holders::remove`] for the only holder, without an atomic instruction. `false`: there
    /// are other holders, and nothing was done.
    ///
    /// # Safety
    ///
    /// The caller is counted. During the call no thread waits, and none adds a holder but with
    /// [`Holders::add_first`], which does nothing then.
    #[inline]
    pub unsafe fn remove_only(&self) -> bool {
        // Only the caller is counted then, so no other thread changes the count.
        // ORDERING: What other holders did before they went, and the caller did, comes before
        // whatever the end lets happen. A thread that waits later looks first, with an acquire.
        let only = self.0.read_acquire() == 1;
        if only {
            self.0.write_release(0);
        }
        only
    }

    /// Stops counting a holder, and wakes the owner if this was the last holder that it waits for.
    ///
    /// # Safety
    ///
    /// `this` is valid and counts the caller; it may end during the call.
    #[inline]
    pub unsafe fn remove(this: *const Self) {
        // ORDERING: `Full` orders the holder's work before all that may follow the end, and the
        // count before the look for a sleeping thread.
        // SAFETY: By the caller's contract; the end comes after this.
        if unsafe { (*this).0.fetch_sub(1, Full) } == AWAITED + 1 {
            // SAFETY: Only the address is used, so it does not matter that the count may be gone.
            unsafe { bindings::xprtrdma_wake_var(this.cast_mut().cast()) };
        }
    }

    /// Whether there is no holder.
    #[inline]
    pub fn is_none(&self) -> bool {
        // ORDERING: Pairs with the release in `remove`.
        self.0.read_acquire() & !AWAITED == 0
    }

    /// Waits until there is no holder; one thread at a time. Sleeps.
    #[inline]
    pub fn wait(&self) {
        if !self.is_none() {
            self.wait_for_last();
        }
    }

    #[cold]
    fn wait_for_last(&self) {
        // ORDERING: `Full` orders this before the callee's look at the count.
        self.0.fetch_add(AWAITED, Full);
        let count = &raw const self.0;
        // CAST: `Atomic<i32>` and `atomic_t` are both one `int`.
        // SAFETY: The count is valid for the duration of the call.
        unsafe { bindings::xprtrdma_wait_value(count.cast_mut().cast(), AWAITED) };
        // ORDERING: The callee ended with an acquiring look; no other thread reads it.
        self.0.fetch_sub(AWAITED, Relaxed);
    }

    /// Like [`Holders::wait`], but for at most `span`.
    #[cold]
    pub fn wait_at_most(&self, span: Jiffies) {
        // ORDERING: As in `wait_for_last`.
        self.0.fetch_add(AWAITED, Full);
        let count = &raw const self.0;
        // CAST: As in `wait_for_last`.
        // SAFETY: The count is valid for the duration of the call.
        unsafe {
            bindings::xprtrdma_wait_value_timeout(count.cast_mut().cast(), AWAITED, span.count())
        };
        // ORDERING: As in `wait_for_last`. The remaining holders wake no thread from here on.
        self.0.fetch_sub(AWAITED, Relaxed);
    }

    /// Whether the owner waits.
    #[cfg(xprtrdma_kunit)]
    pub fn is_awaited(&self) -> bool {
        self.0.load(Relaxed) & AWAITED != 0
    }
}
