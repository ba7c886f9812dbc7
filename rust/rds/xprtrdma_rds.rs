// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RDS: the transport, its connections and its messages.
//!
//! The crate is written in the style of `rust/kernel`, and does not depend on RDMA. A driver
//! implements [`Transport`](transport::Transport) and registers it with a
//! [`Registration`](registration::Registration).
//!
//! | Module | Concept | C structure |
//! | --- | --- | --- |
//! | [`registration`] | the transport, registered while the object exists | `rds_transport` |
//! | `ops` | the C operations of the transport, which call the trait | `rds_transport` |
//! | [`transport`] | the trait that a driver implements | |
//! | [`connection`] | two addresses between which messages are sent | `rds_connection` |
//! | [`events`] | counters that tools show | `rds_transport` |
//! | [`incoming`] | a message that was received | `rds_incoming` |
//! | [`memory`] | memory of a program that peers can access | `rds_mr` |
//! | [`message`] | a message to send, and its RDMA operation | `rds_message` |
//!
//! `gate`, `region` and `driver` support these modules. A gate lets threads use an object of RDS
//! until the gate is closed. Closing the gate waits for these threads. `region` counts the regions,
//! so that unloading can wait for them. `driver` holds the reference to the driver.
//!
//! A connection of RDS outlives the queue pairs that serve it. RDS creates the connection when a
//! program first sends to an address or when a peer connects, and destroys it when the module is
//! unloaded.
//!
//! Lock order (outer first): locks of a driver, the gate of a connection, the locks of RDS.

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

/// Errors, lists, logging, network namespaces, work queues and spin locks. Driver crates import
/// these items from this module, because the driver crates do not depend on `base`.
pub mod util {
    pub use xprtrdma_base::{
        compat::{
            no_buffers,
            not_connected,
            protocol_error,
            EAFNOSUPPORT, //
        },
        list,
        log::*,
        net::Net,
        new_spinlock,
        queue::{
            PromptQueue,
            WorkQueue, //
        },
        spin::SpinLock, //
    };

    /// Returns the initial network namespace, which contains all connections.
    pub fn init_net() -> &'static Net {
        // SAFETY: The function has no requirements.
        let raw = unsafe { xprtrdma_bindings::rdsrdma_init_net() };
        // SAFETY: The initial namespace is never freed.
        unsafe { Net::from_raw(raw) }
    }
}

use xprtrdma_base::__LOG_PREFIX;

pub mod connection;
mod driver;
pub mod events;
mod gate;
pub mod incoming;
pub mod memory;
pub mod message;
mod ops;
mod region;
pub mod registration;
pub mod transport;
