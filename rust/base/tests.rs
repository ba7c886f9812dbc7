// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of this crate. They work like the suites of `rust/rdma`, which `rust/rdma/tests.rs`
//! describes.

#[path = "../kunit/ensure.rs"]
#[macro_use]
mod ensure;
#[path = "../kunit/allocations.rs"]
mod allocations;
#[path = "../kunit/later.rs"]
mod later;
#[path = "../kunit/wait.rs"]
mod wait;

mod holders;
mod log;
mod queue;
