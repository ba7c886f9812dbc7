// SPDX-License-Identifier: GPL-2.0

//! The global variable that refers to the driver. The module has one transport, and so one driver.

use core::{
    mem::ManuallyDrop,
    ptr,
    sync::atomic::{
        AtomicPtr,
        Ordering::{
            Acquire,
            Release, //
        }, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// A reference to the driver, made with [`Arc::into_raw`]. Valid while the transport is registered.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Stores the driver of the transport.
pub(crate) fn set<T>(driver: Arc<T>) {
    // ORDERING: Pairs with the acquire in `get`.
    DRIVER.store(Arc::into_raw(driver).cast_mut().cast(), Release);
}

/// Returns the driver.
///
/// # Safety
///
/// [`set`] was called with this type, and [`take_back`] was not called since then.
pub(crate) unsafe fn get<T>() -> Arc<T> {
    // ORDERING: Pairs with the release in `set`.
    let raw: *const T = DRIVER.load(Acquire).cast_const().cast();
    // SAFETY: By this function's contract `set` stored a pointer of this type. `ManuallyDrop`
    // leaves the stored reference in place.
    let kept = ManuallyDrop::new(unsafe { Arc::from_raw(raw) });
    Arc::clone(&kept)
}

/// Takes the reference to the driver out of the global variable.
///
/// # Safety
///
/// [`set`] was called with this type. This function is called only once, and [`get`] is not called
/// afterwards.
pub(crate) unsafe fn take_back<T>() -> Arc<T> {
    // ORDERING: Pairs with the release in `set`.
    let raw: *const T = DRIVER.load(Acquire).cast_const().cast();
    // SAFETY: By this function's contract `set` stored a pointer of this type, and nothing uses the
    // pointer after this call.
    unsafe { Arc::from_raw(raw) }
}
