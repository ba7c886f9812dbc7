// SPDX-License-Identifier: GPL-2.0

//! The sysctls of the transport, in `/proc/sys/sunrpc`, under the in-tree module's names.

use core::{
    num::NonZero,
    ops::RangeInclusive,
    ptr::NonNull, //
};
use xprtrdma_bindings as bindings;

/// The sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `rdma_slot_table_entries`: requests in flight on one connection.
    Slots,
    /// `rdma_max_inline_read`: largest message received without RDMA, in bytes.
    InlineRead,
    /// `rdma_max_inline_write`: largest message sent without RDMA, in bytes.
    InlineWrite,
    /// `rdma_version`: which versions of the protocol may be spoken.
    Version,
}

impl Sysctl {
    fn index(self) -> bindings::xprtrdma_sysctl_index {
        match self {
            Self::Slots => bindings::xprtrdma_sysctl_index_XPRTRDMA_SYSCTL_SLOTS,
            Self::InlineRead => bindings::xprtrdma_sysctl_index_XPRTRDMA_SYSCTL_INLINE_READ,
            Self::InlineWrite => bindings::xprtrdma_sysctl_index_XPRTRDMA_SYSCTL_INLINE_WRITE,
            Self::Version => bindings::xprtrdma_sysctl_index_XPRTRDMA_SYSCTL_VERSION,
        }
    }

    /// Sets the value, its bounds, and the unit of which every value is a multiple; a value is
    /// rounded down, now and when the file is written. Called once, before the table is registered;
    /// afterwards the value is the administrator's.
    pub fn preset(self, value: u32, range: &RangeInclusive<u32>, unit: NonZero<u32>) {
        let (least, most) = (*range.start(), *range.end());
        // SAFETY: The index is one of the table's, and the unit not zero.
        unsafe {
            bindings::xprtrdma_preset_sysctl(self.index(), value, least, most, unit.get());
        }
    }

    /// The present value. May be called in any context.
    pub fn get(self) -> u32 {
        // SAFETY: The index is one of the table's.
        unsafe { bindings::xprtrdma_read_sysctl(self.index()) }
    }
}

/// The registration of the files in `/proc/sys/sunrpc`.
///
/// # Invariants
///
/// The header is that of the registered table.
///
/// # Examples
///
/// ```
/// # use core::num::NonZero;
/// # use xprtrdma_sunrpc::sysctl::{Sysctl, Table};
/// Sysctl::Slots.preset(128, &(4..=4096), NonZero::<u32>::MIN);
/// let files = Table::register();
/// // What the administrator has written since.
/// let slots = Sysctl::Slots.get();
/// ```
pub struct Table(NonNull<bindings::ctl_table_header>);

// SAFETY: The header is only unregistered, which any thread may do.
unsafe impl Send for Table {}
// SAFETY: Nothing can be done with a shared reference.
unsafe impl Sync for Table {}

impl Table {
    /// Makes the files. `None`: no memory, or another module has files of these names; the
    /// values that were preset hold then. May sleep.
    pub fn register() -> Option<Self> {
        // SAFETY: The table is a complete static object. A second registration fails.
        let header = NonNull::new(unsafe { bindings::xprtrdma_register_sysctls() })?;
        // INVARIANT: Registered just now.
        Some(Self(header))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. The callee waits for readers and writers of
        // the files.
        unsafe { bindings::xprtrdma_unregister_sysctls(self.0.as_ptr()) };
    }
}
