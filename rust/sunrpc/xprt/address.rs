// SPDX-License-Identifier: GPL-2.0

//! The addresses of a transport, as the RPC client shows them.

use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::{self, NonNull}, //
};
use kernel::{
    fmt,
    prelude::*,
    str::CString, //
};
use xprtrdma_base::log::Show;
use xprtrdma_bindings as bindings;

/// Allocates a C string. The caller must free the string with `kfree`.
fn kstring(text: fmt::Arguments<'_>) -> Result<*const c_char> {
    let text = CString::try_from_fmt(text)?;
    // SAFETY: The pointer points to a C string.
    let copy = unsafe { bindings::xprtrdma_kstrdup(text.as_char_ptr()) };
    NonNull::new(copy)
        .map(|p| p.as_ptr().cast_const())
        .ok_or(ENOMEM)
}

/// Sets the strings with which the RPC client shows the server's address. May sleep.
///
/// # Safety
///
/// `raw` is a transport that is being created, so no other thread uses it.
pub(crate) unsafe fn set_strings(raw: *mut bindings::rpc_xprt, peer: &SocketAddr) -> Result {
    // SAFETY: By the caller's contract no other thread uses the transport.
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

/// Frees the address strings of a transport.
///
/// # Safety
///
/// No thread reads the strings of `raw` any more.
pub(crate) unsafe fn free_strings(raw: *mut bindings::rpc_xprt) {
    for which in OWNED_STRINGS {
        // SAFETY: By the caller's contract no thread reads the string, which is null or was
        // allocated by `kstring`.
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
/// Called only as `rpc_xprt_ops::set_port`.
pub(crate) unsafe fn set_port(raw: *mut bindings::rpc_xprt, port: u16) {
    let Ok(text) = kstring(fmt!("{port}")) else {
        return;
    };
    let Ok(hex) = kstring(fmt!("{port:4x}")) else {
        // SAFETY: The string was allocated above, and no other code has the pointer.
        unsafe { kernel::bindings::kfree(text.cast()) };
        return;
    };
    // SAFETY: By the caller's contract the transport is being bound, so no thread connects it.
    // Readers of the strings hold the RCU read lock, so the old strings are freed after a grace
    // period.
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
