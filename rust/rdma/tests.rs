// SPDX-License-Identifier: GPL-2.0

//! KUnit suites of this crate. The suites make, use and drop all objects of the crate on the device
//! of `rust/kunit/fake_device.c`. They do this in every order that the types allow, and with every
//! failure that the device and the allocator can have.
//!
//! Compiled into `xprtrdma_rs_kunit.ko` only. Tests return their errors, so that their objects are
//! dropped when they fail.

#[path = "../kunit/ensure.rs"]
#[macro_use]
mod ensure;
#[path = "../kunit/allocations.rs"]
mod allocations;
#[path = "../kunit/wait.rs"]
mod wait;

mod busy_poll;
mod cm;
mod events;
mod fake;
mod lent;
mod local;
mod log;
mod mapped;
mod model;
mod mr;
mod pd;
mod peer;
mod qp;
mod stack;
mod taken;
