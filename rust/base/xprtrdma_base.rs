// SPDX-License-Identifier: GPL-2.0

//! Utilities for the other crates of the module: parts of the kernel that its own Rust crate does
//! not have, or not like this. Knows of neither RDMA nor RPC.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`access_once`] | loads and stores that are no calls |
//! | `buffer` | memory that is passed on as an address (the server's module) |
//! | [`compat`] | differences among kernel versions |
//! | [`debugfs`] | files in debugfs that keep the module while they are open |
//! | [`holders`] | the wait for the last holder |
//! | [`lend`] | memory that is lent to a device |
//! | [`log`] | how much is logged, and how |
//! | `memory` | how much memory the host has (the server's module) |
//! | `measuring` | the switch of what is measured on request |
//! | [`net`] | network namespaces, socket addresses |
//! | [`queue`] | work queues that are safe under memory reclaim |
//! | [`random`] | random numbers that cannot be foreseen |
//! | [`spin`] | spin locks |
//! | [`thread`] | priority and rights of the calling thread |
//! | [`time`] | jiffies, milliseconds, jitter |

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// The prefix of log lines. The other crates import it in their roots, where the macros of
/// [`kernel::print`] look for it.
pub const __LOG_PREFIX: &[u8] = NAME.to_bytes_with_nul();

/// The name of the module that these crates are built into.
#[cfg(not(xprtrdma_server))]
pub const NAME: &kernel::prelude::CStr = c"xprtrdma_rs";
/// The name of the module that these crates are built into.
#[cfg(all(xprtrdma_server, not(xprtrdma_rds)))]
pub const NAME: &kernel::prelude::CStr = c"svcrdma_rs";
/// The name of the module that these crates are built into.
#[cfg(xprtrdma_rds)]
pub const NAME: &kernel::prelude::CStr = c"rds_rdma_rs";

pub mod access_once;
#[cfg(xprtrdma_server)]
pub mod buffer;
pub mod compat;
pub mod debugfs;
pub mod holders;
pub mod init_once;
pub mod lend;
pub mod log;
#[cfg(not(xprtrdma_rds))]
pub mod measuring;
#[cfg(xprtrdma_server)]
pub mod memory;
pub mod net;
pub mod queue;
pub mod random;
pub mod spin;
#[cfg(xprtrdma_kunit)]
mod tests;
pub mod thread;
pub mod time;
