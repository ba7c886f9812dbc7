// SPDX-License-Identifier: GPL-2.0

//! The Responder's half of RPC-over-RDMA, from a received message to its response.
//!
//! The server's kernel module compiles this module; the client's kernel module does not.
//!
//! 1. [`sort()`](sort::sort) classifies a received message. Each message that gets a response
//!    takes a [`Ticket`](grant::Ticket) from the connection's [`Grant`](grant::Grant).
//! 2. [`Call::admit`](call::Call::admit) makes every check that is possible before an RDMA
//!    operation. Only an admitted Call provides RDMA Reads to post.
//! 3. The driver posts the RDMA Reads of [`reads`](call::Call::reads) and performs the copies of
//!    [`fills`](call::Call::fills). When all data of the Call have arrived, the driver calls
//!    [`fetched`](call::Call::fetched), which returns a [`Ready`](admit::Ready) Call. Only a
//!    `Ready` Call may be passed to the RPC layer and replied to.
//! 4. [`reply`](call::Call::reply) decides which bytes of a reply travel in the Send and which in
//!    chunks. The returned [`Reply`](reply::Reply) lists the RDMA Writes and the inline parts, and
//!    encodes the transport header.
//! 5. To encode a [`Reply`](reply::Reply) or a [`Refusal`](refusal::Refusal), the driver needs a
//!    [`Granted`](grant::Granted), which it gets in exchange for the Call's ticket. So a Call gets
//!    at most one response, and no response grants more Calls than the connection has Receives for.
//!
//! A driver that must wait between two steps stores a [`Parked`](call::Parked) Call and its
//! message.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`sort`] | classification of received messages |
//! | [`spoken`] | the protocol versions that a server accepts |
//! | [`admit`] | whether a Call may be processed |
//! | [`stream`] | the unreduced Call, and the operations that assemble it |
//! | [`reply`] | how a reply is sent |
//! | [`results`] | which result goes to which Write chunk |
//! | [`pour`] | distribution of bytes over the segments of a chunk |
//! | [`call`] | a Call and the stage of its processing |
//! | `items` | the Read chunks of a Call |
//! | `layout` | where the chunk lists of a Call are in its message |
//! | `rpc_call` | the fields of an RPC Call header that matter for chunks |
//! | [`reverse`] | backchannel Calls, from the server to the client |
//! | [`breakers`] | Calls that broke a connection |
//! | [`refusal`] | errors that are reported to the client |
//! | [`grant`] | how many Calls the client may have in flight |
//! | [`budget`] | limits on memory and RDMA Reads, per connection and for all connections |
//! | [`turns`] | the order in which connections get memory while memory is short |

pub mod admit;
pub mod breakers;
pub mod budget;
pub mod call;
pub mod grant;
mod items;
mod layout;
pub(crate) mod place;
pub mod pour;
pub mod refusal;
pub mod reply;
pub mod results;
pub mod reverse;
mod rpc_call;
pub mod sort;
pub mod spoken;
pub mod stream;
pub mod turns;
