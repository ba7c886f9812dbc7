// SPDX-License-Identifier: GPL-2.0

//! The C operations of a transport class. Each operation converts pointers to references, and calls
//! one method of [`Service`].

use crate::{
    bell::Bell,
    context::{
        Arrived, //
        Context,
    },
    inbox::InboxOwner,
    reply::Reply,
    reverse::{
        self,
        LineOwner, //
    },
    service::{
        Listening,
        Service, //
    },
    transport::{
        Place,
        SvcXprt, //
    }, //
};
use core::ptr::NonNull;
use kernel::{
    prelude::*,
    types::{
        Opaque,
        ScopeGuard, //
    }, //
};
use xprtrdma_base::{
    compat,
    net::{
        addr_from_raw,
        with_raw,
        Net, //
    }, //
};
use xprtrdma_bindings as bindings;

/// The driver's listener, as part of a transport of the RPC server.
struct Listener<S: Service> {
    // The listener is dropped before the bell, because the listener uses the bell to announce
    // events.
    listener: S::Listener,
    bell: Bell,
}

/// The driver's connection, as part of a transport of the RPC server.
struct Connection<S: Service> {
    entry: Opaque<bindings::svcrdma_entry>,
    inbox: InboxOwner<S>,
    line: LineOwner<S>,
    connection: S::Connection,
}

/// The C operations of a driver.
///
/// All operations except `has_wspace` are called in process context and may sleep.
pub(crate) struct Ops<S: Service>(core::marker::PhantomData<S>);

#[expect(
    clippy::missing_safety_doc,
    reason = "all are called by the RPC server only, under the contract of svc_xprt_ops"
)]
impl<S: Service> Ops<S> {
    pub(crate) const LISTENER: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_create: Some(Self::create),
        xpo_accept: Some(Self::accept),
        xpo_detach: Some(Self::detach_listener),
        xpo_free: Some(Self::free_listener),
        // A thread of the RPC server calls this function after it has handled a transport, even if
        // the transport is a listener. So a listener must have this function, although the function
        // does nothing.
        xpo_release_ctxt: Some(Self::release_none),
        ..Self::COMMON
    };

    const CONNECTION: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_recvfrom: Some(Self::recvfrom),
        xpo_sendto: Some(Self::sendto),
        xpo_result_payload: Some(Self::result_payload),
        xpo_release_ctxt: Some(Self::release_ctxt),
        xpo_detach: Some(Self::detach_connection),
        xpo_free: Some(Self::free_connection),
        ..Self::COMMON
    };

    const COMMON: bindings::svc_xprt_ops = bindings::svc_xprt_ops {
        xpo_create: None,
        xpo_accept: None,
        xpo_has_wspace: Some(Self::has_wspace),
        xpo_recvfrom: None,
        xpo_sendto: None,
        xpo_result_payload: None,
        xpo_release_ctxt: None,
        xpo_detach: None,
        xpo_free: None,
        xpo_kill_temp_xprt: Some(Self::kill_temp_xprt),
        xpo_handshake: None,
    };

    unsafe extern "C" fn create(
        serv: *mut bindings::svc_serv,
        net: *mut bindings::net,
        addr: *mut bindings::sockaddr,
        _len: c_int,
        _flags: c_int,
    ) -> *mut bindings::svc_xprt {
        // SAFETY: The RPC server passes the arguments of `xpo_create`.
        unsafe { Self::try_create(serv, net, addr) }.unwrap_or_else(|e| e.to_ptr())
    }

    /// # Safety
    ///
    /// The arguments are those of `xpo_create`.
    unsafe fn try_create(
        serv: *mut bindings::svc_serv,
        net: *mut bindings::net,
        addr: *mut bindings::sockaddr,
    ) -> Result<*mut bindings::svc_xprt> {
        // SAFETY: The RPC server passes a complete address.
        let addr = unsafe { addr_from_raw(addr) };
        let addr = addr.ok_or(Error::from_errno(compat::EAFNOSUPPORT))?;
        let place = Place::new()?;
        let bell = Bell::new()?;
        // SAFETY: The namespace is valid during the call.
        let net_ref = unsafe { Net::from_raw(net) };
        let Listening { listener, local } = S::listen(net_ref, &addr, bell.clone())?;
        let of_us = Listener::<S> {
            listener,
            bell: bell.clone(),
        };
        // SAFETY: The arguments are valid. The caller passes the result to the RPC server, which
        // calls these operations for a `Listener<S>`. The RPC server has taken a reference to this
        // module for the listener.
        let xprt = unsafe { place.make(net, serv, &Self::LISTENER, &local, of_us) };
        // SAFETY: The transport was created above and is valid.
        unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), bindings::XPT_LISTENER) };
        // SAFETY: The RPC server drops its reference to a listener only after it has detached the
        // listener.
        unsafe { bell.connect(xprt) };
        Ok(xprt.as_ptr())
    }

    /// Creates a transport that sends calls to the client of a connection. This function is the
    /// operation `xprt_class::setup`.
    pub(crate) unsafe extern "C" fn setup(
        args: *mut bindings::xprt_create,
    ) -> *mut bindings::rpc_xprt {
        // SAFETY: The RPC client passes the arguments of `setup`.
        unsafe { Self::try_setup(&*args) }.unwrap_or_else(|e| e.to_ptr())
    }

    /// # Safety
    ///
    /// `args` comes from the RPC client.
    unsafe fn try_setup(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
        let xprt = args.bc_xprt;
        // Usually nfsd passes the connection, and holds a reference to it. When root writes to the
        // sysfs file `add_xprt`, the RPC client passes the connection without a reference. In that
        // case the connection may be freed at the same moment.
        // SAFETY: The called function accepts any pointer.
        if !unsafe { bindings::svcrdma_get_connection(xprt) } {
            return Err(EINVAL);
        }
        let _reference = ScopeGuard::new(|| {
            // SAFETY: The reference was taken above.
            unsafe { bindings::svc_xprt_put(xprt) };
        });
        // SAFETY: The transport is in the list, so it is a connection of this class and driver. The
        // reference that was taken above keeps it.
        let of_us = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        let sender = S::sender(&of_us.connection);
        // SAFETY: This function's contract covers `args`, and `line` belongs to the connection in
        // `args`.
        unsafe { reverse::make(args, &of_us.line.handle(), sender) }
    }

    unsafe extern "C" fn accept(xprt: *mut bindings::svc_xprt) -> *mut bindings::svc_xprt {
        // SAFETY: The RPC server calls this for a listener of this class. The listener is marked
        // busy.
        let listener = unsafe { SvcXprt::<Listener<S>>::inner(xprt) };
        // SAFETY: The listener is valid during the call. A connection request that arrives later
        // sets the flag `XPT_CONN` again.
        unsafe { bindings::svcrdma_clear_flag(xprt, bindings::XPT_CONN) };
        // SAFETY: The service of the listener is valid. The maximum message length does not change
        // while the service runs.
        let longest_call = unsafe { (*(*xprt).xpt_server).sv_max_mesg };
        let accepted = match Place::new() {
            Ok(place) => S::accept(&listener.listener, longest_call).map(|new| (place, new)),
            Err(_) => {
                S::reject(&listener.listener);
                None
            }
        };
        if S::has_requests(&listener.listener) {
            // The RPC server checks the flag `XPT_CONN` after this function has returned.
            // SAFETY: The listener is valid during the call.
            unsafe { bindings::svcrdma_set_flag(xprt, bindings::XPT_CONN) };
        }
        let Some((place, accepted)) = accepted else {
            return core::ptr::null_mut();
        };
        let (local, peer) = (accepted.local, accepted.peer);
        let of_us = Connection::<S> {
            entry: Opaque::zeroed(),
            inbox: accepted.inbox,
            line: accepted.line,
            connection: accepted.connection,
        };
        // SAFETY: The listener, its namespace and its service are valid. The RPC server receives
        // the result, and calls these operations for a `Connection<S>`. The RPC server has taken a
        // reference to this module for the connection.
        let new = unsafe {
            let (net, serv) = ((*xprt).xpt_net, (*xprt).xpt_server);
            place.make(net, serv, &Self::CONNECTION, &local, of_us)
        };
        // SAFETY: The transport is valid, and no other code has it yet. The address is an IPv4 or
        // IPv6 address.
        with_raw(&peer, |addr| unsafe {
            bindings::svcrdma_set_remote(new.as_ptr(), addr)
        });
        // `XPT_CONG_CTRL` says that the transport has congestion control, which NFSv4 requires.
        // `XPT_CACHE_AUTH` makes the RPC server cache the client's credentials.
        for flag in [bindings::XPT_CONG_CTRL, bindings::XPT_CACHE_AUTH] {
            // SAFETY: The transport is valid, and no other code has it yet.
            unsafe { bindings::svcrdma_set_flag(new.as_ptr(), flag) };
        }
        // SAFETY: The transport was created above.
        let made = unsafe { SvcXprt::<Connection<S>>::inner(new.as_ptr()) };
        // SAFETY: The RPC server drops its reference to a connection only after it has detached the
        // connection.
        unsafe { made.inbox.connect(new) };
        // SAFETY: The entry is part of the connection. `free_connection` removes it from the list.
        unsafe { bindings::svcrdma_list_connection(made.entry.get(), new.as_ptr()) };
        new.as_ptr()
    }

    unsafe extern "C" fn detach_listener(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server calls this for a listener of this class.
        let listener = unsafe { SvcXprt::<Listener<S>>::inner(xprt) };
        listener.bell.cut();
        S::close(&listener.listener);
    }

    unsafe extern "C" fn free_listener(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server has detached the listener, and does not use it any more.
        unsafe { SvcXprt::<Listener<S>>::free(xprt) }
    }

    unsafe extern "C" fn recvfrom(rqstp: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: The calling thread owns the request `rqstp`, and holds a reference to the
        // connection.
        let xprt = unsafe { (*rqstp).rq_xprt };
        // SAFETY: The transport is a connection of this class.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        let context = connection.inbox.take();
        // From now on other threads may take calls of this connection.
        // SAFETY: The RPC server calls this function for a transport that is marked busy, and only
        // this call removes the mark.
        unsafe { bindings::svc_xprt_received(xprt) };
        // No page has been used for a reply yet. So if no call waits, the thread keeps all its
        // pages for the next call.
        // SAFETY: The thread owns its request.
        unsafe { (*rqstp).rq_next_page = (*rqstp).rq_respages };
        let Some(mut context) = context else {
            // SAFETY: The thread owns its request.
            unsafe { (*rqstp).rq_xprt_ctxt = core::ptr::null_mut() };
            return 0;
        };
        // SAFETY: The calling thread owns the request `rqstp`, and both arguments are valid.
        unsafe { bindings::svcrdma_begin_call(rqstp, xprt) };
        // SAFETY: The calling thread has no other call. The thread finishes this call with
        // `release_ctxt`, which drops the context.
        let len = unsafe { context.context().lend_to(rqstp) };
        // SAFETY: The thread owns its request.
        unsafe { (*rqstp).rq_xprt_ctxt = context.into_raw().as_ptr().cast() };
        len
    }

    /// Returns the connection and the context of the call that a thread processes.
    ///
    /// # Safety
    ///
    /// The caller is the thread that owns the request `rqstp`. The request's transport is a
    /// connection of this class. The caller holds no other reference to the context.
    unsafe fn call<'a>(
        rqstp: *mut bindings::svc_rqst,
    ) -> Option<(&'a Connection<S>, &'a mut Context<S>)> {
        // SAFETY: The calling thread owns the request `rqstp`.
        let (xprt, context) = unsafe { ((*rqstp).rq_xprt, (*rqstp).rq_xprt_ctxt) };
        // SAFETY: The transport is a connection of this class, and the thread holds a reference to
        // it.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        // SAFETY: The pointer is null, or `recvfrom` set it and `release_ctxt` has not been called.
        // Only this thread uses the context.
        let context = unsafe { context.cast::<Context<S>>().as_mut() };
        Some((connection, context?))
    }

    unsafe extern "C" fn sendto(rqstp: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: The RPC server calls this in the thread that processes the call.
        let Some((of_us, context)) = (unsafe { Self::call(rqstp) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The reply is complete. The thread does not change it before this function
        // returns.
        let mut reply = unsafe { Reply::of(rqstp) };
        let (front, call) = context.front();
        let sent = S::reply(&of_us.connection, call, front, &mut reply);
        reply.end();
        // SAFETY: The thread owns its request.
        let pages = unsafe { (*rqstp).rq_next_page.offset_from((*rqstp).rq_respages) };
        if pages == 1 {
            // The reply has used only the thread's first page. This page never belongs to a file,
            // and the reply was copied from it. So the thread may keep the page. If a reply has
            // used more than one page, the RPC server replaces all pages that the reply has used.
            // SAFETY: The thread owns its request.
            unsafe { (*rqstp).rq_next_page = (*rqstp).rq_respages };
        }
        match sent {
            Ok(()) => 0,
            Err(error) => {
                // The connection is closed, because the client must learn that the reply to its
                // call is lost (RFC 8166, 4.5).
                of_us.inbox.handle().close();
                error.to_errno()
            }
        }
    }

    unsafe extern "C" fn result_payload(
        rqstp: *mut bindings::svc_rqst,
        from: c_uint,
        len: c_uint,
    ) -> c_int {
        // SAFETY: The RPC server calls this in the thread that processes the call.
        match unsafe { Self::call(rqstp) } {
            Some((_, context)) => {
                let (front, call) = context.front();
                S::result(call, front, from, len).map_or_else(Error::to_errno, |()| 0)
            }
            None => 0,
        }
    }

    unsafe extern "C" fn release_ctxt(xprt: *mut bindings::svc_xprt, context: *mut c_void) {
        let Some(context) = NonNull::new(context.cast::<Context<S>>()) else {
            return;
        };
        // SAFETY: `recvfrom` set the pointer. The RPC server passes the pointer to this function
        // once, and then clears its own copy.
        let context = unsafe { Arrived::from_raw(context) };
        // SAFETY: The transport is the call's connection, and the caller holds a reference to it.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        Self::finish(connection, context);
    }

    /// Finishes a call, and frees its memory.
    #[inline(always)]
    fn finish(connection: &Connection<S>, mut call: Arrived<S>) {
        let debt = S::over(&connection.connection, call.call());
        call.end();
        S::settle(&connection.connection, debt);
    }

    unsafe extern "C" fn release_none(_xprt: *mut bindings::svc_xprt, _context: *mut c_void) {}

    unsafe extern "C" fn detach_connection(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server calls this for a connection of this class.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        let mut calls = connection.inbox.detach();
        connection.line.end();
        S::detach(&connection.connection);
        // The RPC server never receives these calls, so it does not finish them.
        while let Some(call) = calls.pop() {
            Self::finish(connection, call);
        }
    }

    unsafe extern "C" fn free_connection(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server has detached the connection, and does not use it any more.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        // SAFETY: `accept` added the entry to the list.
        unsafe { bindings::svcrdma_unlist_connection(connection.entry.get()) };
        connection.line.forget();
        // SAFETY: The RPC server has detached the connection, and does not use it any more.
        unsafe { SvcXprt::<Connection<S>>::free(xprt) }
    }

    /// Always returns true, because a full send queue must not prevent the server from receiving
    /// calls.
    unsafe extern "C" fn has_wspace(_xprt: *mut bindings::svc_xprt) -> c_int {
        1
    }

    unsafe extern "C" fn kill_temp_xprt(_xprt: *mut bindings::svc_xprt) {}
}
