// SPDX-License-Identifier: GPL-2.0

//! The driver of the module's one transport.

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

/// A reference to the driver, made with [`Arc::into_raw`], while the transport is registered.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Makes this the driver of the transport.
pub(crate) fn set<T>(driver: Arc<T>) {
    // ORDERING: Pairs with the acquire in `get`.
    DRIVER.store(Arc::into_raw(driver).cast_mut().cast(), Release);
}

/// Returns the driver.
///
/// # Safety
///
/// It was set for this type, and has not been taken back.
pub(crate) unsafe fn get<T>() -> Arc<T> {
    // ORDERING: Pairs with the release in `set`.
    let raw: *const T = DRIVER.load(Acquire).cast_const().cast();
    // SAFETY: By this function's contract; the reference stays where it is.
    let kept = ManuallyDrop::new(unsafe { Arc::from_raw(raw) });
    Arc::clone(&kept)
}

/// Takes the driver back.
///
/// # Safety
///
/// It was set for this type, and is taken back once; [`get`] is not called any more.
pub(crate) unsafe fn take_back<T>() -> Arc<T> {
    // ORDERING: As in `get`.
    let raw: *const T = DRIVER.load(Acquire).cast_const().cast();
    // SAFETY: By this function's contract.
    unsafe { Arc::from_raw(raw) }
}
