// SPDX-License-Identifier: GPL-2.0

//! The transport class, which is registered while a [`Registration`] exists, and the creation of
//! transports.

use crate::{
    common::{
        self,
        Common, //
    },
    ops::Ops,
    slot::Pool,
    transport::{
        Create,
        Transport, //
    },
    xids::Xids,
    xprt::{
        address::{
            free_strings,
            set_strings, //
        },
        Inner,
        SendLock,
        Xprt, //
    },
};
use core::{
    marker::PhantomData,
    mem::{
        align_of,
        MaybeUninit, //
    },
    ptr::{self, NonNull}, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc,
    types::ScopeGuard, //
};
use xprtrdma_base::{
    compat,
    net::addr_from_raw,
    time::Jiffies,
    unloading, //
};
use xprtrdma_bindings as bindings;

/// The registration of driver `T` as the module's only transport class.
///
/// Transports may exist as soon as this object exists. So creating it must be the last step of
/// loading the module that can fail, and it must be dropped only when the module is unloaded. If
/// this object is dropped earlier, the drop logs a warning and sleeps for ever.
///
/// # Invariants
///
/// The class is registered while the value exists.
pub struct Registration<T: Transport> {
    // Rust drops this field after `drop` has unregistered the class. So the shared state exists as
    // long as the class.
    common: common::Owner,
    _driver: PhantomData<T>,
}

impl<T: Transport> Registration<T> {
    /// Registers the class "rdma" (ident 256, netids `rdma` and `rdma6`) for driver `T`.
    ///
    /// Returns `EEXIST` if another module owns the class. May sleep.
    ///
    /// Registers the [settings](crate::settings) of the network namespaces as well. Their initial
    /// values are the module's parameters, which the caller must have checked with
    /// [`check_parameters`](crate::settings::check_parameters).
    pub fn new() -> Result<Self> {
        let common = common::Owner::new::<T>()?;
        let class = &raw mut bindings::xprtrdma_class;
        // SAFETY: The class belongs to this module. If the class is not registered, no other thread
        // uses it. If it is registered already, this store does not change the value of `setup`,
        // and the registration below fails with `EEXIST`.
        unsafe { (*class).setup = Some(setup::<T>) };
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::xprt_register_transport(class) })?;
        // INVARIANT: The class was registered above.
        Ok(Self {
            common,
            _driver: PhantomData,
        })
    }

    /// Returns the state that the transports of the class share.
    pub fn common(&self) -> &Arc<Common> {
        self.common.common()
    }
}

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        unloading::begin();
        // SAFETY: By the type invariant, the class is registered. Transports hold references to the
        // module, which is being unloaded, so no transport exists.
        unsafe { bindings::xprt_unregister_transport(&raw mut bindings::xprtrdma_class) };
    }
}

/// # Safety
///
/// Called by the RPC client only, as `xprt_class::setup`.
unsafe extern "C" fn setup<T: Transport>(
    args: *mut bindings::xprt_create,
) -> *mut bindings::rpc_xprt {
    // SAFETY: The RPC client passes valid arguments.
    match unsafe { try_setup::<T>(&*args) } {
        Ok(xprt) => xprt,
        Err(e) => e.to_ptr(),
    }
}

/// Creates a transport. May sleep.
///
/// # Safety
///
/// `args` comes from the RPC client.
unsafe fn try_setup<T: Transport>(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
    const_assert!(align_of::<Xprt<T>>() <= 8);

    if args.addrlen > size_of::<bindings::__kernel_sockaddr_storage>() {
        return Err(EBADF);
    }
    // SAFETY: The RPC client passes an address that is valid for `addrlen` bytes.
    let Some(peer) = (unsafe { addr_from_raw(args.dstaddr) }) else {
        // LOG: The mount has requested a kind of address that this transport does not support.
        pr_err!("only IPv4 and IPv6 servers are supported\n");
        return Err(Error::from_errno(compat::EAFNOSUPPORT));
    };
    let wish = |jiffies: usize| (jiffies != 0).then(|| Jiffies(jiffies).as_ms());
    let create = Create {
        peer,
        connect_timeout_ms: wish(args.connect_timeout),
        reconnect_timeout_ms: wish(args.reconnect_timeout),
        keep_idle: args.flags & bindings::XPRT_CREATE_NO_IDLE_TIMEOUT != 0,
    };
    let limits = T::limits(&create)?;
    let common = common::get()?;
    let ms = |ms: u32| Jiffies::from_ms(ms).count();
    let timeout = bindings::rpc_timeout {
        to_initval: ms(limits.rpc_timeout_ms),
        to_maxval: ms(limits.rpc_timeout_ms),
        ..Default::default()
    };

    // SAFETY: The namespace is valid. The memory is zeroed and freed by `xprt_free`.
    let raw =
        unsafe { bindings::xprt_alloc(args.net, size_of::<Xprt<T>>(), 0, limits.slots.into()) };
    let raw = NonNull::new(raw).ok_or(ENOMEM)?.as_ptr();
    let guard = ScopeGuard::new(move || {
        // SAFETY: No other code has the transport yet. Its address strings are null or were
        // allocated by `set_strings`.
        unsafe {
            free_strings(raw);
            bindings::xprt_free(raw);
        }
    });

    // SAFETY: `raw` was allocated above. An IPv4 or IPv6 address fits into the address field of the
    // transport.
    unsafe {
        let xprt = &mut *raw;
        ptr::copy_nonoverlapping(
            args.dstaddr.cast::<u8>(),
            (&raw mut xprt.addr).cast::<u8>(),
            args.addrlen.min(size_of_val(&xprt.addr)),
        );
        xprt.addrlen = args.addrlen;
        xprt.ops = &Ops::<T>::OPS;
        xprt.xprt_class = &raw const bindings::xprtrdma_class;
        // The kernel's NFS lock manager reads the field `prot`, and chooses its own transport
        // protocol by the value.
        xprt.prot = compat::IPPROTO_TCP;
        xprt.max_payload = limits.max_payload;
        xprt.bind_timeout = ms(60_000);
        xprt.reestablish_timeout = ms(5_000);
        // No idle timeout is set. Instead, drivers check `Xprt::unused` from time to time. With an
        // idle timeout, the RPC client would start a timer whenever no call is in flight any more,
        // and stop the timer at the next call.
        xprt.idle_timeout = 0;
        xprt.connect_timeout = ms(limits.connect_timeout_ms);
        xprt.max_reconnect_timeout = ms(limits.reconnect_timeout_ms);
        set_strings(raw, &peer)?;
        if peer.port() != 0 {
            bindings::xprtrdma_xprt_set_bound(raw);
        }
    }

    // SAFETY: `raw` was allocated above. `inner` is uninitialised memory of the right type, and no
    // other thread can access it. The `'static` reference is used only in this block, in which the
    // memory is valid.
    unsafe {
        let inner = &raw mut (*raw.cast::<Xprt<T>>()).inner;
        let place: &'static mut MaybeUninit<Inner<T>> = &mut *inner.cast();
        let init = Inner::<T>::new(
            timeout,
            T::Locked::default(),
            T::new(&create, &common),
            (Pool::new(limits.slots)?, Xids::new(&mut (*raw).xid)?),
            common.clone(),
        );
        place.write_pin_init(init)?;
        (*raw).timeout = (*inner).timeout.get();
    }
    // SAFETY: All fields of the transport are initialised.
    let xprt = unsafe { Xprt::<T>::from_raw(NonNull::new_unchecked(raw)) };
    let inner_guard = ScopeGuard::new(move || {
        // SAFETY: No other thread knows the transport yet.
        T::stop(&mut unsafe { SendLock::new(xprt) });
        xprt.wait_for_back_refs();
        // SAFETY: `inner` was initialised above. It is dropped once, and no reference to it is
        // left.
        unsafe { ptr::drop_in_place(&raw mut (*raw.cast::<Xprt<T>>()).inner) };
    });
    T::start(xprt)?;
    // SAFETY: The class names this module as its owner.
    if !unsafe { kernel::bindings::try_module_get(bindings::xprtrdma_class.owner) } {
        return Err(ENODEV);
    }
    inner_guard.dismiss();
    guard.dismiss();
    Ok(raw)
}
