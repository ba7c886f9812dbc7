// SPDX-License-Identifier: GPL-2.0

//! Connection management: [`CmId`] wraps `struct rdma_cm_id`.
//!
//! C headers: [`include/rdma/rdma_cm.h`](srctree/include/rdma/rdma_cm.h).

use core::{
    net::SocketAddr,
    ptr::{self, NonNull}, //
};
use kernel::{
    error::{from_err_ptr, to_result},
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Release, //
        },
        new_mutex,
        Arc,
        Mutex, //
    }, //
};
use xprtrdma_base::{
    compat,
    net::{
        addr_from_raw,
        with_raw,
        Net, //
    },
    NAME, //
};
use xprtrdma_bindings as bindings;

#[cfg(xprtrdma_server)]
pub mod accept;
#[cfg(xprtrdma_rds)]
pub mod both;
#[cfg(xprtrdma_server)]
pub mod listen;

/// Events of the connection manager for the owner of a [`CmId`].
///
/// Numbers from the peer (private data, depths) are passed on as received, without validation.
#[derive(Clone, Copy, Debug)]
pub enum CmEvent<'a> {
    /// The address belongs to an RDMA device. [`DeviceInfo::of`](crate::device::DeviceInfo::of)
    /// describes the device from now on.
    AddrResolved,
    /// The address belongs to no RDMA device. Contains the errno.
    AddrError(i32),
    /// A route to the peer exists.
    RouteResolved,
    /// Route resolution failed. Contains the errno.
    RouteError(i32),
    /// The peer accepted the connection.
    Established {
        /// Private data of the accept message, perhaps followed by zeroes (RFC 8797 5.2).
        private_data: &'a [u8],
        /// Maximum number of RDMA Reads that the peer may have in flight to this host: the peer's
        /// initiator depth. The CM reports this number as the number of Reads that this host has to
        /// serve.
        peer_read_depth: u8,
        /// Maximum number of RDMA Reads that this host may have in flight to the peer: the number
        /// that the peer serves. The value is valid only if this host has sent the connect request.
        /// On iWARP it is never valid, because the iWARP drivers differ in what they report.
        own_read_depth: u8,
    },
    /// The exchange of CM messages failed. Contains the errno.
    ConnectError(i32),
    /// The peer does not answer. Contains the errno.
    Unreachable(i32),
    /// The peer refused the connection.
    Rejected {
        /// Reason code of the InfiniBand CM or errno of the iWARP CM.
        reason: i32,
        /// Whether the peer still has an old connection between the same queue pairs.
        stale: bool,
    },
    /// This host or the peer ended the connection.
    Disconnected,
    /// The local address of the connection moved to another device.
    AddrChange,
    /// The device is being removed: all objects on it must be destroyed soon.
    DeviceRemoval,
    /// The time-wait state of the queue pair has ended.
    TimewaitExit,
    /// An event that the client side never receives.
    Other(u32),
}

/// Receives the events of one [`CmId`].
///
/// Called in process context on a work queue of the connection manager, with the id's handler mutex
/// held. The handler may sleep. It must not wait, directly or indirectly, until the id is
/// destroyed: the destruction waits for the handler.
pub trait CmHandler: Send + Sync {
    /// Handles one event.
    fn event(&self, event: CmEvent<'_>);
}

/// Parameters of a connect request.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParam {
    /// Private data of the request (RFC 8797).
    pub private_data: [u8; 8],
    /// Maximum number of RDMA Reads that this host serves at a time.
    pub responder_resources: u8,
    /// Number of retries before the connection is declared dead (0..=7).
    pub retry_count: u8,
    /// Number of retries if the peer has no Receive posted (0..=7).
    pub rnr_retry_count: u8,
}

#[pin_data]
struct Context {
    handler: Arc<dyn CmHandler>,
    /// Whether the device of the id is known. Once known, it does not change.
    has_device: Atomic<bool>,
    /// Whether the local address of the id is known. Once known, it does not change.
    resolved: Atomic<bool>,
    /// Held during the calls that bind the id, start address resolution, create its queue pair,
    /// connect or disconnect.
    #[pin]
    calls: Mutex<()>,
}

/// An RC communication identifier, destroyed on drop.
///
/// Once the id has a device, the device exists as long as the id: before rdma_cm removes a device,
/// it waits until every id on the device is destroyed. So objects on the device hold the id in an
/// [`Arc`].
///
/// # Invariants
///
/// - `id` is valid until `drop` and its context is `context`.
/// - The thread that binds the id or starts address resolution holds `context.calls`. The lock is
///   needed because the CM changes the id's state to "bound" before it writes the address and the
///   device of the id.
/// - The thread that connects or disconnects the id, or creates its queue pair, holds
///   `context.calls`. The lock is needed because the CM stores the objects of a request in the id,
///   and frees them without a lock when the request fails. All three calls use these objects.
/// - The id is dropped only where the thread may sleep, and not by its own handler.
///
/// # Examples
///
/// ```
/// # use core::net::SocketAddr;
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::net::Net;
/// # use xprtrdma_rdma::cm::{CmEvent, CmHandler, CmId, ConnectParam};
/// struct Steps;
///
/// impl CmHandler for Steps {
///     fn event(&self, event: CmEvent<'_>) {
///         match event {
///             CmEvent::AddrResolved => pr_info!("the device is known\n"),
///             CmEvent::Established { .. } => pr_info!("connected\n"),
///             CmEvent::Disconnected => pr_info!("disconnected\n"),
///             _ => {}
///         }
///     }
/// }
///
/// /// Connects. Each step ends with an event, for which a driver waits before the next step.
/// fn connect(net: &Net, peer: &SocketAddr) -> Result<CmId> {
///     let id = CmId::create(net, Arc::new(Steps, GFP_KERNEL)?)?;
///     id.resolve_addr(peer, 5000)?;
///     id.resolve_route(5000)?;
///     // Here the queue pair is made, and its Receives are posted.
///     id.connect(&ConnectParam {
///         private_data: [0; 8],
///         responder_resources: 4,
///         retry_count: 6,
///         rnr_retry_count: 0,
///     })?;
///     Ok(id)
/// }
/// ```
pub struct CmId {
    id: NonNull<bindings::rdma_cm_id>,
    has_qp: Atomic<bool>,
    // This field is dropped after the id has been destroyed, when no event can arrive any more.
    context: Pin<KBox<Context>>,
}

// SAFETY: Any thread may use an id.
unsafe impl Send for CmId {}
// SAFETY: The lock `calls` serialises binding, the start of address resolution, the creation of the
// queue pair, connecting and disconnecting. For all other calls, the CM checks the id's state under
// a lock of its own. No field of the id is read before it has its final value. The only exception
// is the source address on iWARP (see `local_addr`).
unsafe impl Sync for CmId {}

impl CmId {
    /// Creates an id in `net` whose events go to `handler`. May sleep.
    pub fn create(net: &Net, handler: Arc<dyn CmHandler>) -> Result<Self> {
        let context = KBox::pin_init(
            pin_init!(Context {
                handler,
                has_device: Atomic::new(false),
                resolved: Atomic::new(false),
                calls <- new_mutex!((), "CmId::calls"),
            }),
            GFP_KERNEL,
        )?;
        let raw: *const Context = &*context;
        // SAFETY: `net` is valid by its type. The context outlives the id, because the object built
        // below owns both and destroys the id first.
        let id = from_err_ptr(unsafe {
            bindings::__rdma_create_kernel_id(
                net.as_raw(),
                Some(cm_event),
                raw.cast_mut().cast(),
                bindings::rdma_ucm_port_space_RDMA_PS_TCP,
                bindings::ib_qp_type_IB_QPT_RC,
                NAME.as_char_ptr(),
            )
        })?;
        // INVARIANT: `id` was just created with `context`.
        Ok(Self {
            id: NonNull::new(id).ok_or(ENOMEM)?,
            has_qp: Atomic::new(false),
            context,
        })
    }

    /// Binds the id to an address of its namespace. This also selects the device and the interface
    /// that have the address.
    ///
    /// After this call, [`DeviceInfo::of`](crate::device::DeviceInfo::of) describes the device.
    /// Later address resolution uses only this device, and only routes through this interface. Port
    /// 0 selects any free port. A link-local address needs a scope. May sleep; must not be called
    /// by the id's handler.
    ///
    /// Returns `EADDRNOTAVAIL` if no interface has the address, `ENODEV` if no RDMA device has the
    /// address, and `EADDRINUSE` if the port is in use. Returns `EINVAL` if the id was already used
    /// for another step, or if a link-local address has no scope. After an error the id must not be
    /// used for connecting.
    pub fn bind_addr(&self, local: &SocketAddr) -> Result {
        let _calls = self.context.calls.lock();
        with_raw(local, |addr| {
            // SAFETY: By the type invariant, `id` is valid. No other thread binds it or resolves
            // its address during the call. `addr` is an initialised socket address of the family
            // that it names; the callee copies it.
            to_result(unsafe { bindings::rdma_bind_addr(self.as_raw(), addr.cast_mut()) })
        })?;
        // This function fails for a wildcard address and for a loopback address, because these
        // addresses do not select a device.
        // SAFETY: `id` is valid. The CM changes the field `device` when address resolution starts.
        // It cannot start now, because `calls` is held.
        if unsafe { (*self.as_raw()).device.is_null() } {
            return Err(Error::from_errno(compat::EADDRNOTAVAIL));
        }
        // ORDERING: Pairs with the acquire in `raw_device`.
        self.context.has_device.store(true, Release);
        Ok(())
    }

    /// Starts address resolution, which ends with the event [`CmEvent::AddrResolved`] or
    /// [`CmEvent::AddrError`] within `timeout_ms`. May sleep; must not be called by the id's
    /// handler.
    ///
    /// Returns `EINVAL` if the id is bound to an address of the other family, or if the id is not
    /// in a state that allows this step.
    pub fn resolve_addr(&self, peer: &SocketAddr, timeout_ms: u32) -> Result {
        let _calls = self.context.calls.lock();
        with_raw(peer, |addr| {
            // SAFETY: By the type invariant, `id` is valid. No other thread binds it or resolves
            // its address during the call. `addr` is an initialised socket address of the family
            // that it names; the callee copies it.
            to_result(unsafe {
                bindings::rdma_resolve_addr(
                    self.as_raw(),
                    ptr::null_mut(),
                    addr,
                    timeout_ms as usize,
                )
            })
        })
    }

    /// Starts route resolution, which ends with the event [`CmEvent::RouteResolved`] or
    /// [`CmEvent::RouteError`] within `timeout_ms`. Returns `EINVAL` before the event
    /// [`CmEvent::AddrResolved`]. May sleep.
    pub fn resolve_route(&self, timeout_ms: u32) -> Result {
        // The CM changes the id's state to "address resolved" before it sets the device.
        if !self.is_resolved() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant, `id` is valid. It has a device.
        to_result(unsafe { bindings::rdma_resolve_route(self.as_raw(), timeout_ms as usize) })
    }

    /// Sends a connect request. The caller must already have posted Receives. May sleep; must not
    /// be called by the id's handler.
    pub fn connect(&self, param: &ConnectParam) -> Result {
        let mut raw = bindings::rdma_conn_param {
            private_data: param.private_data.as_ptr().cast(),
            private_data_len: 8,
            responder_resources: param.responder_resources,
            initiator_depth: 0,
            flow_control: 0,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            ..Default::default()
        };
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant, `id` is valid. No other thread disconnects it now. The
        // callee copies the parameters and the eight bytes of private data.
        to_result(unsafe { bindings::rdma_connect(self.as_raw(), &mut raw) })
    }

    /// Disconnects, and moves the queue pair to the error state. May sleep; must not be called by
    /// the id's handler.
    ///
    /// If another thread is in [`CmId::connect`], this function waits for it. On iWARP, `connect`
    /// returns only when the peer has answered or the device has given up.
    pub fn disconnect(&self) -> Result {
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant, `id` is valid. No other thread connects it now.
        to_result(unsafe { bindings::rdma_disconnect(self.as_raw()) })
    }

    /// Returns the local address and port of the connection, or `None` before its address is
    /// resolved.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        if !self.is_resolved() {
            return None;
        }
        // SAFETY: `id` is valid. The source address was written before the event `AddrResolved`. On
        // iWARP it is written once more, when the peer's answer arrives and before the event
        // `Established`; a read at that moment may mix both addresses. `sockaddr_storage` has space
        // for either family.
        let storage = unsafe { &raw const (*self.as_raw()).route.addr.src_addr };
        // SAFETY: The address is initialised, because it was written before the event
        // `AddrResolved`. The family of the address determines its length.
        unsafe { addr_from_raw(storage.cast()) }
    }

    /// Returns true if the device reports the port of this id as active. Returns false before the
    /// id is bound or its address is resolved.
    pub fn is_port_active(&self) -> bool {
        if self.raw_device().is_none() {
            return false;
        }
        // SAFETY: By the type invariant, `id` is valid. It has a device, which exists as long as
        // the id. The callee checks the port number.
        unsafe { bindings::xprtrdma_port_is_active(self.as_raw()) }
    }

    /// Claims the right to create the id's only queue pair. Fails if this right was claimed before.
    pub(crate) fn claim_qp(&self) -> Result {
        if self.has_qp.xchg(true, Full) {
            Err(EBUSY)
        } else {
            Ok(())
        }
    }

    /// Creates a queue pair on the id, and returns it. May sleep.
    ///
    /// # Safety
    ///
    /// The domain `pd` and the completion queues in `attr` are valid, and on the device of the id.
    pub(crate) unsafe fn create_qp(
        &self,
        pd: *mut bindings::ib_pd,
        attr: &mut bindings::ib_qp_init_attr,
    ) -> Result<NonNull<bindings::ib_qp>> {
        let _calls = self.context.calls.lock();
        // SAFETY: By the type invariant, `id` is valid. No other thread connects it now. The
        // caller's contract covers the other arguments.
        to_result(unsafe { bindings::rdma_create_qp(self.as_raw(), pd, attr) })?;
        // SAFETY: A successful call has set the id's queue pair.
        NonNull::new(unsafe { (*self.as_raw()).qp }).ok_or(ENOMEM)
    }

    pub(crate) fn as_raw(&self) -> *mut bindings::rdma_cm_id {
        self.id.as_ptr()
    }

    fn is_resolved(&self) -> bool {
        // ORDERING: Pairs with the release in `cm_event`.
        self.context.resolved.load(Acquire)
    }

    /// Returns the device of the id, if the id is bound or its address is resolved.
    pub(crate) fn raw_device(&self) -> Option<NonNull<bindings::ib_device>> {
        // ORDERING: Pairs with the releases in `bind_addr` and `cm_event`.
        if !self.context.has_device.load(Acquire) {
            return None;
        }
        // SAFETY: `id` is valid. `device` is written once: by the call that binds the id, or before
        // the event `AddrResolved`.
        NonNull::new(unsafe { (*self.as_raw()).device })
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, `id` is valid. It is not used again. The callee waits for
        // a running handler, so `context` may be freed afterwards.
        unsafe { bindings::rdma_destroy_id(self.as_raw()) }
    }
}

/// # Safety
///
/// Only rdma_cm calls this. [`CmId::create`] created `id`, and `event` is valid during the call.
unsafe extern "C" fn cm_event(
    id: *mut bindings::rdma_cm_id,
    event: *mut bindings::rdma_cm_event,
) -> c_int {
    // SAFETY: `create` passed the context to `__rdma_create_kernel_id`. The context exists until
    // the id is destroyed, which waits for this handler.
    let context = unsafe { &*(*id).context.cast::<Context>().cast_const() };
    // SAFETY: `event` is valid for the duration of the call.
    let event = unsafe { decode(id, &*event) };
    if matches!(event, CmEvent::AddrResolved) {
        // ORDERING: Pairs with the acquire in `raw_device`.
        context.has_device.store(true, Release);
        // ORDERING: Pairs with the acquire in `is_resolved`.
        context.resolved.store(true, Release);
    }
    context.handler.event(event);
    // The CM would destroy the id if this handler returned a value other than zero.
    0
}

/// Returns the private data of an event.
///
/// # Safety
///
/// `conn` is part of an event that rdma_cm has delivered, and the handler of the event has not
/// returned.
unsafe fn conn_private_data(conn: &bindings::rdma_conn_param) -> &[u8] {
    if conn.private_data.is_null() {
        return &[];
    }
    // SAFETY: The CM guarantees `private_data_len` readable bytes until the handler returns.
    unsafe { core::slice::from_raw_parts(conn.private_data.cast(), conn.private_data_len.into()) }
}

/// # Safety
///
/// rdma_cm delivered `event` for `id`, and the handler of the event has not returned.
unsafe fn decode<'a>(
    id: *const bindings::rdma_cm_id,
    event: &'a bindings::rdma_cm_event,
) -> CmEvent<'a> {
    let status = event.status;
    match event.event {
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_RESOLVED => CmEvent::AddrResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_ERROR => CmEvent::AddrError(status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_RESOLVED => CmEvent::RouteResolved,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ROUTE_ERROR => CmEvent::RouteError(status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ESTABLISHED => {
            // SAFETY: `conn` is the union member that this event sets.
            let conn = unsafe { event.param.conn.as_ref() };
            // SAFETY: By this function's contract the handler of the event has not returned.
            let private_data = unsafe { conn_private_data(conn) };
            // SAFETY: An established connection has a device, which exists as long as the id.
            let node = unsafe { (*(*id).device).node_type };
            let depths = (conn.responder_resources, conn.initiator_depth);
            // iWARP drivers report the number of Reads that this host serves in `initiator_depth`,
            // and not in `responder_resources`.
            let (peer_read_depth, own_read_depth) = match u32::from(node) {
                bindings::RDMA_NODE_RNIC => (depths.1, depths.0),
                _ => depths,
            };
            CmEvent::Established {
                private_data,
                peer_read_depth,
                own_read_depth,
            }
        }
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_CONNECT_ERROR => CmEvent::ConnectError(status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_UNREACHABLE => CmEvent::Unreachable(status),
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED => CmEvent::Rejected {
            reason: status,
            // The reason codes are those of the InfiniBand CM. iWARP reports negative errnos.
            stale: u32::try_from(status) == Ok(bindings::ib_cm_rej_reason_IB_CM_REJ_STALE_CONN),
        },
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DISCONNECTED => CmEvent::Disconnected,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_ADDR_CHANGE => CmEvent::AddrChange,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_DEVICE_REMOVAL => CmEvent::DeviceRemoval,
        bindings::rdma_cm_event_type_RDMA_CM_EVENT_TIMEWAIT_EXIT => CmEvent::TimewaitExit,
        other => CmEvent::Other(other),
    }
}
