// SPDX-License-Identifier: GPL-2.0

//! The table of C operations for a [`Transport`]. Each operation converts its pointers to
//! references, and calls one method of the driver.

mod request;
mod step;

use crate::{
    transport::Transport,
    xprt::{
        address,
        destroy,
        SendLock,
        Xprt, //
    },
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    seq_file::SeqFile, //
};
use xprtrdma_base::{
    compat,
    log::Show,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// The C operations of a driver.
pub(crate) struct Ops<T: Transport>(core::marker::PhantomData<T>);

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<T: Transport> Ops<T> {
    pub(crate) const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        set_buffer_size: None,
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(Self::alloc_slot),
        free_slot: Some(Self::free_slot),
        rpcbind: Some(bindings::rpcb_getport_async),
        set_port: Some(Self::set_port),
        connect: Some(Self::connect),
        get_srcaddr: Some(Self::get_srcaddr),
        get_srcport: Some(Self::get_srcport),
        buf_alloc: Some(Self::buf_alloc),
        buf_free: Some(Self::buf_free),
        #[cfg(xprtrdma_upstream)]
        reclaim_request: Some(Self::reclaim_request),
        prepare_request: Some(Self::prepare_request),
        send_request: Some(Self::send_request),
        abort_send_request: None,
        #[cfg(xprtrdma_upstream)]
        poll_for_reply: Some(Self::poll_for_reply),
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        timer: Some(Self::timer),
        release_request: Some(Self::release_request),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        set_connect_timeout: Some(Self::set_connect_timeout),
        print_stats: Some(Self::print_stats),
        enable_swap: Some(Self::enable_swap),
        disable_swap: Some(Self::disable_swap),
        inject_disconnect: Some(Self::inject_disconnect),
        bc_setup: Some(Self::bc_setup),
        bc_maxpayload: Some(Self::bc_maxpayload),
        bc_num_slots: Some(Self::bc_num_slots),
        bc_free_rqst: Some(Self::bc_free_rqst),
        bc_destroy: Some(Self::bc_destroy),
    };

    /// # Safety
    ///
    /// `raw` is a transport of class `T`, and is valid while the caller uses the reference.
    unsafe fn xprt<'a>(raw: *mut bindings::rpc_xprt) -> &'a Xprt<T> {
        // SAFETY: The caller's contract guarantees the pointer. The RPC client never passes null.
        unsafe { Xprt::from_raw(NonNull::new_unchecked(raw)) }
    }

    unsafe extern "C" fn set_port(xprt: *mut bindings::rpc_xprt, port: c_ushort) {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        unsafe { address::set_port(xprt, port) }
    }

    unsafe extern "C" fn connect(xprt: *mut bindings::rpc_xprt, task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client passes a valid transport of class `T`; `task` holds the send lock.
        if let Some(lock) = unsafe { Self::xprt(xprt).lock_connect(task) } {
            T::connect(lock);
        } else {
            // This branch is never executed, because the RPC client has just taken the send lock
            // for `task`.
            // SAFETY: The RPC client passes a valid transport.
            unsafe { bindings::xprtrdma_xprt_clear_connecting(xprt) };
        }
    }

    unsafe extern "C" fn get_srcaddr(
        xprt: *mut bindings::rpc_xprt,
        buf: *mut c_char,
        len: usize,
    ) -> c_int {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        let Some(addr) = T::local_addr(unsafe { Self::xprt(xprt) }) else {
            return compat::ENOTCONN;
        };
        // SAFETY: The buffer has `len` writable bytes.
        let out = unsafe { core::slice::from_raw_parts_mut(buf.cast::<u8>(), len) };
        match kernel::str::CString::try_from_fmt(fmt!("{}", Show(&addr.ip()))) {
            Ok(text) => {
                let text = text.to_bytes_with_nul();
                match out.get_mut(..text.len()) {
                    Some(out) => {
                        out.copy_from_slice(text);
                        // CAST: The text of an address has at most 40 characters.
                        text.len() as c_int - 1
                    }
                    None => ENOSPC.to_errno(),
                }
            }
            Err(e) => e.to_errno(),
        }
    }

    unsafe extern "C" fn get_srcport(xprt: *mut bindings::rpc_xprt) -> c_ushort {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        T::local_addr(unsafe { Self::xprt(xprt) }).map_or(0, |addr| addr.port())
    }

    unsafe extern "C" fn close(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: The RPC client passes a valid transport of class `T` and holds its send lock.
        T::close(&mut unsafe { SendLock::new(Self::xprt(xprt)) });
        // SAFETY: The RPC client passes a valid transport.
        unsafe { bindings::xprt_disconnect_done(xprt) };
    }

    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: This is the RPC client's last call for the transport. The RPC client holds the
        // send lock and does not release it.
        unsafe { destroy::<T>(raw) }
    }

    unsafe extern "C" fn set_connect_timeout(
        xprt: *mut bindings::rpc_xprt,
        connect: c_ulong,
        reconnect: c_ulong,
    ) {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        let xprt = unsafe { Self::xprt(xprt) };
        xprt.lower_timeouts(connect, reconnect);
        T::lower_timeouts(xprt, Jiffies(connect), Jiffies(reconnect));
    }

    unsafe extern "C" fn print_stats(
        xprt: *mut bindings::rpc_xprt,
        seq: *mut kernel::bindings::seq_file,
    ) {
        // SAFETY: The RPC client passes a valid transport of class `T`, and a file that no other
        // thread writes during the call.
        unsafe { T::show_stats(Self::xprt(xprt), SeqFile::from_raw(seq)) }
    }

    unsafe extern "C" fn enable_swap(_xprt: *mut bindings::rpc_xprt) -> c_int {
        // Establishing a connection allocates memory in rdma_cm and in the device's driver. Neither
        // rdma_cm nor the driver guarantees progress while memory is being swapped out over the
        // same transport.
        // LOG: `swapon` was refused.
        pr_warn!("swap files on NFS over RDMA are not supported\n");
        compat::EOPNOTSUPP
    }

    unsafe extern "C" fn disable_swap(_xprt: *mut bindings::rpc_xprt) {}

    unsafe extern "C" fn inject_disconnect(xprt: *mut bindings::rpc_xprt) {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        unsafe { Self::xprt(xprt) }.force_disconnect();
    }

    unsafe extern "C" fn bc_setup(xprt: *mut bindings::rpc_xprt, _min: c_uint) -> c_int {
        // SAFETY: The RPC client passes a valid transport of class `T`.
        let xprt = unsafe { Self::xprt(xprt) };
        xprt.setup_callbacks()
            .and_then(|()| T::start_callbacks(xprt))
            .err()
            .map_or(0, Error::to_errno)
    }

    unsafe extern "C" fn bc_maxpayload(xprt: *mut bindings::rpc_xprt) -> usize {
        // SAFETY: The RPC client passes a transport of class `T` under RCU, and the destruction of
        // a transport waits for RCU readers.
        T::callback_size(unsafe { Self::xprt(xprt) })
    }

    unsafe extern "C" fn bc_num_slots(_xprt: *mut bindings::rpc_xprt) -> c_uint {
        T::CALLBACK_SLOTS.into()
    }

    unsafe extern "C" fn bc_free_rqst(rqst: *mut bindings::rpc_rqst) {
        // SAFETY: The RPC client calls this function once for each callback that was delivered.
        unsafe { Xprt::<T>::free_callback(rqst) }
    }

    unsafe extern "C" fn bc_destroy(_xprt: *mut bindings::rpc_xprt, _max: c_uint) {
        // Nothing is freed here, because the callback slots are freed with the transport.
    }
}
