// SPDX-License-Identifier: GPL-2.0

//! The C operations made from a [`Service`]: pointers become references, and one method is called.

use crate::{
    bell::Bell,
    context::Context,
    inbox::InboxOwner,
    reply::Reply,
    reverse::{
        self,
        Line, //
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
use kernel::prelude::*;
use xprtrdma_base::{
    compat,
    net::{
        addr_from_raw,
        with_raw,
        Net, //
    }, //
};
use xprtrdma_bindings as bindings;

/// What the RPC server knows as a listener.
struct Listener<S: Service> {
    // Dropped before the bell, which it rings.
    listener: S::Listener,
    bell: Bell,
}

/// What the RPC server knows as a connection.
struct Connection<S: Service> {
    inbox: InboxOwner<S>,
    line: Line<S>,
    connection: S::Connection,
}

/// The C operations of a driver.
///
/// All but `has_wspace` are called in process context and may sleep.
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
        // A thread calls this at the end of each pass, also of one that has served a listener.
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
        // SAFETY: The RPC server passes valid arguments.
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
        // SAFETY: The namespace is valid for the duration of the call.
        let net_ref = unsafe { Net::from_raw(net) };
        let Listening { listener, local } = S::listen(net_ref, &addr, bell.clone())?;
        let of_us = Listener::<S> {
            listener,
            bell: bell.clone(),
        };
        // SAFETY: The arguments are valid. The RPC server gets the result from our caller, and
        // calls these operations for a `Listener<S>`. Its reference to this module goes with it.
        let xprt = unsafe { place.make(net, serv, &Self::LISTENER, &local, of_us) };
        // SAFETY: Valid, see above.
        unsafe { bindings::svcrdma_set_flag(xprt.as_ptr(), bindings::XPT_LISTENER) };
        // SAFETY: The RPC server detaches a listener before it gives its own reference up.
        unsafe { bell.connect(xprt) };
        Ok(xprt.as_ptr())
    }

    /// Makes a transport that leads to the client of a connection, for `xprt_class::setup`.
    pub(crate) unsafe extern "C" fn setup(
        args: *mut bindings::xprt_create,
    ) -> *mut bindings::rpc_xprt {
        // SAFETY: The RPC client passes valid arguments.
        unsafe { Self::try_setup(&*args) }.unwrap_or_else(|e| e.to_ptr())
    }

    /// # Safety
    ///
    /// `args` comes from the RPC client.
    unsafe fn try_setup(args: &bindings::xprt_create) -> Result<*mut bindings::rpc_xprt> {
        let xprt = NonNull::new(args.bc_xprt).ok_or(EINVAL)?.as_ptr();
        // SAFETY: The caller has a reference to the connection.
        if !unsafe { bindings::svcrdma_is_connection(xprt) } {
            return Err(EINVAL);
        }
        // SAFETY: A connection of our class, hence of this driver, as long as the caller has it.
        let of_us = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        let sender = S::sender(&of_us.connection);
        // SAFETY: By this function's contract; the line is that of the connection.
        unsafe { reverse::make(args, &of_us.line, sender) }
    }

    unsafe extern "C" fn accept(xprt: *mut bindings::svc_xprt) -> *mut bindings::svc_xprt {
        // SAFETY: The RPC server calls this for a listener of ours, which is busy.
        let listener = unsafe { SvcXprt::<Listener<S>>::inner(xprt) };
        // SAFETY: As above. A request that comes from now on sets it again.
        unsafe { bindings::svcrdma_clear_flag(xprt, bindings::XPT_CONN) };
        let place = Place::new();
        // SAFETY: The listener's service, which is valid; the number does not change while it runs.
        let longest_call = unsafe { (*(*xprt).xpt_server).sv_max_mesg };
        let accepted = S::accept(&listener.listener, longest_call);
        if S::has_requests(&listener.listener) {
            // The RPC server looks at the flag when it takes the listener back.
            // SAFETY: As above.
            unsafe { bindings::svcrdma_set_flag(xprt, bindings::XPT_CONN) };
        }
        let (Ok(place), Some(accepted)) = (place, accepted) else {
            return core::ptr::null_mut();
        };
        let (local, peer) = (accepted.local, accepted.peer);
        let of_us = Connection::<S> {
            inbox: accepted.inbox,
            line: accepted.line,
            connection: accepted.connection,
        };
        // SAFETY: The listener is valid, and so are its namespace and its service. The RPC server
        // gets the result, and calls these operations for a `Connection<S>`. It has taken a
        // reference to this module for it.
        let new = unsafe {
            let (net, serv) = ((*xprt).xpt_net, (*xprt).xpt_server);
            place.make(net, serv, &Self::CONNECTION, &local, of_us)
        };
        // SAFETY: Valid, and nothing else knows it yet; the address is one of an IP family.
        with_raw(&peer, |addr| unsafe {
            bindings::svcrdma_set_remote(new.as_ptr(), addr)
        });
        // NFSv4 asks for a transport that does not flood the network. With the other flag the RPC
        // server remembers the client's credentials.
        for flag in [bindings::XPT_CONG_CTRL, bindings::XPT_CACHE_AUTH] {
            // SAFETY: As above.
            unsafe { bindings::svcrdma_set_flag(new.as_ptr(), flag) };
        }
        // SAFETY: Made just now.
        let made = unsafe { SvcXprt::<Connection<S>>::inner(new.as_ptr()) };
        // SAFETY: The RPC server detaches a connection before it gives its own reference up.
        unsafe { made.inbox.connect(new) };
        new.as_ptr()
    }

    unsafe extern "C" fn detach_listener(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server calls this for a listener of ours.
        let listener = unsafe { SvcXprt::<Listener<S>>::inner(xprt) };
        listener.bell.cut();
        S::close(&listener.listener);
    }

    unsafe extern "C" fn free_listener(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server has detached the listener and forgotten it.
        unsafe { SvcXprt::<Listener<S>>::free(xprt) }
    }

    unsafe extern "C" fn recvfrom(rqstp: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: The thread is the caller, and has a reference to the connection.
        let xprt = unsafe { (*rqstp).rq_xprt };
        // SAFETY: A connection of ours.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        let context = connection.inbox.take();
        // From now on other threads may take calls of this connection.
        // SAFETY: The RPC server calls this for a transport that is busy, and this is the only
        // place that ends it.
        unsafe { bindings::svc_xprt_received(xprt) };
        // Nothing is used of the pages for replies yet: a pass without a call leaves them all.
        // SAFETY: The thread's own.
        unsafe { (*rqstp).rq_next_page = (*rqstp).rq_respages };
        let Some(mut context) = context else {
            // SAFETY: As above.
            unsafe { (*rqstp).rq_xprt_ctxt = core::ptr::null_mut() };
            return 0;
        };
        // SAFETY: The thread is the caller, and both are valid.
        unsafe { bindings::svcrdma_begin_call(rqstp, xprt) };
        // SAFETY: The thread gives the call up by `release_ctxt`, which drops the context.
        let len = unsafe { context.lend_to(rqstp) };
        // SAFETY: The thread's own.
        unsafe { (*rqstp).rq_xprt_ctxt = KBox::into_raw(context).cast() };
        len
    }

    /// Returns the context of a thread's call, and its connection.
    ///
    /// # Safety
    ///
    /// The caller is the thread, which was given a connection of ours, and borrows no context.
    unsafe fn call<'a>(
        rqstp: *mut bindings::svc_rqst,
    ) -> Option<(&'a Connection<S>, &'a mut Context<S>)> {
        // SAFETY: The thread is the caller.
        let (xprt, context) = unsafe { ((*rqstp).rq_xprt, (*rqstp).rq_xprt_ctxt) };
        // SAFETY: A connection of ours, to which the thread has a reference.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        // SAFETY: Null, or set by `recvfrom` and not yet released. One thread has the call.
        let context = unsafe { context.cast::<Context<S>>().as_mut() };
        Some((connection, context?))
    }

    unsafe extern "C" fn sendto(rqstp: *mut bindings::svc_rqst) -> c_int {
        // SAFETY: The RPC server calls this in the thread that has the call.
        let Some((of_us, context)) = (unsafe { Self::call(rqstp) }) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The reply is complete, and the thread does not change it before this returns.
        let reply = unsafe { Reply::from_raw(&(*rqstp).rq_res) };
        let (front, call) = context.front();
        let sent = S::reply(&of_us.connection, call, front, &reply);
        // SAFETY: The thread's own.
        let pages = unsafe { (*rqstp).rq_next_page.offset_from((*rqstp).rq_respages) };
        if pages == 1 {
            // All of the reply was copied. The first page is never one of a file, so the thread may
            // keep it. Otherwise it gets new pages for all that were used.
            // SAFETY: As above.
            unsafe { (*rqstp).rq_next_page = (*rqstp).rq_respages };
        }
        match sent {
            Ok(()) => 0,
            Err(error) => {
                // The client must see that its reply is lost (RFC 8166 4.5).
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
        // SAFETY: The RPC server calls this in the thread that has the call.
        match unsafe { Self::call(rqstp) } {
            Some((_, context)) => {
                let (front, call) = context.front();
                S::result(call, front, from, len).map_or_else(Error::to_errno, |()| 0)
            }
            None => 0,
        }
    }

    unsafe extern "C" fn release_ctxt(xprt: *mut bindings::svc_xprt, context: *mut c_void) {
        if context.is_null() {
            return;
        }
        // SAFETY: Set by `recvfrom`, and released once: the RPC server forgets it.
        let context = unsafe { KBox::from_raw(context.cast::<Context<S>>()) };
        // SAFETY: The call's connection, to which the caller has a reference.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        Context::end(context, |call| S::over(&connection.connection, call));
    }

    unsafe extern "C" fn release_none(_xprt: *mut bindings::svc_xprt, _context: *mut c_void) {}

    unsafe extern "C" fn detach_connection(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server calls this for a connection of ours.
        let connection = unsafe { SvcXprt::<Connection<S>>::inner(xprt) };
        connection.inbox.detach();
        connection.line.end();
        S::detach(&connection.connection);
    }

    unsafe extern "C" fn free_connection(xprt: *mut bindings::svc_xprt) {
        // SAFETY: The RPC server has detached the connection and forgotten it.
        unsafe { SvcXprt::<Connection<S>>::inner(xprt) }
            .line
            .forget();
        // SAFETY: As above.
        unsafe { SvcXprt::<Connection<S>>::free(xprt) }
    }

    /// Returns that there is room: a full send queue must not stop what arrives.
    unsafe extern "C" fn has_wspace(_xprt: *mut bindings::svc_xprt) -> c_int {
        1
    }

    unsafe extern "C" fn kill_temp_xprt(_xprt: *mut bindings::svc_xprt) {}
}
