// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RPC server: transport classes, transports, calls.
//!
//! The crate is written in the style of `rust/kernel`, and does not depend on RDMA. A driver
//! implements [`Service`](service::Service) and registers it with a
//! [`Registration`](class::Registration).
//!
//! | Module | Concept | C structure |
//! | --- | --- | --- |
//! | [`class`] | the transport classes and their registration | `svc_xprt_class`, `xprt_class` |
//! | [`service`] | the trait behind the class: the contract with a driver | |
//! | `ops` | the operations of the class, made from the trait | `svc_xprt_ops` |
//! | [`bell`] | tells the RPC server what happens to a listener | `svc_xprt` |
//! | [`inbox`] | calls that wait for a thread of the RPC server | `svc_xprt` |
//! | `context` | a call from its arrival until it is finished | `svc_rqst` |
//! | `queue` | a queue of calls | |
//! | [`reply`] | a message that is to be sent | `xdr_buf` |
//! | [`sysctl`] | files in `/proc/sys`, for sizes and counters | `ctl_table` |
//! | [`reverse`] | calls to the client of a connection | `rpc_xprt` |
//! | [`trace`] | tracepoints | `tracepoint` |
//!
//! The RPC server's threads take transports, not calls, from a queue. The flag `XPT_BUSY` says that
//! a transport is queued or that a thread has taken it. Drivers do not handle this flag: `ops`
//! takes a call from the inbox and clears the flag exactly once, on every path.
//!
//! Two lock orders exist. In each of them the outer lock comes first:
//!
//! - the lock of an inbox or of a bell, and then the locks of the RPC server's queues
//! - the lock of a [`Line`](reverse::Line), and then `queue_lock` or `transport_lock` of its
//!   `rpc_xprt`

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// Re-exports items for errors, lists, logging, measurements, debugfs files, memory, pages, network
/// namespaces, locks, time and work queues. Driver crates import these items from this module,
/// because the driver crates do not depend on `base`.
pub mod util {
    pub use crate::files::files;
    pub use xprtrdma_base::{
        access_once::AccessOnce,
        buffer::{
            PageList,
            PageRefs,
            SMALL, //
        },
        compat::{
            connection_reset,
            not_supported,
            number, //
        },
        debugfs,
        list,
        log::*,
        measuring,
        memory::host_pages,
        net::Net,
        new_spinlock,
        queue::{
            cancel_delayed_sync,
            enqueue_delayed,
            KeepsQueue,
            PromptQueue,
            WorkQueue, //
        },
        set_in_place::SetInPlace,
        spin::{
            SpinLock,
            SpinLockGuard, //
        },
        time::{
            now_ms,
            now_ns,
            Jiffies, //
        }, //
    };
}

pub mod bell;
pub mod class;
mod context;
mod files;
pub mod inbox;
mod ops;
mod queue;
pub mod reply;
pub mod reverse;
pub mod service;
pub mod sysctl;
pub mod trace;
mod transport;
