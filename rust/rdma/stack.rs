// SPDX-License-Identifier: GPL-2.0

//! Whose RDMA stack is loaded.
//!
//! This crate is compiled against the structures of one kernel's own `ib_core` and `rdma_cm`. Where
//! the kernel has no versions of symbols (`CONFIG_MODVERSIONS`), the loader links it with any
//! module that exports the same names, also with one whose structures differ, such as those of
//! MLNX_OFED and DOCA-OFED. So an owner asks first.

use kernel::{
    prelude::*,
    str::CStr, //
};
use xprtrdma_bindings as bindings;

/// The modules whose structures this crate reads and writes.
const MODULES: [&CStr; 2] = [c"ib_core", c"rdma_cm"];

/// The first module of the RDMA stack that was not built in the kernel's own tree, if there is one.
///
/// To be asked before anything else of this crate is used. May sleep. The modules cannot change
/// later, because the caller's module uses their symbols. A stack that is built in is the kernel's
/// own. Without sysfs no module can be looked up; then the answer is `None`.
pub fn foreign() -> Option<&'static CStr> {
    MODULES.into_iter().find(|name| is_out_of_tree(name))
}

/// Whether a module of this name is loaded that was not built in the kernel's own tree.
pub(crate) fn is_out_of_tree(name: &CStr) -> bool {
    // SAFETY: The name is NUL-terminated and only read during the call.
    unsafe { bindings::xprtrdma_is_out_of_tree(name.as_char_ptr()) }
}
