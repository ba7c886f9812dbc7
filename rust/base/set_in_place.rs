// SPDX-License-Identifier: GPL-2.0

//! A static object that is initialised in its place ([`SetInPlace`]).

use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Full,
        Release, //
    },
};

/// Does what [`kernel::sync::SetOnce`] does for a static object that must not move, such as a lock.
///
/// The object is never dropped.
///
/// # Invariants
///
/// - `called` is set before the only thread that initialises `value` begins.
/// - If `done` is set, `value` is initialised and does not move.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// use xprtrdma_base::{new_spinlock, set_in_place::SetInPlace, spin::SpinLock};
///
/// static COUNT: SetInPlace<SpinLock<u32>> = SetInPlace::new();
///
/// assert!(COUNT.get().is_none());
/// COUNT.set(new_spinlock!(1, "COUNT"))?;
/// assert_eq!(*COUNT.set(new_spinlock!(2, "COUNT"))?.lock(), 1);
/// assert_eq!(COUNT.get().map(|count| *count.lock()), Some(1));
/// # Ok::<(), Error>(())
/// ```
pub struct SetInPlace<T> {
    called: Atomic<bool>,
    done: Atomic<bool>,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: All threads share the object, and the thread that initialises the object may differ from
// the others. `T` is `Sync` and `Send`.
unsafe impl<T: Send + Sync> Sync for SetInPlace<T> {}

impl<T> SetInPlace<T> {
    /// Makes a place for an object that is not initialised.
    #[expect(clippy::new_without_default, reason = "a static object has no default")]
    pub const fn new() -> Self {
        // INVARIANT: No thread initialises the object, and `done` is not set.
        Self {
            called: Atomic::new(false),
            done: Atomic::new(false),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Initialises the object unless it is initialised, and returns it. Returns `EBUSY` while
    /// another caller is still initialising the object.
    pub fn set(&'static self, value: impl PinInit<T>) -> Result<&'static T> {
        // INVARIANT: Only the first caller continues.
        if !self.called.xchg(true, Full) {
            // SAFETY: By the type invariant only this thread initialises the object, and only once.
            // No other reference to the place exists before `done` is set, and `place` is not used
            // afterwards.
            let place = unsafe { &mut *self.value.get() };
            // An initialiser with the error type `Infallible` does not fail.
            let Ok(_) = place.write_pin_init(value);
            // INVARIANT: The object is initialised. It is static and so does not move.
            // ORDERING: Pairs with the acquire in `get`, so that a thread that sees the flag sees
            // the object.
            self.done.store(true, Release);
        }
        self.get().ok_or(EBUSY)
    }

    /// Returns the object, or `None` if it is not initialised.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        // ORDERING: Pairs with the release in `set`.
        if !self.done.load(Acquire) {
            return None;
        }
        // SAFETY: By the type invariant the object is initialised. From now on only shared
        // references to it exist.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
