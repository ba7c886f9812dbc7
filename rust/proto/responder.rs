// SPDX-License-Identifier: GPL-2.0

//! The Responder's half of RPC-over-RDMA: from a received message to the answer.
//!
//! The client's module does not compile this room: the module of the server does.
//!
//! 1. [`sort()`](sort::sort) says what a message is. Each message with an answer takes a
//!    [`Ticket`](grant::Ticket) of the connection's [`Grant`](grant::Grant).
//! 2. [`Call::admit`](call::Call::admit) makes every check that can be made before an RDMA
//!    operation. What it returns is the only source of RDMA Reads.
//! 3. The driver posts [`reads`](call::Call::reads), does [`fills`](call::Call::fills), and calls
//!    [`fetched`](call::Call::fetched) when all of it is there. What that returns is for the RPC
//!    layer, and the only thing that can be replied to.
//! 4. [`reply`](call::Call::reply) decides how a reply travels. [`Reply`](reply::Reply) has its
//!    RDMA Writes, its inline parts and its header.
//! 5. A header and a [`Refusal`](refusal::Refusal) are encoded with a
//!    [`Granted`](grant::Granted), for which a ticket is given back. So a Call has one answer,
//!    and no answer grants more than there are Receives.
//!
//! A driver that waits between two steps keeps a [`Parked`](call::Parked) and the message.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`sort`] | what a received message is |
//! | [`spoken`] | the versions of the protocol |
//! | [`admit`] | whether a Call may be processed |
//! | [`stream`] | the unreduced Call, and what brings its pieces together |
//! | [`reply`] | how a reply travels |
//! | [`results`] | which result goes to which Write chunk |
//! | [`pour`] | how bytes fill segments |
//! | [`call`] | a Call and how far it has come |
//! | `items` | the Read chunks of a Call |
//! | `rpc_call` | what the header of an RPC Call says |
//! | [`reverse`] | Calls of ours to the client |
//! | [`breakers`] | Calls that broke a connection |
//! | [`refusal`] | errors that are told to the client |
//! | [`grant`] | how many Calls the client may have in flight |
//! | [`budget`] | bounds on memory, per connection and over all |

pub mod admit;
pub mod breakers;
pub mod budget;
pub mod call;
pub mod grant;
mod items;
pub mod pour;
pub mod refusal;
pub mod reply;
pub mod results;
pub mod reverse;
mod rpc_call;
pub mod sort;
pub mod spoken;
pub mod stream;
