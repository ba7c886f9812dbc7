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

/// What a work request does.
///
/// A completion that tells of an error does not say it: the opcode is not valid then. So work
/// requests of different kinds have different completion entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send.
    Send,
    /// A registration.
    RegMr,
    /// An invalidation. The fence in front of registrations is an invalidation as well.
    LocalInv,
    /// A probe.
    RdmaWrite,
    /// A Receive.
    Recv,
}

/// A work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedWork {
    /// What it was.
    pub opcode: Opcode,
    /// The status of its completion.
    pub status: WcStatus,
    /// What the device says of the reason, in numbers of its own (`ib_wc.vendor_err`).
    pub vendor_err: u32,
}

impl FailedWork {
    /// A work request that failed with this completion.
    pub(crate) fn of(opcode: Opcode, wc: &bindings::ib_wc) -> Self {
        Self {
            opcode,
            status: WcStatus(wc.status),
            vendor_err: wc.vendor_err,
        }
    }

    /// A work request that the device did not take.
    pub(crate) fn unposted(opcode: Opcode) -> Self {
        Self {
            opcode,
            status: WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR),
            vendor_err: 0,
        }
    }

    /// As a number, which is not 0. A status is a small one.
    fn pack(self) -> u64 {
        let low = (self.status.0 << 8) | (self.opcode as u32 + 1);
        (u64::from(self.vendor_err) << 32) | u64::from(low)
    }

    /// The inverse of [`FailedWork::pack`].
    fn unpack(number: u64) -> Option<Self> {
        // CAST: The lower and the upper half.
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

/// The reports so far.
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
    /// The first one that was not just flushed, as all are that are left.
    pub reason: Option<FailedWork>,
    /// The number (`enum ib_event_type`) of the first asynchronous event that tells of a failure.
    pub event: Option<u32>,
    /// The device has executed a registration again while its region was valid.
    pub repeated: bool,
}

/// Where that is noted, from any context. All zero: nothing was seen. Nothing is ordered by it.
pub(crate) struct Reports {
    first: Atomic<u64>,
    reason: Atomic<u64>,
    event: Atomic<u64>,
    repeated: Atomic<bool>,
}

/// Records a value, which is not 0, unless there is one.
fn note(place: &Atomic<u64>, value: u64) {
    // That there was something is no error.
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

    /// A work request failed.
    #[cold]
    pub(crate) fn failed(&self, work: FailedWork) {
        note(&self.first, work.pack());
        if work.status != WcStatus::FLUSHED {
            note(&self.reason, work.pack());
        }
    }

    /// A registration was executed again.
    #[cold]
    pub(crate) fn repeated(&self) {
        self.repeated.store(true, Relaxed);
    }

    pub(crate) fn seen(&self) -> Failure {
        // CAST: As it was noted, with one added.
        let event = self.event.load(Relaxed) as u32;
        Failure {
            first: FailedWork::unpack(self.first.load(Relaxed)),
            reason: FailedWork::unpack(self.reason.load(Relaxed)),
            event: event.checked_sub(1),
            repeated: self.repeated.load(Relaxed),
        }
    }
}

/// The handler of asynchronous events. Others than those that tell of a failure are of no interest.
///
/// # Safety
///
/// Called by a device for a queue pair whose context is a [`Reports`] that outlives it, in any
/// context.
pub(crate) unsafe extern "C" fn event(event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: By this function's contract.
    let reports = unsafe { &*context.cast::<Reports>() };
    // SAFETY: The event is valid for the call.
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
