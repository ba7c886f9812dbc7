// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of this crate. The suites run the kernel's own RPC client with a test driver
//! (module `driver`), which answers calls itself.
//!
//! The suites are compiled only into `xprtrdma_rs_kunit.ko`. Other suites are in `rust/rdma`.

#[path = "../kunit/ensure.rs"]
#[macro_use]
mod ensure;
#[path = "../kunit/allocations.rs"]
mod allocations;
#[path = "../kunit/later.rs"]
mod later;
#[path = "../kunit/wait.rs"]
mod wait;

mod backchannel;
mod call;
mod class;
mod driver;
mod latency;
mod rpc;
mod servers;
mod settings;
mod sysctl;
mod xdr_buf;
mod xids;
