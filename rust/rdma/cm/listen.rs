// SPDX-License-Identifier: GPL-2.0

//! The passive side of connection management: [`Listener`], and connection requests that become a
//! [`CmId`].

use super::{
    conn_private_data,
    CmHandler,
    CmId,
    Context, //
};
use core::{
    net::SocketAddr,
    ptr::NonNull, //
};
use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_base::{
    net::{
        addr_from_raw,
        with_raw,
        Net, //
    },
    new_spinlock,
    spin::SpinLock,
    NAME, //
};
use xprtrdma_bindings as bindings;

/// The content of a connection request. Numbers from the peer are passed on as received, without
/// validation.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo<'a> {
    /// Private data of the request, perhaps followed by zeroes.
    pub private_data: &'a [u8],
    /// Maximum number of RDMA Reads that the peer serves at a time.
    pub reads: u8,
    /// Maximum number of RDMA Reads that the peer may have in flight.
    pub peer_reads: u8,
    /// Whether the device on which the request arrived supports Send With Invalidate.
    pub invalidates: bool,
    /// The peer's address.
    pub peer: SocketAddr,
}

/// Handles the connection requests of one [`Listener`].
///
/// All methods are called in process context on a work queue of the connection manager, with the
/// handler mutexes of the listener and of the request held. The methods may sleep, but must not
/// wait until the listener or a request is destroyed.
pub trait ListenHandler: Send + Sync + 'static {
    /// The handler for the events of a request and of its later connection.
    type Events: CmHandler + 'static;

    /// Decides whether to accept a request. Returns the handler for its events, or `None` to reject
    /// the request.
    fn request(&self, request: &RequestInfo<'_>) -> Option<Arc<Self::Events>>;

    /// Called when a request has been queued for [`Listener::take`].
    fn arrived(&self);

    /// Called when a request is rejected without a call of [`ListenHandler::request`], because the
    /// queue of waiting requests is full.
    fn turned_away(&self) {}

    /// Called when the device with the listener's address is being removed. The removal waits until
    /// the listener is dropped. Another thread must drop the listener, because the handler must not
    /// do so. A listener with a wildcard address has no device, so its handler need not implement
    /// this method.
    fn removed(&self) {}

    /// Called when the hardware address that belongs to the listener's address has changed, for
    /// example because a bond has switched to another interface. Requests may now arrive at a
    /// device on which the listener does not listen. This ends when [`Listener::listen_again`] is
    /// called, which the handler itself must not do.
    ///
    /// Not called in two cases: the listener has a wildcard address, or the address belongs to a
    /// bond with `fail_over_mac=none`. The hardware address of such a bond never changes.
    fn moved(&self) {}
}

/// A connection request that waits to be accepted. Dropping it rejects the request.
pub struct Request<H: ListenHandler> {
    /// The id of the future connection.
    pub id: CmId,
    /// The handler that [`ListenHandler::request`] returned.
    pub events: Arc<H::Events>,
}

/// An id that listens, with the requests that wait to be accepted. Dropping the listener destroys
/// the id and rejects these requests.
///
/// # Invariants
///
/// - `id` is valid as long as its lock is held, and until `drop`. Its context is `context`.
/// - The object is dropped only where the thread may sleep, and not by one of its own handlers.
///
/// # Examples
///
/// ```
/// # use core::net::{Ipv4Addr, SocketAddr};
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::net::Net;
/// # use xprtrdma_rdma::cm::{
/// #     accept::AcceptParam,
/// #     listen::{ListenHandler, Listener, Request, RequestInfo},
/// #     CmEvent,
/// #     CmHandler,
/// # };
/// struct Events;
///
/// impl CmHandler for Events {
///     fn event(&self, _: CmEvent<'_>) {}
/// }
///
/// struct Open;
///
/// impl ListenHandler for Open {
///     type Events = Events;
///
///     fn request(&self, request: &RequestInfo<'_>) -> Option<Arc<Events>> {
///         // A peer that serves no RDMA Reads is rejected.
///         (request.reads != 0).then(|| Arc::new(Events, GFP_KERNEL).ok())?
///     }
///
///     fn arrived(&self) {
///         // Here the thread that accepts is woken.
///     }
///
///     fn removed(&self) {
///         // Here the owner of the listener is told to drop it.
///     }
/// }
///
/// fn listen(net: &Net) -> Result<Listener<Open>> {
///     let addr = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 20049);
///     Listener::new(net, &addr, 64, Open)
/// }
///
/// fn accept(listener: &Listener<Open>) -> Result {
///     let request: Request<Open> = listener.take().ok_or(EAGAIN)?;
///     // Here the queue pair of the id is made, and its Receives are posted.
///     request.id.accept(&AcceptParam { private_data: [0; 8], reads: 4 })
/// }
/// ```
pub struct Listener<H: ListenHandler> {
    id: Pin<KBox<Mutex<NonNull<bindings::rdma_cm_id>>>>,
    /// The address to which the listening id is bound.
    local: SocketAddr,
    /// Maximum number of requests that wait.
    most: c_int,
    // This field is dropped after the id has been destroyed, when no event can arrive any more.
    // Dropping the field rejects the waiting requests. The CM does not destroy these requests
    // together with the listener.
    context: Pin<KBox<ListenContext<H>>>,
}

// SAFETY: Any thread may use an id.
unsafe impl<H: ListenHandler> Send for Listener<H> {}
// SAFETY: The id is used with its lock held.
unsafe impl<H: ListenHandler> Sync for Listener<H> {}

#[pin_data]
struct ListenContext<H: ListenHandler> {
    handler: H,
    #[pin]
    queue: SpinLock<Queue<H>>,
}

struct Queue<H: ListenHandler> {
    /// The queue of requests, which never grows beyond its capacity.
    waiting: KVec<Request<H>>,
    closed: bool,
}

impl<H: ListenHandler> Queue<H> {
    fn has_room(&self) -> bool {
        !self.closed && self.waiting.len() < self.waiting.capacity()
    }
}

impl<H: ListenHandler> Listener<H> {
    /// Listens at an address of a namespace. A wildcard address listens on all devices, including
    /// devices that are added later. An IPv6 wildcard address does not include IPv4. At most `most`
    /// requests wait at a time; further requests are rejected. May sleep.
    ///
    /// Returns `EADDRINUSE` if the port is in use, and `ENODEV` if no RDMA device has the address.
    pub fn new(net: &Net, addr: &SocketAddr, most: usize, handler: H) -> Result<Self> {
        let queue = Queue {
            waiting: KVec::with_capacity(most, GFP_KERNEL)?,
            closed: false,
        };
        let context = KBox::pin_init(
            pin_init!(ListenContext {
                handler,
                queue <- new_spinlock!(queue, "Listener::queue"),
            }),
            GFP_KERNEL,
        )?;
        let most = c_int::try_from(most)?;
        // SAFETY: `net` is valid by its type. The object that is created below destroys the id
        // before its context.
        let id = unsafe { create_id(net.as_raw(), &*context) }?;
        let lock = match KBox::pin_init(new_mutex!(id, "Listener::id"), GFP_KERNEL) {
            Ok(lock) => lock,
            Err(e) => {
                // SAFETY: The id was created above, and is not used again.
                unsafe { bindings::rdma_destroy_id(id.as_ptr()) };
                return Err(e);
            }
        };
        // INVARIANT: `id` was created with `context`.
        let mut listener = Self {
            id: lock,
            local: *addr,
            most,
            context,
        };
        // SAFETY: By the type invariant the id is valid. Nothing else uses the id.
        unsafe { listen(id, addr, most) }?;
        // SAFETY: The id is valid, and its address was written before it began to listen.
        // `sockaddr_storage` has space for either family.
        let storage = unsafe { &raw const (*id.as_ptr()).route.addr.src_addr };
        // SAFETY: The address is initialised, and its family says how long it is.
        listener.local = unsafe { addr_from_raw(storage.cast()) }.ok_or(EINVAL)?;
        Ok(listener)
    }

    /// Listens at the same address again, on the device that now has this address. Requests that
    /// wait stay in the queue. For a moment no id listens, and the device rejects requests. May
    /// sleep; must not be called by the handler.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Listener::new`]. After an error it is possible that the object does
    /// not listen any more. The caller may call this method again.
    pub fn listen_again(&self) -> Result {
        let mut id = self.id.lock();
        // SAFETY: By the type invariant the id is valid. The id holds a reference to its namespace.
        let net = unsafe { (*id.as_ptr()).route.addr.dev_addr.net };
        // SAFETY: The namespace is valid as long as the old id, and the callee takes a reference to
        // it. This object destroys the id before its context.
        let new = unsafe { create_id(net, &*self.context) }?;
        // INVARIANT: The id was created with `context`.
        let old = core::mem::replace(&mut *id, new);
        // The new id cannot listen before the old id is destroyed, because both use the same port.
        // SAFETY: The old id is not used again. The callee waits for running handlers, which do not
        // take the lock of the listener's id.
        unsafe { bindings::rdma_destroy_id(old.as_ptr()) };
        // SAFETY: By the type invariant the id is valid. Only this thread uses the id.
        unsafe { listen(new, &self.local, self.most) }
    }

    /// Returns the handler of connection requests.
    pub fn handler(&self) -> &H {
        &self.context.handler
    }

    /// Returns the address at which the object listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Takes the oldest waiting request from the queue and returns it.
    pub fn take(&self) -> Option<Request<H>> {
        self.take_if(|_| true)
    }

    /// Takes the oldest waiting request for whose handler `f` returns true from the queue, and
    /// returns the request. `f` must not sleep.
    pub fn take_if(&self, f: impl Fn(&H::Events) -> bool) -> Option<Request<H>> {
        let mut queue = self.context.queue.lock();
        let at = queue.waiting.iter().position(|each| f(&each.events))?;
        queue.waiting.remove(at).ok()
    }

    /// Returns true if a request waits.
    pub fn is_waiting(&self) -> bool {
        !self.context.queue.lock().waiting.is_empty()
    }

    /// Rejects all requests that wait, and all later requests. May sleep; must not be called by the
    /// handler.
    pub fn close(&self) {
        let mut queue = self.context.queue.lock();
        queue.closed = true;
        let waiting = core::mem::take(&mut queue.waiting);
        drop(queue);
        // The lock was released above for this reason: dropping a request calls
        // `rdma_destroy_id()`, which waits for the handler. The handler may need the lock, because
        // it may be about to queue a request.
        drop(waiting);
    }
}

impl<H: ListenHandler> Drop for Listener<H> {
    fn drop(&mut self) {
        let id = self.id.lock();
        // SAFETY: By the type invariant `id` is valid. It is not used again. The callee waits for
        // running handlers. No handler takes the lock of `id`, so the wait ends. Afterwards
        // `context` may be freed.
        unsafe { bindings::rdma_destroy_id(id.as_ptr()) }
    }
}

/// Creates an id whose events go to `context`.
///
/// # Safety
///
/// `net` is valid. The id is destroyed before `context` is freed.
unsafe fn create_id<H: ListenHandler>(
    net: *mut bindings::net,
    context: *const ListenContext<H>,
) -> Result<NonNull<bindings::rdma_cm_id>> {
    // SAFETY: By this function's contract `net` is valid, and the context outlives the id.
    let id = from_err_ptr(unsafe {
        bindings::__rdma_create_kernel_id(
            net,
            Some(listen_event::<H>),
            context.cast_mut().cast(),
            bindings::rdma_ucm_port_space_RDMA_PS_TCP,
            bindings::ib_qp_type_IB_QPT_RC,
            NAME.as_char_ptr(),
        )
    })?;
    NonNull::new(id).ok_or(ENOMEM)
}

/// Makes an id listen at an address.
///
/// # Safety
///
/// The id is valid and new, and only the caller uses it.
unsafe fn listen(id: NonNull<bindings::rdma_cm_id>, addr: &SocketAddr, most: c_int) -> Result {
    let id = id.as_ptr();
    // SAFETY: By this function's contract the id is valid, and nothing else uses it.
    to_result(unsafe { bindings::rdma_set_afonly(id, 1) })?;
    with_raw(addr, |addr| {
        // SAFETY: By this function's contract the id is valid, and nothing else uses it. `addr` is
        // an initialised socket address of the family that it names. The callee copies it.
        to_result(unsafe { bindings::rdma_bind_addr(id, addr.cast_mut()) })
    })?;
    // SAFETY: By this function's contract the id is valid. The id was bound above.
    to_result(unsafe { bindings::rdma_listen(id, most) })
}

/// Returns true if a device supports Send With Invalidate.
///
/// # Safety
///
/// The device exists.
unsafe fn can_invalidate(dev: *const bindings::ib_device) -> bool {
    const ABILITY: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    // SAFETY: By this function's contract the device exists. Its attributes are constant after
    // registration.
    unsafe { (*dev).attrs.device_cap_flags & ABILITY != 0 }
}

impl<H: ListenHandler> ListenContext<H> {
    /// Queues a request. Returns `false` if the CM must reject the request and destroy its id.
    ///
    /// # Safety
    ///
    /// The CM is delivering a connection request with this id and `conn`. The handler has not
    /// returned, so no other event of the id is delivered.
    unsafe fn incoming(
        &self,
        id: NonNull<bindings::rdma_cm_id>,
        conn: &bindings::rdma_conn_param,
    ) -> bool {
        // If the queue is full, the request is rejected, and [`ListenHandler::request`] is not
        // called. Otherwise that method might close another connection to make room for the
        // rejected one.
        if !self.queue.lock().has_room() {
            self.handler.turned_away();
            return false;
        }
        // SAFETY: The CM has written the address. `sockaddr_storage` has space for either family.
        let storage = unsafe { &raw const (*id.as_ptr()).route.addr.dst_addr };
        // SAFETY: The address is initialised, and its family says how long it is.
        let Some(peer) = (unsafe { addr_from_raw(storage.cast()) }) else {
            return false;
        };
        let info = RequestInfo {
            // SAFETY: By this function's contract `conn` is part of a delivered event, and the
            // handler of the event has not returned.
            private_data: unsafe { conn_private_data(conn) },
            reads: conn.initiator_depth,
            peer_reads: conn.responder_resources,
            // SAFETY: The device of the request's id exists as long as this id.
            invalidates: unsafe { can_invalidate((*id.as_ptr()).device) },
            peer,
        };
        let Some(events) = self.handler.request(&info) else {
            return false;
        };
        let Ok(context) = Context::of_request(events.clone()) else {
            return false;
        };
        let mut queue = self.queue.lock();
        if !queue.has_room() {
            // The CM destroys the id, which does not refer to any object of this module.
            drop(queue);
            drop(context);
            return false;
        }
        // SAFETY: The handler of the request is running, so nothing else uses the id. This function
        // returns `true` from here on, so that the CM keeps the id.
        let id = unsafe { CmId::adopt(id, context) };
        let request = Request { id, events };
        if let Err(full) = queue.waiting.push_within_capacity(request) {
            // The queue had space, so this branch is never taken. A CM id must not be destroyed in
            // its own handler, so this branch would leak the id.
            core::mem::forget(full);
            return true;
        }
        drop(queue);
        self.handler.arrived();
        true
    }
}

/// # Safety
///
/// Only rdma_cm calls this. `event` is valid during the call. `id` belongs to a [`Listener`], or to
/// a connection request that a [`Listener`] received.
unsafe extern "C" fn listen_event<H: ListenHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: `create_id` passed the context to `__rdma_create_kernel_id`. At first, the id of a
    // new connection request has the listener's context. The context exists until the listener's id
    // is destroyed, and the destruction waits for this handler.
    let context = unsafe { &*(*id).context.cast::<ListenContext<H>>().cast_const() };
    // SAFETY: `event` is valid during the call.
    let event = unsafe { &*event };
    if event.event != bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        match event.event {
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => context.handler.removed(),
            bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => context.handler.moved(),
            _ => {}
        }
        // Zero means that the CM keeps the id. The CM would destroy the id if this handler returned
        // another value.
        return 0;
    }
    let Some(id) = NonNull::new(id) else {
        return 1;
    };
    // SAFETY: `conn` is the union member that this event sets.
    let conn = unsafe { event.param.conn.as_ref() };
    // SAFETY: By this function's contract the CM delivers this event now, and `id` and `conn`
    // belong to the event.
    match unsafe { context.incoming(id, conn) } {
        true => 0,
        // The CM rejects the request and destroys its id.
        false => 1,
    }
}
