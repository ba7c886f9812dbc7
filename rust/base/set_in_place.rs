// SPDX-License-Identifier: GPL-2.0

//! A static object that is initialised in its place ([`SetInPlace`]).

use crate::init_once::InitOnce;
use core::{
    cell::UnsafeCell,
    mem::MaybeUninit, //
};
use kernel::prelude::*;

/// Does what [`kernel::sync::SetOnce`] does for a static object that must not move, such as a lock.
///
/// The object is never dropped.
///
/// # Invariants
///
/// If `ready` is done, `value` is initialised and does not move.
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
/// COUNT.set(new_spinlock!(2, "COUNT"))?;
/// assert_eq!(COUNT.get().map(|count| *count.lock()), Some(1));
/// # Ok::<(), Error>(())
/// ```
pub struct SetInPlace<T> {
    ready: InitOnce,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: All threads share the object, and the thread that initialises the object may differ from
// the others. `T` is `Sync` and `Send`.
unsafe impl<T: Send + Sync> Sync for SetInPlace<T> {}

impl<T> SetInPlace<T> {
    /// Makes a place for an object that is not initialised.
    #[expect(clippy::new_without_default, reason = "a static object has no default")]
    pub const fn new() -> Self {
        // INVARIANT: `ready` is not done.
        Self {
            ready: InitOnce::new(),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    /// Initialises the object unless it is initialised. Returns `EBUSY` while another caller is
    /// still initialising the object.
    pub fn set(&'static self, value: impl PinInit<T>) -> Result {
        // INVARIANT: The closure initialises the object, which is static and so does not move. An
        // initialiser with the error type `Infallible` does not fail.
        self.ready.call(|| {
            // SAFETY: `ready` runs this closure only once. No other reference to the place exists
            // before `ready` is done, and `place` is not used afterwards.
            let place = unsafe { &mut *self.value.get() };
            let Ok(_) = place.write_pin_init(value);
        })
    }

    /// Returns the object, or `None` if it is not initialised.
    #[inline]
    pub fn get(&'static self) -> Option<&'static T> {
        if !self.ready.is_done() {
            return None;
        }
        // SAFETY: By the type invariant the object is initialised. From now on only shared
        // references to it exist.
        Some(unsafe { (*self.value.get()).assume_init_ref() })
    }
}
