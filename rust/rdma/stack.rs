// SPDX-License-Identifier: GPL-2.0

//! Checks whether the loaded RDMA stack is the kernel's own.
//!
//! This crate is compiled for the structures of the kernel's own `ib_core` and `rdma_cm`. If the
//! kernel has no symbol versions (`CONFIG_MODVERSIONS`), the module loader links this code with any
//! module that exports the same names. That module's structures may differ, as those of MLNX_OFED
//! and DOCA-OFED do. So a module calls [`foreign`] before it uses this crate.

use kernel::{
    prelude::*,
    str::CStr, //
};
use xprtrdma_bindings as bindings;

/// The modules whose structures this crate accesses.
const MODULES: [&CStr; 2] = [c"ib_core", c"rdma_cm"];

/// Returns the name of the first module of the RDMA stack that was not built in the kernel's own
/// tree, or `None` if there is no such module.
///
/// Must be called before any other item of this crate is used. May sleep. One call is enough: the
/// modules cannot be replaced later, because the caller's module uses their symbols.
///
/// The result is also `None` if the stack is compiled into the kernel, or if the kernel has no
/// sysfs. In the first case the stack is the kernel's own. In the second case no module can be
/// found.
pub fn foreign() -> Option<&'static CStr> {
    // With `XPRTRDMA_UPSTREAM=1` the lab builds `ib_core` outside the kernel's tree, with the
    // patches of `Documentation/upstream`. Such an `ib_core` is not foreign.
    if cfg!(xprtrdma_upstream) {
        return None;
    }
    MODULES.into_iter().find(|name| is_out_of_tree(name))
}

/// Returns true if the loaded module of this name was built outside the kernel's own tree. Returns
/// false if no module of this name is loaded.
pub(crate) fn is_out_of_tree(name: &CStr) -> bool {
    // SAFETY: The name ends with NUL, and is only read during the call.
    unsafe { bindings::xprtrdma_is_out_of_tree(name.as_char_ptr()) }
}
