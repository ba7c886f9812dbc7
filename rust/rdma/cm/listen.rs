// SPDX-License-Identifier: GPL-2.0

//! The passive side of connection management: [`Listener`], and requests that become a [`CmId`].

use super::{
    cm_event,
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
        atomic::Atomic,
        new_mutex,
        Arc, //
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

/// The content of a connection request. Numbers of the peer are as received: not validated.
#[derive(Clone, Copy, Debug)]
pub struct RequestInfo<'a> {
    /// Private data of the request, perhaps followed by zeroes.
    pub private_data: &'a [u8],
    /// RDMA Reads that the peer serves at a time.
    pub reads: u8,
    /// The device that it came to can Send With Invalidate.
    pub invalidates: bool,
    /// The peer's address.
    pub peer: SocketAddr,
}

/// Handles the requests of one [`Listener`].
///
/// All methods are called in process context on a work queue of the connection manager, with the
/// handler mutexes of the listener and of the request held: they may sleep, but must not wait for
/// the end of the listener or of a request.
pub trait ListenHandler: Send + Sync + 'static {
    /// Handles the events of a request and of the connection that it becomes.
    type Events: CmHandler + 'static;

    /// Decides about a request. `None` rejects it.
    fn request(&self, request: &RequestInfo<'_>) -> Option<Arc<Self::Events>>;

    /// A request waits for [`Listener::take`].
    fn arrived(&self);

    /// A request is rejected before [`ListenHandler::request`] is asked: as many wait as may.
    fn turned_away(&self) {}

    /// The device with the address that is listened at is being removed. Its removal waits until
    /// the listener is dropped, which the handler must not do itself. A wildcard address has no
    /// device, so a handler of such listeners alone need do nothing.
    fn removed(&self) {}
}

/// A request that waits to be accepted. Dropping it rejects it.
pub struct Request<H: ListenHandler> {
    /// The id of the connection to be.
    pub id: CmId,
    /// What [`ListenHandler::request`] made.
    pub events: Arc<H::Events>,
}

/// An id that listens, destroyed on drop, with the requests that wait.
///
/// # Invariants
///
/// - `id` is valid until `drop` and its context is `context`.
/// - Dropped only where it may sleep and outside of a handler of its own.
///
/// # Examples
///
/// ```
/// # use core::net::{Ipv4Addr, SocketAddr};
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::net::Net;
/// # use xprtrdma_rdma::cm::{
/// #     listen::{AcceptParam, ListenHandler, Listener, Request, RequestInfo},
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
    id: NonNull<bindings::rdma_cm_id>,
    // Dropped after the id is destroyed, i.e. when no event can come any more. The requests go with
    // it; the CM does not count them as the listener's.
    context: Pin<KBox<ListenContext<H>>>,
}

// SAFETY: An id has no thread affinity.
unsafe impl<H: ListenHandler> Send for Listener<H> {}
// SAFETY: The id is not used between its creation and its end.
unsafe impl<H: ListenHandler> Sync for Listener<H> {}

#[pin_data]
struct ListenContext<H: ListenHandler> {
    handler: H,
    #[pin]
    queue: SpinLock<Queue<H>>,
}

struct Queue<H: ListenHandler> {
    /// Never grows beyond its capacity.
    waiting: KVec<Request<H>>,
    closed: bool,
}

impl<H: ListenHandler> Queue<H> {
    fn has_room(&self) -> bool {
        !self.closed && self.waiting.len() < self.waiting.capacity()
    }
}

impl<H: ListenHandler> Listener<H> {
    /// Listens at an address of a namespace. A wildcard stands for all devices, also for those that
    /// come later; an IPv6 one does not stand for IPv4. No more than `most` requests wait at a
    /// time; others are rejected. May sleep.
    ///
    /// `EADDRINUSE`: the port is taken. `ENODEV`: no RDMA device has the address.
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
        let raw: *const ListenContext<H> = &*context;
        // SAFETY: `net` is valid by its type. The context outlives the id: both are owned by the
        // value built below, which destroys the id first.
        let id = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(listen_event::<H>),
                raw.cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                NAME.as_char_ptr(),
            )
        })?;
        // INVARIANT: `id` was just created with `context`.
        let listener = Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            context,
        };
        // SAFETY: The id is valid, and nothing else uses it.
        to_result(unsafe { bindings::rdma_set_afonly(id, 1) })?;
        with_raw(addr, |addr| {
            // SAFETY: As above. `addr` is an initialised socket address of the family that it
            // names; the callee copies it.
            to_result(unsafe { bindings::rdma_bind_addr(id, addr.cast_mut()) })
        })?;
        let backlog = c_int::try_from(most)?;
        // SAFETY: As above, and bound.
        to_result(unsafe { bindings::rdma_listen(id, backlog) })?;
        Ok(listener)
    }

    /// Returns what handles the requests.
    pub fn handler(&self) -> &H {
        &self.context.handler
    }

    /// Returns the address that the id is bound to.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        // SAFETY: The id is valid by the type invariant; its address was written before it began to
        // listen. `sockaddr_storage` has room for either family.
        let storage = unsafe { &raw const (*self.id.as_ptr()).route.addr.src_addr };
        // SAFETY: As above.
        unsafe { addr_from_raw(storage.cast()) }
    }

    /// Takes the oldest request that waits.
    pub fn take(&self) -> Option<Request<H>> {
        self.context.queue.lock().waiting.remove(0).ok()
    }

    /// Returns whether a request waits.
    pub fn is_waiting(&self) -> bool {
        !self.context.queue.lock().waiting.is_empty()
    }

    /// Rejects what waits, and all that comes. May sleep; must not be called by the handler.
    pub fn close(&self) {
        let mut queue = self.context.queue.lock();
        queue.closed = true;
        let waiting = core::mem::take(&mut queue.waiting);
        drop(queue);
        // Destroying an id waits for its handler, which may be about to queue it.
        drop(waiting);
    }
}

impl<H: ListenHandler> Drop for Listener<H> {
    fn drop(&mut self) {
        // SAFETY: `id` is valid by the type invariant and not used again. The callee waits for
        // running handlers, so `context` may be freed afterwards.
        unsafe { bindings::rdma_destroy_id(self.id.as_ptr()) }
    }
}

/// Returns whether a device can invalidate a key of the peer with a message.
///
/// # Safety
///
/// The device exists.
unsafe fn can_invalidate(dev: *const bindings::ib_device) -> bool {
    const ABILITY: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    // SAFETY: By this function's contract. Its attributes are constant after registration.
    unsafe { (*dev).attrs.device_cap_flags & ABILITY != 0 }
}

impl<H: ListenHandler> ListenContext<H> {
    /// Takes a request in. `false`: the CM is to reject it and to destroy its id.
    ///
    /// # Safety
    ///
    /// The CM delivers a connection request with this id and `conn`, and the handler has not
    /// returned: no other event of the id comes before that.
    unsafe fn incoming(
        &self,
        id: NonNull<bindings::rdma_cm_id>,
        conn: &bindings::rdma_conn_param,
    ) -> bool {
        // At first, for the handler may close other connections in favour of a request that it
        // takes.
        if !self.queue.lock().has_room() {
            self.handler.turned_away();
            return false;
        }
        // SAFETY: The CM has written the address before. `sockaddr_storage` has room for either
        // family.
        let storage = unsafe { &raw const (*id.as_ptr()).route.addr.dst_addr };
        // SAFETY: As above.
        let Some(peer) = (unsafe { addr_from_raw(storage.cast()) }) else {
            return false;
        };
        let info = RequestInfo {
            // SAFETY: By this function's contract.
            private_data: unsafe { conn_private_data(conn) },
            reads: conn.initiator_depth,
            // SAFETY: The device of a request exists as long as its id.
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
            // The id goes with the CM; nothing of ours is in it.
            drop(queue);
            drop(context);
            return false;
        }
        // SAFETY: The request is in its handler, so nothing else uses the id; the caller has the CM
        // keep it, for this returns `true` from here on.
        let id = unsafe { CmId::adopt(id, context) };
        let request = Request { id, events };
        if let Err(full) = queue.waiting.push_within_capacity(request) {
            // Cannot be: there was room. Better a leak than an id that is destroyed in its handler.
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
/// Called by rdma_cm only: `event` is valid for the call, and `id` was made by [`Listener::new`],
/// or is a connection request to such an id.
unsafe extern "C" fn listen_event<H: ListenHandler>(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: The context was given to `__rdma_create_kernel_id` by `new`, and lives until the id
    // is destroyed, which waits for this handler. A request begins with the listener's context.
    let context = unsafe { &*(*id).context.cast::<ListenContext<H>>().cast_const() };
    // SAFETY: `event` is valid for the duration of the call.
    let event = unsafe { &*event };
    if event.event != bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_REQUEST {
        if event.event == bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL {
            context.handler.removed();
        }
        // The id has an owner: never ask the CM to destroy it.
        return 0;
    }
    let Some(id) = NonNull::new(id) else {
        return 1;
    };
    // SAFETY: `conn` is the member that this event fills in.
    let conn = unsafe { event.param.conn.as_ref() };
    // SAFETY: By this function's contract.
    match unsafe { context.incoming(id, conn) } {
        true => 0,
        // The CM rejects the request and destroys its id.
        false => 1,
    }
}

impl Context {
    /// Makes the context of a request: its device and its addresses are known.
    fn of_request(handler: Arc<dyn CmHandler>) -> Result<Pin<KBox<Self>>> {
        KBox::pin_init(
            pin_init!(Self {
                handler,
                has_device: Atomic::new(true),
                resolved: Atomic::new(true),
                calls <- new_mutex!((), "CmId::calls"),
            }),
            GFP_KERNEL,
        )
    }
}

/// What an accept says.
#[derive(Clone, Copy, Debug)]
pub struct AcceptParam {
    /// Private data (RFC 8797).
    pub private_data: [u8; 8],
    /// Maximum number of RDMA Reads that we may have in flight: no more than the peer serves.
    pub reads: u8,
}

impl CmId {
    /// Makes the id of a connection request ours: its events go to the handler of `context`.
    ///
    /// # Safety
    ///
    /// The CM is delivering the connection request, and the event handler will return a value that
    /// makes the CM keep the id.
    unsafe fn adopt(id: NonNull<bindings::rdma_cm_id>, context: Pin<KBox<Context>>) -> Self {
        let raw: *const Context = &*context;
        // SAFETY: By this function's contract nothing else uses the id.
        unsafe { (*id.as_ptr()).context = raw.cast_mut().cast() };
        // SAFETY: As above.
        unsafe { (*id.as_ptr()).event_handler = Some(cm_event) };
        // INVARIANT: The id belongs to this value, and its context is `context`, whose device and
        // addresses the CM has written.
        Self {
            id,
            has_qp: Atomic::new(false),
            context,
        }
    }

    /// Accepts the request that the id came with. Receives must be posted before. May sleep; must
    /// not be called by the id's handler.
    ///
    /// The peer may have no RDMA Reads under way: no memory of ours is open to it.
    pub fn accept(&self, param: &AcceptParam) -> Result {
        let mut raw = bindings::rdma_conn_param {
            private_data: param.private_data.as_ptr().cast(),
            private_data_len: 8,
            responder_resources: 0,
            initiator_depth: param.reads,
            // A peer that sends more than it was granted loses the connection at once.
            rnr_retry_count: 0,
            ..Default::default()
        };
        let _calls = self.context.calls.lock();
        // SAFETY: `id` is valid by the type invariant, and nothing disconnects it at the same time;
        // the callee copies the parameters and the eight bytes of private data.
        to_result(unsafe { bindings::xprtrdma_accept(self.as_raw(), &mut raw) })
    }

    /// Returns the peer's address and port; `None` before they are known.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        if !self.is_resolved() {
            return None;
        }
        // SAFETY: `id` is valid; the address does not change any more. `sockaddr_storage` has room
        // for either family.
        let storage = unsafe { &raw const (*self.as_raw()).route.addr.dst_addr };
        // SAFETY: As above.
        unsafe { addr_from_raw(storage.cast()) }
    }
}
