// SPDX-License-Identifier: GPL-2.0

//! Whose modules are whose.

use super::ensure::Test;
use crate::stack;
use kernel::prelude::*;

#[kunit_tests(xprtrdma_stack)]
mod suite {
    use super::*;

    // The suites are a module out of tree, the kernel's own stack is loaded for them.
    #[test]
    fn a_module_out_of_tree_is_told_from_the_kernels_own() -> Test {
        ensure!(stack::is_out_of_tree(c"xprtrdma_rs_kunit"));
        ensure!(!stack::is_out_of_tree(c"ib_core"));
        ensure!(!stack::is_out_of_tree(c"rdma_cm"));
        // Built in, and known to sysfs for its parameters; and what is not there at all.
        ensure!(!stack::is_out_of_tree(c"kernel"));
        ensure!(!stack::is_out_of_tree(c"no_such_module"));
        ensure!(stack::foreign().is_none());
        Ok(())
    }
}
