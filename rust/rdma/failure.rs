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

/// Which queue a work request was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The send queue.
    Send,
    /// The receive queue.
    Receive,
}

/// The reports so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// The first work request that failed.
    pub first: Option<(Side, WcStatus)>,
    /// The first one that was not just flushed, as all are that are left.
    pub reason: Option<(Side, WcStatus)>,
    /// The number (`enum ib_event_type`) of the first asynchronous event that tells of a failure.
    pub event: Option<u32>,
}

/// Where that is noted, from any context. All zero: nothing was seen. Nothing is ordered by it.
pub(crate) struct Reports {
    first: Atomic<u32>,
    reason: Atomic<u32>,
    event: Atomic<u32>,
}

/// A number as it is noted: 0 stands for none.
fn noted(value: u32) -> Option<u32> {
    value.checked_sub(1)
}

/// Records a value unless there is one.
fn note(place: &Atomic<u32>, value: u32) {
    // That there was something is no error.
    let _ = place.cmpxchg(0, value.wrapping_add(1), Relaxed);
}

impl Reports {
    pub(crate) const fn new() -> Self {
        Self {
            first: Atomic::new(0),
            reason: Atomic::new(0),
            event: Atomic::new(0),
        }
    }

    /// A work request failed.
    #[cold]
    pub(crate) fn failed(&self, side: Side, status: WcStatus) {
        let value = status.0.wrapping_mul(2) | u32::from(side == Side::Receive);
        note(&self.first, value);
        if status != WcStatus::FLUSHED {
            note(&self.reason, value);
        }
    }

    pub(crate) fn seen(&self) -> Failure {
        let work = |place: &Atomic<u32>| {
            noted(place.load(Relaxed)).map(|value| {
                let side = if value & 1 == 0 {
                    Side::Send
                } else {
                    Side::Receive
                };
                (side, WcStatus(value >> 1))
            })
        };
        Failure {
            first: work(&self.first),
            reason: work(&self.reason),
            event: noted(self.event.load(Relaxed)),
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
        note(&reports.event, number);
    }
}
