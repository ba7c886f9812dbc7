// SPDX-License-Identifier: GPL-2.0

//! `READ_ONCE()`, `WRITE_ONCE()`, `smp_load_acquire()` and `smp_store_release()` for atomic
//! variables ([`AccessOnce`]).

use core::sync::atomic::{
    AtomicBool,
    AtomicI32,
    AtomicU32,
    AtomicUsize,
    Ordering, //
};
use kernel::sync::atomic::Atomic;

/// Loads and stores, inlined.
///
/// They do what `load(Relaxed)`, `store(.., Relaxed)` and `load(Acquire)` do. Those call a C helper
/// unless the kernel was built with LLVM: five instructions where one suffices, and the caller must
/// save its registers. An RPC takes fifteen relaxed accesses and five acquiring loads.
///
/// # Examples
///
/// ```
/// # use kernel::sync::atomic::Atomic;
/// # use xprtrdma_base::access_once::AccessOnce;
/// let ready = Atomic::new(false);
/// ready.write_release(true);
/// assert!(ready.read_acquire());
/// ```
pub trait AccessOnce<T> {
    /// `READ_ONCE()`.
    fn read_once(&self) -> T;

    /// `WRITE_ONCE()`.
    fn write_once(&self, value: T);

    /// `smp_load_acquire()`.
    fn read_acquire(&self) -> T;

    /// `smp_store_release()`.
    fn write_release(&self, value: T);
}

macro_rules! access_once {
    ($($type:ty => $core:ty),* $(,)?) => {$(
        impl AccessOnce<$type> for Atomic<$type> {
            #[inline(always)]
            fn read_once(&self) -> $type {
                // SAFETY: Valid and aligned, as `as_ptr` guarantees. All other accesses are atomic
                // or volatile, and so is this one: volatile, and no wider than a word.
                unsafe { self.as_ptr().read_volatile() }
            }

            #[inline(always)]
            fn write_once(&self, value: $type) {
                // SAFETY: As above.
                unsafe { self.as_ptr().write_volatile(value) }
            }

            // ORDERING: An acquiring load is one in both memory models: accesses that follow in
            // program order come after it. It compiles to the same instruction as the kernel's.
            #[inline(always)]
            fn read_acquire(&self) -> $type {
                // SAFETY: As above; the two atomic types have the layout of the type itself.
                unsafe { <$core>::from_ptr(self.as_ptr()) }.load(Ordering::Acquire)
            }

            // ORDERING: As for an acquiring load.
            #[inline(always)]
            fn write_release(&self, value: $type) {
                // SAFETY: As above.
                unsafe { <$core>::from_ptr(self.as_ptr()) }.store(value, Ordering::Release)
            }
        }
    )*};
}

access_once!(
    bool => AtomicBool,
    i32 => AtomicI32,
    u32 => AtomicU32,
    usize => AtomicUsize,
);
