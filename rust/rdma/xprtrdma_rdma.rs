// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over in-kernel verbs and the RDMA connection manager.
//!
//! The crate is written in the style of `rust/kernel`, and does not depend on RPC.
//!
//! References determine the order of teardown. A [`Qp`](qp::Qp) and every memory region hold the
//! [`Pd`](pd::Pd). The `Pd` holds the [`CmId`](cm::CmId), which keeps the device alive. So the
//! queue pair and the regions are destroyed first, then the protection domain, then the id. The
//! order in which the owners are dropped does not matter.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`stack`] | whether the loaded RDMA stack is the kernel's own |
//! | [`cm`] | addresses, routes, connection events |
//! | [`local`] | the addresses that RDMA devices have |
//! | [`device`] | abilities of a device |
//! | [`pd`] | protection domain |
//! | `dma` | memory that is mapped for the device |
//! | [`mr`] | memory regions, through which the peer can access memory |
//! | [`cq`] | completion queue: where completions are handled |
//! | [`qp`] | queue pair, its send queue and its receive ring |
//! | [`events`] | asynchronous events of a device and its ports |
//! | [`failure`] | reports about a queue pair that fails |
//! | `pages`, `mapped`, `transfer` | pages, and their RDMA Reads and Writes (server module only) |
//! | `sink` | registered memory for the data of Reads on iWARP (server module only) |
//! | `block`, `pool`, `blanks` | pages and transfers that are kept for reuse (server module only) |
//! | `lent` | memory that its owner lends for RDMA Reads and Writes (RDS module only) |
//! | `registrar` | regions that do not depend on a connection (RDS module only) |

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

use xprtrdma_base::__LOG_PREFIX;

// The driver imports these names from this crate, because the driver does not depend on `base`.
pub use xprtrdma_base::{
    access_once,
    new_spinlock,
    spin, //
};

#[cfg(xprtrdma_server)]
pub mod blanks;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
#[cfg_attr(xprtrdma_kunit, allow(dead_code, reason = "the suites use a part"))]
mod block;
pub mod cm;
pub mod cq;
pub mod device;
mod dma;
pub mod events;
pub mod failure;
#[cfg(any(xprtrdma_rds, xprtrdma_kunit))]
#[cfg_attr(xprtrdma_kunit, allow(dead_code, reason = "the suites use a part"))]
mod lent;
pub mod local;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
#[cfg_attr(xprtrdma_kunit, allow(dead_code, reason = "the suites use a part"))]
mod mapped;
pub mod mr;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
#[cfg_attr(xprtrdma_kunit, allow(dead_code, reason = "the suites use a part"))]
pub mod pages;
pub mod pd;
#[cfg(any(xprtrdma_server, xprtrdma_kunit))]
#[cfg_attr(xprtrdma_kunit, allow(dead_code, reason = "the suites use a part"))]
pub mod pool;
pub mod qp;
#[cfg(xprtrdma_rds)]
pub mod registrar;
#[cfg(xprtrdma_server)]
pub mod sink;
pub mod stack;
#[cfg(xprtrdma_server)]
pub mod stretch;
#[cfg(xprtrdma_kunit)]
mod tests;
#[cfg(xprtrdma_server)]
pub mod transfer;
pub mod wc;
