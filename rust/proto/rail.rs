// SPDX-License-Identifier: GPL-2.0

//! Rails: the ways to one server, and which of them a connection takes.
//!
//! A rail is a local address on an RDMA device together with an address of the server. Each
//! connection takes one when it is made; the RPC client sees nothing of it.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`table`] | what the administrator wrote: local addresses, addresses of servers |
//! | `place` | names of devices, local addresses |

mod place;
pub mod table;

pub use self::place::{
    Local,
    Name, //
};
