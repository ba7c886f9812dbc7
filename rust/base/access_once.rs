// SPDX-License-Identifier: GPL-2.0

//! Inlined `READ_ONCE()`, `WRITE_ONCE()`, `smp_load_acquire()` and `smp_store_release()` for atomic
//! variables ([`AccessOnce`]).

use core::sync::atomic::{
    AtomicBool,
    AtomicI32,
    AtomicIsize,
    AtomicU32,
    AtomicUsize,
    Ordering, //
};
use kernel::sync::atomic::Atomic;

/// Inlined loads and stores of atomic variables.
///
/// They do what `load(Relaxed)`, `store(.., Relaxed)`, `load(Acquire)` and `store(.., Release)` do.
/// The kernel's own methods call a C helper, unless the kernel was built with LLVM. A call of the
/// helper takes five instructions instead of one, and the caller must save its registers. This
/// matters, because an RPC makes fifteen relaxed accesses and five acquire loads.
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
    /// Loads the value, as `READ_ONCE()` does.
    fn read_once(&self) -> T;

    /// Stores a value, as `WRITE_ONCE()` does.
    fn write_once(&self, value: T);

    /// Loads the value, as `smp_load_acquire()` does.
    fn read_acquire(&self) -> T;

    /// Stores a value, as `smp_store_release()` does.
    fn write_release(&self, value: T);
}

macro_rules! access_once {
    ($($type:ty => $core:ty),* $(,)?) => {$(
        impl AccessOnce<$type> for Atomic<$type> {
            #[inline(always)]
            fn read_once(&self) -> $type {
                // SAFETY: `as_ptr` guarantees a valid and aligned pointer. All accesses to the
                // variable are atomic or volatile; this access is volatile and no wider than a
                // word.
                unsafe { self.as_ptr().read_volatile() }
            }

            #[inline(always)]
            fn write_once(&self, value: $type) {
                // SAFETY: `as_ptr` guarantees a valid and aligned pointer. All accesses to the
                // variable are atomic or volatile; this access is volatile and no wider than a
                // word.
                unsafe { self.as_ptr().write_volatile(value) }
            }

            // ORDERING: Accesses that follow an acquire load in program order take place after the
            // load. This is true in the memory models of Rust and of the kernel. The load compiles
            // to the same instruction as `smp_load_acquire()`.
            #[inline(always)]
            fn read_acquire(&self) -> $type {
                // SAFETY: `as_ptr` guarantees a valid and aligned pointer. The atomic types of the
                // kernel crate and of `core` have the layout of the plain type.
                unsafe { <$core>::from_ptr(self.as_ptr()) }.load(Ordering::Acquire)
            }

            // ORDERING: Accesses that precede a release store in program order take place before
            // the store. This is true in the memory models of Rust and of the kernel.
            #[inline(always)]
            fn write_release(&self, value: $type) {
                // SAFETY: `as_ptr` guarantees a valid and aligned pointer. The atomic types of the
                // kernel crate and of `core` have the layout of the plain type.
                unsafe { <$core>::from_ptr(self.as_ptr()) }.store(value, Ordering::Release)
            }
        }
    )*};
}

access_once!(
    bool => AtomicBool,
    i32 => AtomicI32,
    u32 => AtomicU32,
    isize => AtomicIsize,
    usize => AtomicUsize,
);
