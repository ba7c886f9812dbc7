// SPDX-License-Identifier: GPL-2.0

//! `READ_ONCE()` and `WRITE_ONCE()` of what is atomic ([`AccessOnce`]).

use kernel::sync::atomic::Atomic;

/// Loads and stores that order nothing, inlined.
///
/// They do what `load(Relaxed)` and `store(.., Relaxed)` do. Those call a C helper unless the kernel
/// was built with LLVM, five instructions for each where one suffices, and a call takes fifteen.
pub trait AccessOnce<T> {
    /// `READ_ONCE()`.
    fn read_once(&self) -> T;

    /// `WRITE_ONCE()`.
    fn write_once(&self, value: T);
}

macro_rules! access_once {
    ($($type:ty),*) => {$(
        impl AccessOnce<$type> for Atomic<$type> {
            #[inline(always)]
            fn read_once(&self) -> $type {
                // SAFETY: Valid and aligned, as `as_ptr` guarantees. All other accesses are atomic or
                // volatile, and so is this one: volatile, and no wider than a word.
                unsafe { self.as_ptr().read_volatile() }
            }

            #[inline(always)]
            fn write_once(&self, value: $type) {
                // SAFETY: As above.
                unsafe { self.as_ptr().write_volatile(value) }
            }
        }
    )*};
}

access_once!(bool, i32, u32, usize);
