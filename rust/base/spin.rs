// SPDX-License-Identifier: GPL-2.0

//! A spin lock like that of the kernel crate ([`SpinLock`]). In a kernel without lockdep, this lock
//! makes no calls for lockdep.

use kernel::{
    bindings,
    ffi::c_char,
    sync::lock::{
        spinlock::SpinLockBackend,
        Backend,
        Guard,
        Lock, //
    },
};

/// Does what [`kernel::sync::SpinLock`] does. In a kernel without lockdep it skips the empty
/// lockdep functions, which saves time because every RPC takes several locks.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::{new_spinlock, spin::{Spin, SpinLock}};
/// #[pin_data]
/// struct Counter {
///     #[pin]
///     count: SpinLock<u32>,
/// }
///
/// let counter = Arc::pin_init(
///     pin_init!(Counter { count <- new_spinlock!(0, "Counter::count") }),
///     GFP_KERNEL,
/// )?;
/// *counter.count.lock() += 1;
/// # Ok::<(), Error>(())
/// ```
pub type SpinLock<T> = Lock<T, Spin>;

/// The guard that [`SpinLock::lock`] returns.
pub type SpinLockGuard<'a, T> = Guard<'a, T, Spin>;

/// The backend of a [`SpinLock`].
pub struct Spin;

// SAFETY: `SpinLockBackend` does all the work and fulfils the contract of `Backend`.
unsafe impl Backend for Spin {
    type State = <SpinLockBackend as Backend>::State;
    type GuardState = <SpinLockBackend as Backend>::GuardState;

    #[inline]
    unsafe fn init(ptr: *mut Self::State, name: *const c_char, key: *mut bindings::lock_class_key) {
        // SAFETY: The callee has the same contract as this function.
        unsafe { SpinLockBackend::init(ptr, name, key) }
    }

    #[inline]
    unsafe fn lock(ptr: *mut Self::State) -> Self::GuardState {
        // SAFETY: The callee has the same contract as this function.
        unsafe { SpinLockBackend::lock(ptr) }
    }

    #[inline]
    unsafe fn try_lock(ptr: *mut Self::State) -> Option<Self::GuardState> {
        // SAFETY: The callee has the same contract as this function.
        unsafe { SpinLockBackend::try_lock(ptr) }
    }

    #[inline]
    unsafe fn unlock(ptr: *mut Self::State, guard_state: &Self::GuardState) {
        // SAFETY: The callee has the same contract as this function.
        unsafe { SpinLockBackend::unlock(ptr, guard_state) }
    }

    #[inline]
    unsafe fn assert_is_held(ptr: *mut Self::State) {
        if cfg!(CONFIG_LOCKDEP) {
            // SAFETY: The callee has the same contract as this function.
            unsafe { SpinLockBackend::assert_is_held(ptr) }
        }
    }
}

/// Makes an initialiser of a [`SpinLock`]. Each use of this macro creates a separate lock class.
#[macro_export]
macro_rules! new_spinlock {
    ($inner:expr, $name:literal) => {
        $crate::spin::SpinLock::new(
            $inner,
            ::kernel::c_str!($name),
            ::kernel::static_lock_class!(),
        )
    };
}
