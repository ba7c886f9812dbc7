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
    /// The number of the event (`enum ib_event_type`).
    pub number: u32,
    /// The port that the event concerns; `None` if it concerns the whole device.
    pub port: Option<u32>,
}

impl DeviceEvent {
    /// Converts an event that the RDMA core reports.
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
        // SAFETY: For an event with this number the union contains a port number. All members of
        // the union are plain numbers and pointers, so any bits are a valid port number.
        let port = is_of_port.then(|| unsafe { *raw.element.port_num.as_ref() });
        Self { number, port }
    }
}

/// Handles the events of a device.
///
/// Called in process context, by a work item of the RDMA core or by a thread that changes an
/// address of the device. The handler may sleep. Two events can be handled at the same time,
/// because the list of the device's handlers is locked only for reading.
///
/// A thread that creates or drops a [`DeviceEvents`] of the device waits for running handlers. So
/// the handler must not create or drop a [`DeviceEvents`], and must not wait for a thread that
/// does.
pub trait DeviceHandler: Send + Sync {
    /// Handles one event of the device or of one of its ports.
    fn event(&self, event: DeviceEvent);
}

/// The entry in a device's list of handlers.
#[pin_data]
struct Entry {
    #[pin]
    raw: Opaque<bindings::ib_event_handler>,
    handler: Arc<dyn DeviceHandler>,
}

/// The registration of a handler for the events of one device. The drop unregisters the handler.
///
/// # Invariants
///
/// - Until `drop`, `entry.raw` is in the list of handlers of the device of `id`, and no mutable
///   reference to `entry` exists.
/// - The object is dropped only where the thread may sleep, and never by a [`DeviceHandler`] of the
///   same device.
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
    // `drop` removes the entry from the list, while both fields exist. So no event can arrive when
    // the entry is freed.
    entry: Pin<KBox<Entry>>,
    id: Arc<CmId>,
}

// SAFETY: The RDMA core locks its list, and any thread may use the entry.
unsafe impl Send for DeviceEvents {}
// SAFETY: Through a `&DeviceEvents`, a thread can only get a reference to `id`.
unsafe impl Sync for DeviceEvents {}

impl DeviceEvents {
    /// Registers `handler` for the events of the device of `id`. Returns `ENODEV` if the address of
    /// `id` is not resolved yet.
    ///
    /// The first event can arrive before this function returns. May sleep. Must not be called by a
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
        // SAFETY: The device exists as long as `id`. The entry is complete and pinned. `drop`
        // removes it from the list before the entry or the id is freed.
        unsafe { bindings::ib_register_event_handler(entry.raw.get()) };
        // INVARIANT: The call above added the entry to the list.
        Ok(Self { entry, id })
    }

    /// Returns the id whose device is observed.
    pub fn id(&self) -> &Arc<CmId> {
        &self.id
    }
}

impl Drop for DeviceEvents {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the entry is in the list, and `id` keeps the device alive.
        // The callee waits for running handlers, and no handler starts afterwards, so the entry may
        // be freed.
        unsafe { bindings::ib_unregister_event_handler(self.entry.raw.get()) }
    }
}

/// # Safety
///
/// Only the RDMA core calls this, with a valid event, and with an [`Entry`] that is in a device's
/// list.
unsafe extern "C" fn event(entry: *mut bindings::ib_event_handler, event: *mut bindings::ib_event) {
    let entry = Opaque::cast_from(entry);
    // SAFETY: By this function's contract the pointer refers to the `raw` field of an `Entry`.
    let entry = unsafe { container_of!(entry, Entry, raw) };
    // SAFETY: An entry in the list exists. Other threads write only its field `raw`, which is
    // opaque.
    let entry = unsafe { &*entry };
    // SAFETY: The event is valid during the call.
    let event = DeviceEvent::of(unsafe { &*event });
    entry.handler.event(event);
}
