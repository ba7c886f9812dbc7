// SPDX-License-Identifier: GPL-2.0

//! The module's sysctls in `/proc/sys/sunrpc`, which have the names that the in-tree module uses.

use core::{
    num::NonZero,
    ops::RangeInclusive,
    ptr::NonNull, //
};
use xprtrdma_bindings as bindings;

/// A sysctl of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sysctl {
    /// `rdma_slot_table_entries`: maximum number of requests in flight on one connection.
    Slots,
    /// `rdma_max_inline_read`: maximum size of a message received without RDMA, in bytes.
    InlineRead,
    /// `rdma_max_inline_write`: maximum size of a message sent without RDMA, in bytes.
    InlineWrite,
    /// `rdma_version`: which protocol versions are allowed.
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

    /// Sets the initial value, the permitted range, and `unit`. The initial value, and each value
    /// that is written to the file, is rounded down to a multiple of `unit`. Called once for each
    /// sysctl, before the table is registered. Afterwards only the administrator changes the value.
    pub fn preset(self, value: u32, range: &RangeInclusive<u32>, unit: NonZero<u32>) {
        let (least, most) = (*range.start(), *range.end());
        // SAFETY: The index is an index of the table, and the unit is not zero.
        unsafe {
            bindings::xprtrdma_preset_sysctl(self.index(), value, least, most, unit.get());
        }
    }

    /// Returns the current value. May be called in any context.
    pub fn get(self) -> u32 {
        // SAFETY: The index is an index of the table.
        unsafe { bindings::xprtrdma_read_sysctl(self.index()) }
    }
}

/// The registration of the files in `/proc/sys/sunrpc`.
///
/// # Invariants
///
/// The pointer is the header of the registered table.
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

// SAFETY: The only use of the header is to unregister the table, which any thread may do.
unsafe impl Send for Table {}
// SAFETY: A shared reference to this type has no methods.
unsafe impl Sync for Table {}

impl Table {
    /// Creates the files. Returns `None` if no memory is available, or if another module has files
    /// with the same names. Without the files, the initial values stay in effect. May sleep.
    pub fn register() -> Option<Self> {
        // SAFETY: The table is a complete static object. The called function refuses to register
        // the table a second time.
        let header = NonNull::new(unsafe { bindings::xprtrdma_register_sysctls() })?;
        // INVARIANT: The table has just been registered.
        Some(Self(header))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the table is registered. The called function waits until
        // no thread reads or writes the files.
        unsafe { bindings::xprtrdma_unregister_sysctls(self.0.as_ptr()) };
    }
}
