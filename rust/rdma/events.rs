// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a device and its ports ([`DeviceEvents`]).
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h).

use crate::cm::CmId;
use kernel::{
    container_of,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

/// An asynchronous event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceEvent {
    /// The number (`enum ib_event_type`).
    pub number: u32,
    /// The port that it is about; `None`: the device as a whole.
    pub port: Option<u32>,
}

impl DeviceEvent {
    /// Reads an event.
    fn of(raw: &bindings::ib_event) -> Self {
        let number = raw.event;
        let is_of_port = matches!(
            number,
            bindings::ib_event_type_IB_EVENT_PORT_ACTIVE
                | bindings::ib_event_type_IB_EVENT_PORT_ERR
                | bindings::ib_event_type_IB_EVENT_LID_CHANGE
                | bindings::ib_event_type_IB_EVENT_PKEY_CHANGE
                | bindings::ib_event_type_IB_EVENT_SM_CHANGE
                | bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER
                | bindings::ib_event_type_IB_EVENT_GID_CHANGE
        );
        // SAFETY: The number tells that the union holds a port; all its members are plain numbers
        // and pointers, so that any bits are a valid port.
        let port = is_of_port.then(|| unsafe { *raw.element.port_num.as_ref() });
        Self { number, port }
    }
}

/// Is told the events of a device.
///
/// Called in process context, by a work item of the RDMA core or by a thread that changes an
/// address of the device, with the list of the device's handlers locked for reading: two events can
/// be told at the same time. It may sleep, but a thread that makes or drops a [`DeviceEvents`] of
/// the device waits for it. So it must not do that itself, nor wait for a thread that does.
pub trait DeviceHandler: Send + Sync {
    /// Handles one event, of any port of the device.
    fn event(&self, event: DeviceEvent);
}

/// The entry of a device's list of handlers.
#[pin_data]
struct Entry {
    #[pin]
    raw: Opaque<bindings::ib_event_handler>,
    handler: Arc<dyn DeviceHandler>,
}

/// The events of one device, from now until it is dropped.
///
/// # Invariants
///
/// - Until `drop`, `entry.raw` is in the list of handlers of the device of `id`, and there is no
///   mutable reference to `entry`.
/// - Not dropped by a [`DeviceHandler`] of the device, nor where it must not sleep.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{cm::CmId, events::{DeviceEvent, DeviceEvents, DeviceHandler}};
/// struct Tell;
///
/// impl DeviceHandler for Tell {
///     fn event(&self, event: DeviceEvent) {
///         match event.port {
///             Some(port) => pr_info!("event {} of port {port}\n", event.number),
///             None => pr_info!("event {} of the device\n", event.number),
///         }
///     }
/// }
///
/// fn listen(id: Arc<CmId>) -> Result<DeviceEvents> {
///     DeviceEvents::listen(id, Arc::new(Tell, GFP_KERNEL)?)
/// }
/// ```
pub struct DeviceEvents {
    // Dropped when it is in no list, so that no event can come any more; then what keeps the
    // device.
    entry: Pin<KBox<Entry>>,
    id: Arc<CmId>,
}

// SAFETY: The RDMA core locks its list, and nothing of the entry has thread affinity.
unsafe impl Send for DeviceEvents {}
// SAFETY: A shared reference gives no more than one to `id`.
unsafe impl Sync for DeviceEvents {}

impl DeviceEvents {
    /// Registers `handler` for the events of the device of `id`; `ENODEV` before the address of
    /// `id` is resolved.
    ///
    /// The first event can come before this returns. May sleep. Must not be called by a
    /// [`DeviceHandler`] of the device.
    pub fn listen(id: Arc<CmId>, handler: Arc<dyn DeviceHandler>) -> Result<Self> {
        let device = id.raw_device().ok_or(ENODEV)?;
        let raw = bindings::ib_event_handler {
            device: device.as_ptr(),
            handler: Some(event),
            ..Default::default()
        };
        let entry = KBox::pin_init(
            pin_init!(Entry {
                raw: Opaque::new(raw),
                handler,
            }),
            GFP_KERNEL,
        )?;
        // SAFETY: The device exists as long as `id`. The entry is complete and pinned; `drop` takes
        // it off the list before either goes.
        unsafe { bindings::ib_register_event_handler(entry.raw.get()) };
        // INVARIANT: It is in the list now.
        Ok(Self { entry, id })
    }

    /// The id whose device it is.
    pub fn id(&self) -> &Arc<CmId> {
        &self.id
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the entry is in the list, and `id` keeps the device. The
        // callee waits for handlers at work, and none begins later, so that all may be freed
        // afterwards.
        unsafe { bindings::ib_unregister_event_handler(self.entry.raw.get()) }
    }
}

/// # Safety
///
/// Called by the RDMA core only, for an [`Entry`] that is in a device's list, with a valid event.
unsafe extern "C" fn event(entry: *mut bindings::ib_event_handler, event: *mut bindings::ib_event) {
    let entry = Opaque::cast_from(entry);
    // SAFETY: By this function's contract it is the field of an `Entry`.
    let entry = unsafe { container_of!(entry, Entry, raw) };
    // SAFETY: What is in the list exists, and is not changed but for the list's own part, which is
    // opaque.
    let entry = unsafe { &*entry };
    // SAFETY: The event is valid for the call.
    let event = DeviceEvent::of(unsafe { &*event });
    entry.handler.event(event);
}
