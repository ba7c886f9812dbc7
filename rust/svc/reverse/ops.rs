// SPDX-License-Identifier: GPL-2.0

//! Transports that send calls to a client on the client's own connection: their `rpc_xprt_ops`, and
//! the function that creates such a transport.

use super::{
    Line,
    NotSent,
    Outgoing,
    ReverseXprt, //
};
use crate::{
    reply::Encoded,
    service::Service, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    prelude::*,
    types::ScopeGuard, //
};
use xprtrdma_base::{
    compat,
    net::addr_from_raw, //
};
use xprtrdma_bindings as bindings;

/// The `rpc_xprt_ops` of a driver's transports. The transports cannot connect, and use no timer.
struct Ops<S: Service>(core::marker::PhantomData<S>);

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC client only, under the contract of rpc_xprt_ops"
)]
impl<S: Service> Ops<S> {
    const OPS: bindings::rpc_xprt_ops = bindings::rpc_xprt_ops {
        set_buffer_size: None,
        reserve_xprt: Some(bindings::xprt_reserve_xprt_cong),
        release_xprt: Some(bindings::xprt_release_xprt_cong),
        alloc_slot: Some(bindings::xprt_alloc_slot),
        free_slot: Some(bindings::xprt_free_slot),
        rpcbind: None,
        set_port: None,
        connect: Some(Self::connect),
        get_srcaddr: None,
        get_srcport: None,
        buf_alloc: Some(Self::buf_alloc),
        buf_free: Some(Self::buf_free),
        prepare_request: None,
        send_request: Some(Self::send_request),
        abort_send_request: None,
        wait_for_reply_request: Some(bindings::xprt_wait_for_reply_request_def),
        timer: None,
        release_request: Some(bindings::xprt_release_rqst_cong),
        close: Some(Self::close),
        destroy: Some(Self::destroy),
        set_connect_timeout: None,
        print_stats: Some(Self::print_stats),
        enable_swap: Some(Self::enable_swap),
        disable_swap: Some(Self::disable_swap),
        inject_disconnect: Some(Self::close),
        bc_setup: None,
        bc_maxpayload: None,
        bc_num_slots: None,
        bc_free_rqst: None,
        bc_destroy: None,
    };

    /// # Safety
    ///
    /// `raw` is a transport of this class, and is valid during `'a`.
    unsafe fn line<'a>(raw: *mut bindings::rpc_xprt) -> &'a Line<S> {
        // SAFETY: By this function's contract the transport is valid and of this class. `raw` is
        // its first member.
        unsafe { &(*raw.cast::<ReverseXprt<S>>()).line }
    }

    /// Refuses to connect, because the transport uses only a connection that the client has opened.
    /// Tasks that nfsd creates do not request a connection.
    unsafe extern "C" fn connect(raw: *mut bindings::rpc_xprt, _task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client calls this for a task that waits for a connection.
        unsafe { bindings::svcrdma_refuse_to_connect(raw) };
    }

    /// Allocates memory for a call and its reply.
    unsafe extern "C" fn buf_alloc(task: *mut bindings::rpc_task) -> c_int {
        // SAFETY: The RPC client calls this for a task that has a request. The fields belong to
        // that request.
        let (rqst, call_len, reply_len) = unsafe {
            let rqst = (*task).tk_rqstp;
            (rqst, (*rqst).rq_callsize, (*rqst).rq_rcvsize)
        };
        let Some(len) = call_len.checked_add(reply_len) else {
            return ENOMEM.to_errno();
        };
        // SAFETY: A task of the RPC client runs here.
        let memory = unsafe { bindings::xprtrdma_task_alloc(len) };
        if memory.is_null() {
            return ENOMEM.to_errno();
        }
        // SAFETY: The fields belong to the task.
        unsafe {
            (*rqst).rq_buffer = memory;
            (*rqst).rq_rbuffer = memory.wrapping_byte_add(call_len);
        }
        0
    }

    unsafe extern "C" fn buf_free(task: *mut bindings::rpc_task) {
        // SAFETY: The RPC client calls this for a task that has a request. The field belongs to
        // that task.
        let rqst = unsafe { (*task).tk_rqstp };
        // SAFETY: The pointer is null or was allocated by `buf_alloc`. The request is on no queue
        // and not pinned.
        unsafe { kernel::bindings::kfree((*rqst).rq_buffer) };
        // SAFETY: The fields belong to the task, which the RPC client passed to this function.
        unsafe {
            (*rqst).rq_buffer = ptr::null_mut();
            (*rqst).rq_rbuffer = ptr::null_mut();
        }
    }

    unsafe extern "C" fn send_request(rqst: *mut bindings::rpc_rqst) -> c_int {
        // SAFETY: The RPC client calls this with the transport's send lock held. The request is
        // encoded. The request is also pinned, or only the caller uses it.
        let (raw, xid) = unsafe { ((*rqst).rq_xprt, u32::from_be((*rqst).rq_xid)) };
        // SAFETY: The transport is of this class, and the request's task holds a reference to the
        // transport.
        let line = unsafe { Self::line(raw) };
        // SAFETY: The field belongs to the transport until the request is sent.
        unsafe { (*rqst).rq_xtime = kernel::bindings::ktime_get() };
        let outgoing = Outgoing {
            xid,
            // SAFETY: The call is encoded, and does not change until this function returns.
            message: unsafe { Encoded::from_raw(&(*rqst).rq_snd_buf) },
        };
        let len = outgoing.message.len();
        // SAFETY: The transport's send lock is held, and the request is on the transport's queue.
        if !unsafe { bindings::xprt_request_get_cong(raw, rqst) } {
            // The client accepts no more calls at present. The task waits until another call
            // completes.
            return compat::EBADSLT;
        }
        let sent = match line.sender() {
            Some(sender) => S::call(&sender, &outgoing),
            None => Err(NotSent::Closed),
        };
        match sent {
            Ok(()) => {
                // CAST: `usize` is at least as wide as `u32`.
                // NO-OVERFLOW: This is a statistic, which may wrap.
                // SAFETY: The request is valid. Only the holder of the send lock changes the field.
                unsafe {
                    (*rqst).rq_xmit_bytes_sent =
                        (*rqst).rq_xmit_bytes_sent.wrapping_add(len as usize);
                }
                0
            }
            // `ENOBUFS` makes the task wait for a quarter of a second.
            Err(NotSent::Busy) => compat::ENOBUFS,
            Err(NotSent::TooLong) => EMSGSIZE.to_errno(),
            Err(NotSent::Closed) => {
                // This code closes the transport. If the transport stayed connected, the task would
                // try again without delay.
                // SAFETY: The request's task holds a reference to the transport.
                unsafe { Self::close(raw) };
                compat::ENOTCONN
            }
        }
    }

    /// Fails the calls in flight, and closes the connection, because no more calls can be sent on
    /// the connection.
    unsafe extern "C" fn close(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The RPC client or the RPC server calls this for a transport of this class.
        unsafe { bindings::xprt_disconnect_done(raw) };
        // SAFETY: The caller passes a valid transport of this class.
        if let Some(sender) = unsafe { Self::line(raw) }.sender() {
            S::hang_up(&sender);
        }
    }

    unsafe extern "C" fn destroy(raw: *mut bindings::rpc_xprt) {
        // SAFETY: The transport is valid, and the count is read as an atomic variable.
        if !unsafe { bindings::xprtrdma_is_dying(raw) } {
            // The transport still has references. In this case the RPC client calls this function
            // because it had no memory for the transport's name. So this code only drops the RPC
            // client's reference. The transport is freed when the last reference is dropped.
            // SAFETY: The caller holds the send lock and does nothing more with the transport.
            unsafe { bindings::svcrdma_unlock_reverse(raw) };
            // SAFETY: This drops the transport's first reference. The caller gave up this reference
            // when it called `destroy`.
            unsafe { bindings::xprt_put(raw) };
            return;
        }
        // SAFETY: This is the last function call for this transport, and all its fields are
        // initialised. No references are left, so the [`Line`] has no reference to the transport.
        unsafe { ptr::drop_in_place(&raw mut (*raw.cast::<ReverseXprt<S>>()).line) };
        // SAFETY: This is the last function call for this transport, and no references to it are
        // left.
        unsafe { bindings::svcrdma_free_reverse(raw) };
        // SAFETY: The transport held this reference to the module, and only this code drops the
        // reference. Before the module is unloaded, `unloading::begin` waits until this function
        // has returned.
        unsafe { kernel::bindings::module_put(bindings::svcrdma_reverse_class.owner) };
    }

    unsafe extern "C" fn print_stats(
        _raw: *mut bindings::rpc_xprt,
        _seq: *mut kernel::bindings::seq_file,
    ) {
    }

    unsafe extern "C" fn enable_swap(_raw: *mut bindings::rpc_xprt) -> c_int {
        compat::EOPNOTSUPP
    }

    unsafe extern "C" fn disable_swap(_raw: *mut bindings::rpc_xprt) {}
}

/// Creates a transport that sends calls on the connection of `line`. May sleep.
///
/// # Safety
///
/// `args` comes from the RPC client, and `args.bc_xprt` is the connection of `line`. The caller
/// holds a reference to the connection.
pub(crate) unsafe fn make<S: Service>(
    args: &bindings::xprt_create,
    line: &Line<S>,
    sender: S::Sender,
) -> Result<*mut bindings::rpc_xprt> {
    // SAFETY: The namespace is valid. The memory is zeroed, and freed by `svcrdma_free_reverse`.
    let raw =
        unsafe { bindings::xprt_alloc(args.net, size_of::<ReverseXprt<S>>(), S::CALLS, S::CALLS) };
    let xprt = NonNull::new(raw).ok_or(ENOMEM)?;
    // SAFETY: The field is in memory that was allocated above, and no other thread has a pointer to
    // this memory.
    unsafe { (&raw mut (*raw.cast::<ReverseXprt<S>>()).line).write(line.clone()) };
    let guard = ScopeGuard::new(move || {
        // SAFETY: The [`Line`] was initialised above, and is dropped only once.
        unsafe { ptr::drop_in_place(&raw mut (*raw.cast::<ReverseXprt<S>>()).line) };
        // SAFETY: No other code has the transport. The transport's strings are null or were
        // allocated for the transport.
        unsafe { bindings::svcrdma_free_reverse(raw) }
    });
    // SAFETY: By this function's contract, `dstaddr` points to a complete socket address.
    if unsafe { addr_from_raw(args.dstaddr) }.is_none() {
        return Err(Error::from_errno(compat::EAFNOSUPPORT));
    }
    // SAFETY: This function owns the transport, and the address is an IPv4 or IPv6 address.
    match unsafe { bindings::svcrdma_set_reverse_peer(raw, args.dstaddr) } {
        0 => {}
        err => return Err(Error::from_errno(err)),
    }
    // SAFETY: This function owns the transport, and no other thread knows it.
    let fields = unsafe { &mut *raw };
    fields.ops = &Ops::<S>::OPS;
    fields.timeout = &raw const bindings::svcrdma_reverse_timeout;
    fields.xprt_class = &raw const bindings::svcrdma_reverse_class;
    // SAFETY: The class is a static object, and its `ident` is constant.
    fields.prot = unsafe { bindings::svcrdma_reverse_class.ident };
    fields.max_payload = S::longest_outgoing(&sender);
    fields.bc_xprt = args.bc_xprt;
    // SAFETY: This function owns the transport.
    unsafe { bindings::xprtrdma_xprt_set_bound(raw) };
    // SAFETY: This function owns the transport.
    unsafe { bindings::xprtrdma_xprt_set_connected(raw) };
    // SAFETY: The class names this module as its owner.
    if !unsafe { kernel::bindings::try_module_get(bindings::svcrdma_reverse_class.owner) } {
        return Err(ENODEV);
    }
    let module = ScopeGuard::new(|| {
        // SAFETY: The reference was taken above.
        unsafe { kernel::bindings::module_put(bindings::svcrdma_reverse_class.owner) };
    });

    let mut state = line.0.state.lock();
    if state.ended || state.xprt.is_some() {
        // The connection is closed, or another RPC client was created for the connection at the
        // same time.
        let ended = state.ended;
        drop(state);
        return Err(if ended {
            compat::not_connected()
        } else {
            EAGAIN
        });
    }
    // INVARIANT: The [`Line`] takes its own reference now. The first reference belongs to the
    // caller.
    // SAFETY: The transport is valid and has a reference.
    unsafe { bindings::xprt_get(raw) };
    state.xprt = Some(xprt);
    state.sender = Some(sender);
    // The connection takes a reference to the transport, too. The RPC server drops this reference
    // when it frees the connection.
    // SAFETY: The transport is valid and has a reference.
    unsafe { bindings::xprt_get(raw) };
    // SAFETY: The connection is valid. The code that closes the connection reads this field after
    // `Line::end`, and `Line::end` waits for the lock that this function holds.
    unsafe { (*args.bc_xprt).xpt_bc_xprt = raw };
    drop(state);
    module.dismiss();
    guard.dismiss();
    Ok(raw)
}
