// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over the kernel's RPC client: transport classes, transports, requests.
//!
//! The crate is written in the style of `rust/kernel`. It contains nothing about RDMA, except that
//! a request can lend its memory to a region (see [`lease`]). A driver implements
//! [`Transport`](transport::Transport) and registers it with a
//! [`Registration`](class::Registration).
//!
//! | Module | Concept | C structure |
//! | --- | --- | --- |
//! | [`class`] | a transport class, registered while the object exists | `xprt_class` |
//! | [`transport`] | the trait behind the class: the contract with a driver | |
//! | `ops` | the operations of the class, made from the trait | `rpc_xprt_ops` |
//! | [`xprt`] | one transport, its locks and back references | `rpc_xprt` |
//! | [`slot`] | the pool of request slots | `rpc_rqst` |
//! | [`call`] | a request that is sent or whose reply is processed | `rpc_rqst`, `rpc_task` |
//! | [`xdr_buf`] | the memory of a message | `xdr_buf` |
//! | `xids` | transaction ids that a server cannot foresee | |
//! | [`lease`] | memory that is lent to the peer | |
//! | [`latency`] | the times at which a call began, was sent and was answered | |
//! | [`callback`] | requests of the server | `rpc_rqst` |
//! | [`common`] | the state that all transports share | |
//! | [`servers`] | the state that the transports to one server share | |
//! | [`sysctl`] | numbers in `/proc/sys/sunrpc` | `ctl_table` |
//! | [`settings`] | texts in `/proc/sys/sunrpc`, for each network namespace | `pernet_operations` |
//! | [`trace`] | tracepoints | `tracepoint` |
//!
//! Lock order (outer first): `XPRT_LOCKED`, `queue_lock`, `transport_lock`.

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![deny(clippy::undocumented_unsafe_blocks)]

use xprtrdma_base::__LOG_PREFIX;

// These items are re-exported, because the driver imports them from this crate.
pub use xprtrdma_base::{
    debugfs,
    queue, //
};

/// Functions for time, logging and threads.
pub mod util {
    pub use xprtrdma_base::{
        compat::number,
        log::*,
        net::Net,
        queue::{
            enqueue_delayed,
            KeepsQueue,
            PromptQueue,
            WorkQueue, //
        },
        random::*,
        thread::*,
        time::*, //
    };
}

mod backchannel;
pub mod call;
pub mod callback;
pub mod class;
pub mod common;
pub mod latency;
pub mod lease;
mod ops;
pub mod servers;
pub mod settings;
pub mod slot;
pub mod sysctl;
#[cfg(xprtrdma_kunit)]
mod tests;
pub mod trace;
pub mod transport;
pub mod xdr_buf;
mod xids;
pub mod xprt;
