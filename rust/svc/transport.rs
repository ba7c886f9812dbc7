// SPDX-License-Identifier: GPL-2.0

//! A transport of ours as the RPC server knows it, with the driver's part behind it
//! ([`SvcXprt`]).

use core::{
    mem::MaybeUninit,
    net::SocketAddr,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    types::Opaque, //
};
use xprtrdma_base::net::with_raw;
use xprtrdma_bindings as bindings;

/// A listener or a connection.
///
/// # Invariants
///
/// `raw` was initialised by `svc_xprt_init`, and is the first member.
#[repr(C)]
pub(crate) struct SvcXprt<T> {
    raw: Opaque<bindings::svc_xprt>,
    inner: T,
}

/// Memory for a [`SvcXprt`]: what is made with it cannot fail.
pub(crate) struct Place<T>(KBox<MaybeUninit<SvcXprt<T>>>);

impl<T> Place<T> {
    /// Allocates the memory. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KBox::new_uninit(GFP_KERNEL)?))
    }

    /// Makes a transport of the namespace and the service, with the given operations, and leaves it
    /// to the RPC server, which frees it by [`SvcXprt::free`]. It is busy until the server has it.
    ///
    /// # Safety
    ///
    /// `net` and `serv` are valid. The caller gives the result to the RPC server, after `ops` may
    /// be called for `T`. The caller has a reference to this module that goes with the transport.
    pub(crate) unsafe fn make(
        self,
        net: *mut bindings::net,
        serv: *mut bindings::svc_serv,
        ops: &'static bindings::svc_xprt_ops,
        local: &SocketAddr,
        inner: T,
    ) -> NonNull<bindings::svc_xprt> {
        let place: *mut SvcXprt<T> = KBox::into_raw(self.0).cast();
        // SAFETY: The memory was allocated for this type, and nothing else uses it.
        unsafe { (&raw mut (*place).inner).write(inner) };
        // SAFETY: As above; `Opaque` is transparent.
        let raw: *mut bindings::svc_xprt = unsafe { (&raw mut (*place).raw).cast() };
        // SAFETY: The callee initialises all of it. The class is a static object, the rest is valid
        // by this function's contract.
        unsafe { bindings::svc_xprt_init(net, &raw mut bindings::svcrdma_class, raw, serv) };
        // SAFETY: Initialised just now, and nothing else knows it yet.
        unsafe { (*raw).xpt_ops = ops };
        // SAFETY: As above; the address is one of an IP family.
        with_raw(local, |addr| unsafe {
            bindings::svcrdma_set_local(raw, addr)
        });
        // SAFETY: A pointer into an allocation.
        unsafe { NonNull::new_unchecked(raw) }
    }
}

impl<T> SvcXprt<T> {
    /// Returns the driver's part of a transport.
    ///
    /// # Safety
    ///
    /// `raw` was made by [`Place<T>::make`] and is not freed for all of `'a`.
    pub(crate) unsafe fn inner<'a>(raw: *mut bindings::svc_xprt) -> &'a T {
        // SAFETY: By this function's contract; `raw` is the first member.
        unsafe { &(*raw.cast::<Self>()).inner }
    }

    /// Frees a transport.
    ///
    /// # Safety
    ///
    /// `raw` was made by [`Place<T>::make`], and nothing uses it any more.
    pub(crate) unsafe fn free(raw: *mut bindings::svc_xprt) {
        // SAFETY: By this function's contract; made from such a box, and complete.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }
}
