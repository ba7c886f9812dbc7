// SPDX-License-Identifier: GPL-2.0

//! The Responder's half of RPC-over-RDMA version one: from a received message to the answer.
//!
//! The client's module does not compile this room: the module of the server does.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`grant`] | how many Calls the client may have in flight |
//! | [`budget`] | bounds on memory, per connection and over all |

pub mod budget;
pub mod grant;
