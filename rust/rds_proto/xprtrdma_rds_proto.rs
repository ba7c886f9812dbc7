// SPDX-License-Identifier: GPL-2.0

//! The core of RDS over RDMA. It contains everything about the protocol and nothing about the
//! kernel.
//!
//! The inputs are bytes and numbers; the outputs are bytes, decisions and numbers. No code in this
//! crate locks, allocates, logs or can panic. RDS-01 to RDS-60 are the requirements of rds-rdma(7).
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`connect`] | the private data of a connection request, and the version that both ends speak |
//! | [`outgoing`] | what the header of a message says about its RDMA operation |
//! | [`incoming`] | which message the fragments of a peer belong to |
//! | [`acknowledge`] | sequence numbers that each end has received |
//! | [`credit`] | flow control |
//! | [`ping`] | which pings are answered |
//! | [`operation`] | how an RDMA operation ends, and which status a program is told |
//! | [`turn`] | whether a message is sent, waits for its operation, or is replaced |
//! | [`region`] | handles, how long memory is accessible, and the limits on regions |
//! | [`header`], [`extension`] | the format of headers and extensions on the wire |

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

pub mod acknowledge;
mod bytes;
pub mod connect;
pub mod credit;
pub mod extension;
pub mod header;
pub mod incoming;
pub mod operation;
pub mod outgoing;
pub mod ping;
pub mod region;
pub mod turn;
