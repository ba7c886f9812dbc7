// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of this crate, with the RPC client of the kernel above it and, in place of the
//! driver, one that answers its own calls (`driver`).
//!
//! Compiled into `xprtrdma_rs_kunit.ko` only; see the suites of `rust/rdma`.

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
