// SPDX-License-Identifier: GPL-2.0

//! The Responder's half of RPC-over-RDMA version one: from a received message to the answer.
//!
//! The client's module does not compile this room: the module of the server does.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`sort`] | what a received message is |
//! | [`admit`] | whether a Call may be processed |
//! | [`stream`] | the unreduced Call, and what brings its pieces together |
//! | [`call`] | a Call and how far it has come |
//! | `items` | the Read chunks of a Call |
//! | `rpc_call` | what the header of an RPC Call says |
//! | [`refusal`] | errors that are told to the client |
//! | [`grant`] | how many Calls the client may have in flight |
//! | [`budget`] | bounds on memory, per connection and over all |

pub mod admit;
pub mod budget;
pub mod call;
pub mod grant;
mod items;
pub mod refusal;
mod rpc_call;
pub mod sort;
pub mod stream;
