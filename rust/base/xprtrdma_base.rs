// SPDX-License-Identifier: GPL-2.0

//! Utilities for the other crates of the module: parts of the kernel that the kernel crate lacks or
//! implements differently. This crate contains nothing about RDMA or RPC.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`access_once`] | inlined atomic loads and stores |
//! | `buffer` | memory that is passed on as an address (server module only) |
//! | [`compat`] | differences among kernel versions |
//! | [`debugfs`] | files in debugfs that keep the module loaded while they are open |
//! | [`holders`] | waiting for the last holder of an object |
//! | [`lend`] | memory that is lent to a device |
//! | `list` | lists that usually have space (server module only) |
//! | [`log`] | the log's rate limit, formatting of log lines |
//! | `measuring` | the switch for latency measurements, and the files with their results |
//! | `memory` | the amount of memory of the host (server module only) |
//! | [`net`] | network namespaces, socket addresses |
//! | [`queue`] | work queues that are safe under memory reclaim |
//! | [`random`] | random numbers that cannot be predicted |
//! | [`set_in_place`] | static objects that are initialised in their place |
//! | [`spin`] | spin locks |
//! | [`thread`] | priority and permissions of the calling thread |
//! | [`time`] | jiffies, milliseconds, jitter |
//! | `unloading` | unloading of the module (modules of the client and of the server only) |
//!
//! # Objects that must be dropped
//!
//! Safe code that uses the crates of this module cannot cause invalid accesses to memory, with one
//! exception. Some objects make the kernel call code of the module until they are dropped:
//! registrations, files, listeners and work queues. Safe code can prevent the drop, for example
//! with `mem::forget` or with a cycle of references. The kernel would then call code of the module
//! after the module was unloaded. So a driver must ensure that such objects are dropped before the
//! module is unloaded.
//!
//! In the kernel crate, `driver::Registration` and `miscdevice::MiscDeviceRegistration` have the
//! same exception. The registration of an interrupt handler has an unsafe constructor for this
//! reason. The drivers of this module contain no unsafe code, so they could not call such a
//! constructor.

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// The prefix of the module's log lines. The other crates import this constant in their root
/// modules, where the macros of [`kernel::print`] expect it.
pub const __LOG_PREFIX: &[u8] = NAME.to_bytes_with_nul();

/// The name of the kernel module if these crates are compiled for the client.
#[cfg(not(xprtrdma_server))]
pub const NAME: &kernel::prelude::CStr = c"xprtrdma_rs";
/// The name of the kernel module if these crates are compiled for the server.
#[cfg(all(xprtrdma_server, not(xprtrdma_rds)))]
pub const NAME: &kernel::prelude::CStr = c"svcrdma_rs";
/// The name of the kernel module if these crates are compiled for the RDS transport.
#[cfg(xprtrdma_rds)]
pub const NAME: &kernel::prelude::CStr = c"rds_rdma_rs";

pub mod access_once;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
pub mod buffer;
pub mod compat;
pub mod debugfs;
pub mod holders;
pub mod lend;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
pub mod list;
pub mod log;
#[cfg(not(xprtrdma_rds))]
pub mod measuring;
#[cfg(xprtrdma_server)]
pub mod memory;
pub mod net;
pub mod queue;
pub mod random;
pub mod set_in_place;
pub mod spin;
#[cfg(xprtrdma_kunit)]
mod tests;
pub mod thread;
pub mod time;
#[cfg(not(xprtrdma_rds))]
pub mod unloading;
