// SPDX-License-Identifier: GPL-2.0

//! Reports of a device about a queue pair that fails ([`Failure`]).

use crate::wc::WcStatus;
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
};
use xprtrdma_bindings as bindings;

/// The type of a work request.
///
/// A completion with an error does not contain a valid opcode. So work requests of different types
/// have different completion entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send.
    Send,
    /// A registration.
    RegMr,
    /// A local invalidation. The fence that is posted before registrations is a local invalidation
    /// too.
    LocalInv,
    /// An RDMA Write that serves as a keepalive probe.
    RdmaWrite,
    /// A Receive.
    Recv,
}

/// A work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedWork {
    /// The type of the work request.
    pub opcode: Opcode,
    /// The status of the work request's completion.
    pub status: WcStatus,
    /// The reason as a number that the device defines (`ib_wc.vendor_err`).
    pub vendor_err: u32,
}

impl FailedWork {
    /// Returns the failed work request to which this completion belongs.
    pub(crate) fn of(opcode: Opcode, wc: &bindings::ib_wc) -> Self {
        Self {
            opcode,
            status: WcStatus(wc.status),
            vendor_err: wc.vendor_err,
        }
    }

    /// Returns the description of a work request that the device refused to post.
    pub(crate) fn unposted(opcode: Opcode) -> Self {
        Self {
            opcode,
            status: WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR),
            vendor_err: 0,
        }
    }

    /// Packs the description of the failed work request into a number that is not zero. The status
    /// takes 24 bits of the number. Every status is less than 2^24.
    fn pack(self) -> u64 {
        let low = (self.status.0 << 8) | (self.opcode as u32 + 1);
        (u64::from(self.vendor_err) << 32) | u64::from(low)
    }

    /// Unpacks a number that [`FailedWork::pack`] returned.
    fn unpack(number: u64) -> Option<Self> {
        // CAST: The casts keep the lower and the upper half of the number.
        let (low, vendor_err) = (number as u32, (number >> 32) as u32);
        let opcode = match low & 0xff {
            1 => Opcode::Send,
            2 => Opcode::RegMr,
            3 => Opcode::LocalInv,
            4 => Opcode::RdmaWrite,
            5 => Opcode::Recv,
            _ => return None,
        };
        Some(Self {
            opcode,
            status: WcStatus(low >> 8),
            vendor_err,
        })
    }
}

/// The reports that have been recorded for a queue pair.
///
/// # Examples
///
/// ```
/// # use kernel::prelude::*;
/// # use xprtrdma_rdma::failure::{FailedWork, Failure, Opcode};
/// fn tell(failure: &Failure) {
///     match failure.reason {
///         Some(FailedWork { opcode: Opcode::Send, status, .. }) => {
///             pr_info!("a Send failed with status {}\n", status.0);
///         }
///         Some(work) => pr_info!("vendor error {:#x}\n", work.vendor_err),
///         None => pr_info!("no work request told of an error\n"),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The first work request that failed.
    pub first: Option<FailedWork>,
    /// The first failed work request that was not merely flushed. All work requests after a
    /// failure are flushed.
    pub reason: Option<FailedWork>,
    /// The number (`enum ib_event_type`) of the first asynchronous event that reports a failure.
    pub event: Option<u32>,
    /// Whether the device has executed a registration again while its region was valid.
    pub repeated: bool,
}

/// The record of reports. It may be written in any context. A zero in a field means that nothing
/// was reported. The atomic fields order no other memory access.
pub(crate) struct Reports {
    first: Atomic<u64>,
    reason: Atomic<u64>,
    event: Atomic<u64>,
    repeated: Atomic<bool>,
}

/// Records a number that is not zero in `place`, unless `place` already contains a number.
fn note(place: &Atomic<u64>, value: u64) {
    // `cmpxchg` fails if `place` already contains a number. This is not an error.
    let _ = place.cmpxchg(0, value, Relaxed);
}

impl Reports {
    pub(crate) const fn new() -> Self {
        Self {
            first: Atomic::new(0),
            reason: Atomic::new(0),
            event: Atomic::new(0),
            repeated: Atomic::new(false),
        }
    }

    /// Records that a work request failed.
    #[cold]
    pub(crate) fn failed(&self, work: FailedWork) {
        note(&self.first, work.pack());
        if work.status != WcStatus::FLUSHED {
            note(&self.reason, work.pack());
        }
    }

    /// Records that a registration was executed again.
    #[cold]
    pub(crate) fn repeated(&self) {
        self.repeated.store(true, Relaxed);
    }

    pub(crate) fn seen(&self) -> Failure {
        // CAST: `event` contains the number of an event plus one, which fits into a `u32`.
        let event = self.event.load(Relaxed) as u32;
        Failure {
            first: FailedWork::unpack(self.first.load(Relaxed)),
            reason: FailedWork::unpack(self.reason.load(Relaxed)),
            event: event.checked_sub(1),
            repeated: self.repeated.load(Relaxed),
        }
    }
}

/// Handles asynchronous events of a queue pair. Events that do not report a failure are ignored.
/// May be called in any context.
///
/// # Safety
///
/// Only a device calls this function, for a queue pair whose `qp_context` points to a [`Reports`].
/// The [`Reports`] outlives the queue pair.
pub(crate) unsafe extern "C" fn event(event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: By this function's contract the context is a [`Reports`] that exists.
    let reports = unsafe { &*context.cast::<Reports>() };
    // SAFETY: The event is valid during the call.
    let number = unsafe { (*event).event };
    if matches!(
        number,
        bindings::ib_event_type_IB_EVENT_QP_FATAL
            | bindings::ib_event_type_IB_EVENT_QP_REQ_ERR
            | bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR
            | bindings::ib_event_type_IB_EVENT_PATH_MIG_ERR
            | bindings::ib_event_type_IB_EVENT_DEVICE_FATAL
    ) {
        note(&reports.event, u64::from(number) + 1);
    }
}
