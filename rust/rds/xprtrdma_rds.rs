// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RDS: the transport, its connections, messages.
//!
//! Written as if for `rust/kernel`; knows nothing of RDMA. A driver implements
//! [`Transport`](transport::Transport) and registers it with a
//! [`Registration`](registration::Registration).
//!
//! | Module | Concept | C structure |
//! | --- | --- | --- |
//! | [`registration`] | the transport, registered while it lives | `rds_transport` |
//! | `ops` | the operations of the transport, made from the trait | `rds_transport` |
//! | [`transport`] | the trait behind it: the contract with a driver | |
//! | [`connection`] | a pair of addresses that messages go between | `rds_connection` |
//! | [`incoming`] | a message that was received | `rds_incoming` |
//! | [`memory`] | memory of a program that peers are to reach | `rds_mr` |
//! | [`message`] | a message that is to be sent, and its RDMA operation | `rds_message` |
//!
//! `gate` and `driver` are below these: how long something may be used, and the one driver.
//!
//! A connection of RDS outlives the queue pairs that serve it: it is made when a program first
//! sends to an address, or a peer connects, and is destroyed when the module is unloaded.
//!
//! Lock order (outer first): locks of a driver, the gate of a connection, the locks of RDS.

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// Logging, network namespaces, work queues and spin locks, for drivers: these have no arrow to
/// `base`.
pub mod util {
    pub use xprtrdma_base::{
        log::*,
        net::Net,
        queue::WorkQueue, //
    };

    /// Returns the namespace that all connections are in.
    pub fn init_net() -> &'static Net {
        // SAFETY: No requirements.
        let raw = unsafe { xprtrdma_bindings::rdsrdma_init_net() };
        // SAFETY: The first namespace is never freed.
        unsafe { Net::from_raw(raw) }
    }
}

pub mod connection;
mod driver;
mod gate;
pub mod incoming;
pub mod memory;
pub mod message;
mod ops;
pub mod registration;
pub mod transport;
