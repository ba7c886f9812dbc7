// SPDX-License-Identifier: GPL-2.0

//! Tests of the check whether a module belongs to the kernel's own tree.

use super::ensure::Test;
use crate::stack;
use kernel::prelude::*;

#[kunit_tests(xprtrdma_stack)]
mod suite {
    use super::*;

    // The module that contains this test was built outside the kernel's tree. The RDMA stack that
    // the module uses belongs to the kernel's tree.
    #[test]
    fn a_module_out_of_tree_is_told_from_the_kernels_own() -> Test {
        ensure!(stack::is_out_of_tree(c"xprtrdma_rs_kunit"));
        ensure!(!stack::is_out_of_tree(c"ib_core"));
        ensure!(!stack::is_out_of_tree(c"rdma_cm"));
        // `kernel` is a built-in module with an entry in sysfs for its parameters. No module has
        // the name `no_such_module`.
        ensure!(!stack::is_out_of_tree(c"kernel"));
        ensure!(!stack::is_out_of_tree(c"no_such_module"));
        ensure!(stack::foreign().is_none());
        Ok(())
    }
}
