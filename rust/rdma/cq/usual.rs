// SPDX-License-Identifier: GPL-2.0

//! The functions that ib_core has set in `struct ib_cq`, and that [`events`](super::events)
//! replaces.

use core::mem::offset_of;
use xprtrdma_bindings as bindings;

/// The functions that ib_core had set in a queue.
pub(super) struct Usual {
    /// The event handler, which queues the work item.
    pub(super) handler: bindings::ib_comp_handler,
    /// The function of the work item.
    pub(super) work: bindings::work_func_t,
}

impl Usual {
    /// # Safety
    ///
    /// `raw` is a completion queue that ib_core has just made.
    pub(super) unsafe fn of(raw: *mut bindings::ib_cq) -> Self {
        // SAFETY: By the caller's contract `raw` is valid, and ib_core has set both functions.
        unsafe {
            Self {
                handler: (*raw).comp_handler,
                work: (*work_of(raw)).func,
            }
        }
    }
}

/// Returns ib_core's work item of a queue. The item is in a union, for which different versions of
/// bindgen generate different types.
#[inline]
pub(super) fn work_of(cq: *mut bindings::ib_cq) -> *mut bindings::work_struct {
    cq.wrapping_byte_add(WORK).cast()
}

/// The offset in bytes of the work item in `struct ib_cq`.
pub(super) const WORK: usize = offset_of!(bindings::ib_cq, __bindgen_anon_1);
