// SPDX-License-Identifier: GPL-2.0

//! A transport of the RPC server that contains an object of the driver ([`SvcXprt`]).

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

/// A listener or a connection: a transport of the RPC server and the driver's object.
///
/// # Invariants
///
/// `raw` was initialised by `svc_xprt_init`, and is the first member.
#[repr(C)]
pub(crate) struct SvcXprt<T> {
    raw: Opaque<bindings::svc_xprt>,
    inner: T,
}

/// Memory for a [`SvcXprt`]. The memory is allocated in advance, so that later steps cannot fail.
pub(crate) struct Place<T>(KBox<MaybeUninit<SvcXprt<T>>>);

impl<T> Place<T> {
    /// Allocates the memory. May sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KBox::new_uninit(GFP_KERNEL)?))
    }

    /// Creates a transport for `serv` in the namespace `net`, with the operations `ops`. The RPC
    /// server must free the transport with [`SvcXprt::free`]. The flag `XPT_BUSY` of the transport
    /// stays set until the RPC server has received the transport.
    ///
    /// # Safety
    ///
    /// `net` and `serv` are valid. The operations in `ops` may be called for a transport that
    /// contains a `T`. The caller passes the result to the RPC server. A reference to this module
    /// was taken for the transport, and belongs to the transport from now on.
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
        // SAFETY: The memory was allocated for this type, and nothing else uses it. `Opaque` is
        // transparent.
        let raw: *mut bindings::svc_xprt = unsafe { (&raw mut (*place).raw).cast() };
        // SAFETY: The called function initialises all fields. The class is a static object, and the
        // other arguments are valid by this function's contract.
        unsafe { bindings::svc_xprt_init(net, &raw mut bindings::svcrdma_class, raw, serv) };
        // SAFETY: The transport was initialised above, and no other code has it yet.
        unsafe { (*raw).xpt_ops = ops };
        // SAFETY: No other code has the transport yet. The address is an IPv4 or IPv6 address.
        with_raw(local, |addr| unsafe {
            bindings::svcrdma_set_local(raw, addr)
        });
        // SAFETY: The pointer refers to an allocated object, so it is not null.
        unsafe { NonNull::new_unchecked(raw) }
    }
}

impl<T> SvcXprt<T> {
    /// Returns the driver's object in a transport.
    ///
    /// # Safety
    ///
    /// [`Place<T>::make`] created `raw`, which is not freed during `'a`.
    pub(crate) unsafe fn inner<'a>(raw: *mut bindings::svc_xprt) -> &'a T {
        // SAFETY: By this function's contract `make` created the transport. `raw` is its first
        // member.
        unsafe { &(*raw.cast::<Self>()).inner }
    }

    /// Frees a transport.
    ///
    /// # Safety
    ///
    /// [`Place<T>::make`] created `raw`, and nothing uses it any more.
    pub(crate) unsafe fn free(raw: *mut bindings::svc_xprt) {
        // SAFETY: By this function's contract the memory comes from a `KBox` and is initialised.
        drop(unsafe { KBox::from_raw(raw.cast::<Self>()) });
    }
}
