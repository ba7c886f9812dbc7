// SPDX-License-Identifier: GPL-2.0

//! A transport class, registered while a [`Registration`] lives; creation and destruction of
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
    xprt::{
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
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::{self, NonNull}, //
};
use kernel::{
    error::to_result,
    fmt,
    prelude::*,
    str::CString,
    sync::Arc,
    types::ScopeGuard, //
};
use xprtrdma_base::{
    compat,
    log::Show,
    net::addr_from_raw,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// The registration of the module's one transport class, for driver `T`.
///
/// # Invariants
///
/// The class is registered while the value exists.
pub struct Registration<T: Transport> {
    // Dropped after the class is unregistered.
    common: common::Owner,
    _driver: PhantomData<T>,
}

impl<T: Transport> Registration<T> {
    /// Registers the class "rdma" (ident 256, netids `rdma` and `rdma6`) for driver `T`.
    ///
    /// `EEXIST`: another module owns the class. May sleep.
    pub fn new() -> Result<Self> {
        let common = common::Owner::new()?;
        let class = &raw mut bindings::xprtrdma_class;
        // SAFETY: The class belongs to this module and is not registered: a second registration
        // of it fails with `EEXIST` before anything is changed but this same pointer.
        unsafe { (*class).setup = Some(setup::<T>) };
        // SAFETY: The class is a complete static object.
        to_result(unsafe { bindings::xprt_register_transport(class) })?;
        // INVARIANT: Registered just now.
        Ok(Self {
            common,
            _driver: PhantomData,
        })
    }

    /// What the transports of the class share.
    pub fn common(&self) -> &Arc<Common> {
        self.common.common()
    }
}

impl<T: Transport> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. Transports hold references to the module, so
        // none exists when it is unloaded.
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

/// Makes a transport. May sleep.
///
/// # Safety
///
/// `args` comes from the RPC client.
unsafe fn try_setup<T: Transport>(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
    const_assert!(align_of::<Xprt<T>>() <= 8);

    // SAFETY: The destination address is valid for `addrlen` octets.
    let Some(peer) = (unsafe { addr_from_raw(args.dstaddr) }) else {
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
        // SAFETY: Not yet given away; its address strings are null or ours.
        unsafe {
            free_strings(raw);
            bindings::xprt_free(raw);
        }
    });

    // SAFETY: `raw` is our allocation. The address fits, for it is one of an IP family.
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
        // Lock managers look at this to choose the transport of their side protocol.
        xprt.prot = compat::IPPROTO_TCP;
        xprt.max_payload = limits.max_payload;
        xprt.bind_timeout = ms(60_000);
        xprt.reestablish_timeout = ms(5_000);
        // The RPC client would set a timer with each lone call and stop it with the next. Drivers look
        // at `Xprt::unused` from time to time.
        xprt.idle_timeout = 0;
        xprt.connect_timeout = ms(limits.connect_timeout_ms);
        xprt.max_reconnect_timeout = ms(limits.reconnect_timeout_ms);
        set_strings(raw, &peer)?;
        if peer.port() != 0 {
            bindings::xprtrdma_xprt_set_bound(raw);
        }
    }

    // SAFETY: As above; `inner` is uninitialised memory of its type, reached by nobody else, and
    // `place` is used up here, long before the memory goes.
    unsafe {
        let inner = &raw mut (*raw.cast::<Xprt<T>>()).inner;
        let place: &'static mut MaybeUninit<Inner<T>> = &mut *inner.cast();
        let init = Inner::<T>::new(
            timeout,
            T::Locked::default(),
            T::new(&create, &common),
            Pool::new(limits.slots)?,
            common.clone(),
        );
        place.write_pin_init(init)?;
        (*raw).timeout = (*inner).timeout.get();
    }
    // SAFETY: Everything is initialised.
    let xprt = unsafe { Xprt::<T>::from_raw(NonNull::new_unchecked(raw)) };
    let inner_guard = ScopeGuard::new(move || {
        // SAFETY: Nobody else knows the transport yet.
        T::stop(&mut unsafe { SendLock::new(xprt) });
        xprt.wait_for_back_refs();
        // SAFETY: Initialised above, dropped once, no reference is left.
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

/// Ends a transport. Sleeps.
///
/// # Safety
///
/// Called once as `rpc_xprt_ops::destroy` for a transport made by [`setup`].
pub(crate) unsafe fn destroy<T: Transport>(raw: *mut bindings::rpc_xprt) {
    // SAFETY: By the caller's contract.
    let xprt = unsafe { Xprt::<T>::from_raw(NonNull::new_unchecked(raw)) };
    // SAFETY: The RPC client holds the send lock for good.
    T::stop(&mut unsafe { SendLock::new(xprt) });
    xprt.wait_for_back_refs();
    // Readers that found the transport through a client under RCU may still be in
    // `Transport::callback_size`.
    // SAFETY: This is process context.
    unsafe { kernel::bindings::synchronize_rcu() };
    // SAFETY: Initialised by `setup`; nobody refers to it any more. The reference to the module is
    // given up last.
    unsafe {
        ptr::drop_in_place(&raw mut (*raw.cast::<Xprt<T>>()).inner);
        free_strings(raw);
        let owner = bindings::xprtrdma_class.owner;
        bindings::xprt_free(raw);
        kernel::bindings::module_put(owner);
    }
}

/// A C string on the heap that `kfree` frees.
fn kstring(text: fmt::Arguments<'_>) -> Result<*const c_char> {
    let text = CString::try_from_fmt(text)?;
    // SAFETY: A C string.
    let copy = unsafe { bindings::xprtrdma_kstrdup(text.as_char_ptr()) };
    NonNull::new(copy)
        .map(|p| p.as_ptr().cast_const())
        .ok_or(ENOMEM)
}

/// The RPC client's names of the addresses of a transport.
///
/// # Safety
///
/// `raw` is being created.
unsafe fn set_strings(raw: *mut bindings::rpc_xprt, peer: &SocketAddr) -> Result {
    // SAFETY: By the caller's contract.
    let strings = unsafe { &mut (*raw).address_strings };
    let mut set = |which: bindings::rpc_display_format_t, text: *const c_char| {
        if let Some(entry) = strings.get_mut(which as usize) {
            *entry = text;
        }
    };
    let netid = match peer.ip() {
        IpAddr::V4(_) => c"rdma",
        IpAddr::V6(_) => c"rdma6",
    };
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_PROTO,
        c"rdma".as_char_ptr(),
    );
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_NETID,
        netid.as_char_ptr(),
    );
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
        match peer {
            SocketAddr::V6(a) if a.scope_id() != 0 => {
                kstring(fmt!("{}%{}", Show(a.ip()), a.scope_id()))?
            }
            _ => kstring(fmt!("{}", Show(&peer.ip())))?,
        },
    );
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
        match peer.ip() {
            IpAddr::V4(ip) => kstring(fmt!("{:08x}", u32::from(ip)))?,
            IpAddr::V6(ip) => kstring(fmt!("{:032x}", u128::from(ip)))?,
        },
    );
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_PORT,
        kstring(fmt!("{}", peer.port()))?,
    );
    set(
        bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT,
        kstring(fmt!("{:4x}", peer.port()))?,
    );
    Ok(())
}

/// The address strings that [`set_strings`] allocates.
const OWNED_STRINGS: [bindings::rpc_display_format_t; 4] = [
    bindings::rpc_display_format_t_RPC_DISPLAY_ADDR,
    bindings::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR,
    bindings::rpc_display_format_t_RPC_DISPLAY_PORT,
    bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT,
];

/// # Safety
///
/// Nobody reads the strings of `raw` any more.
unsafe fn free_strings(raw: *mut bindings::rpc_xprt) {
    for which in OWNED_STRINGS {
        // SAFETY: By the caller's contract; null or allocated by `kstring`.
        unsafe {
            if let Some(entry) = (*raw).address_strings.get_mut(which as usize) {
                kernel::bindings::kfree(entry.cast());
                *entry = ptr::null();
            }
        }
    }
}

/// Stores the port that rpcbind found.
///
/// # Safety
///
/// Called as `rpc_xprt_ops::set_port`.
pub(crate) unsafe fn set_port(raw: *mut bindings::rpc_xprt, port: u16) {
    let (Ok(text), Ok(hex)) = (kstring(fmt!("{port}")), kstring(fmt!("{port:4x}"))) else {
        return;
    };
    // SAFETY: By the caller's contract the transport is being bound, so nobody connects. Readers of
    // the strings are under RCU, which is why the old ones are freed after a grace period.
    unsafe {
        bindings::xprtrdma_set_port(raw, port);
        let mut old = [
            (bindings::rpc_display_format_t_RPC_DISPLAY_PORT, text),
            (bindings::rpc_display_format_t_RPC_DISPLAY_HEX_PORT, hex),
        ];
        for (which, text) in &mut old {
            if let Some(entry) = (*raw).address_strings.get_mut(*which as usize) {
                core::mem::swap(entry, text);
            }
        }
        kernel::bindings::synchronize_rcu();
        for (_, text) in old {
            kernel::bindings::kfree(text.cast());
        }
    }
}
