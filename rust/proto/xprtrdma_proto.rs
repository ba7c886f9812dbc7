// SPDX-License-Identifier: GPL-2.0

//! The protocol core of the RPC-over-RDMA client. It contains everything about the protocol and
//! nothing about the kernel.
//!
//! The functions receive bytes, numbers and the time, and return bytes, decisions and deadlines.
//! The code takes no lock, allocates no memory, writes no log and cannot panic. The length of the
//! input limits every loop. So every message from a peer yields a result or an error.
//!
//! # Sending a call
//!
//! 1. [`plan::plan`] decides from the shape of the call and of its largest reply which chunks are
//!    needed; [`plan::RegionLimits::segments`] counts their segments.
//! 2. The driver registers memory and fills arrays of [`Segment`].
//! 3. [`CallHeader::encode`] writes the transport header. The driver puts the same arrays into the
//!    [`Offer`], with which the reply is compared later.
//!
//! # Receiving a message
//!
//! 1. [`classify`] returns the type of the message. For [`Inbound::Ambiguous`] the driver looks
//!    the xid up among the waiting calls, and passes the result to the method `resolve`, which
//!    returns the type.
//! 2. For an [`Inbound::Reply`] or [`Inbound::Error`] the driver finds the waiting call by xid.
//! 3. [`judge()`](judge::judge) compares the Reply with the call's [`Offer`]. The driver must
//!    not invalidate regions before that; [`judge::invalidated`] says which region the peer
//!    invalidated.
//! 4. [`ForwardCredits::accept`](credit::ForwardCredits::accept) takes the grant of an accepted
//!    Reply. [`judge::check_reply_chunk`] checks the RPC message in the Reply chunk.
//! 5. [`limit::DiscardLimit`] counts the messages that were dropped. A region that the peer
//!    invalidated with a dropped message is invalid nevertheless (MAL-016).
//!
//! # Example
//!
//! A READ of 8192 bytes and the reply to it:
//!
//! ```
//! use xprtrdma_proto::{chunk::ChunkLists, *};
//!
//! let data = [Segment { handle: Handle(7), length: 8192, offset: 0x1000 }];
//! let writes: [&[Segment]; 1] = [&data];
//! let call = CallHeader {
//!     version: Version::V1,
//!     xid: Xid(1),
//!     credits: Credits(128),
//!     lists: ChunkLists { writes: &writes, ..Default::default() },
//! };
//! let mut header = [0; 64];
//! assert_eq!(call.encode(&mut header), Ok(52));
//!
//! // The server copies the chunk and answers with 24 bytes of RPC.
//! let mut message = header[..52].to_vec();
//! message[11] = 64;
//! message.extend([0, 0, 0, 1, 0, 0, 0, 1]);
//! message.extend([0; 16]);
//! let Inbound::Reply(reply) = classify(&message, Version::V1, false) else { panic!() };
//! let offer = Offer { writes: &writes, non_data_max: 200, ..Default::default() };
//! let Verdict::Accept(accept) = judge(&reply, &offer) else { panic!() };
//! assert_eq!((accept.grant, accept.placed, accept.inline_len), (Credits(64), 8192, 24));
//! ```
//!
//! # Modules
//!
//! Each module uses only modules below it in this table.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`conn`] | the life of a transport's connections |
//! | [`rail`] | the network paths to a server, and which path a connection takes |
//! | [`rpc`] | client side: one RPC, from the call to its reply |
//! | [`served`] | server side: the life of a connection |
//! | [`responder`] | server side: one RPC, the checks of its call, and its reply |
//! | [`wire`] | what is on the wire |
//! | [`time`], [`wc`], `random` | milliseconds; completion statuses; jitter |
//! | [`error`] | errors, errnos, counters |
//! | [`v2`] | version 2 of the protocol |
//!
//! All code in this crate is used by a kernel module; `make check-lint` checks that.
//! The modules [`responder`] and [`served`] are for the server, whose build sets
//! `xprtrdma_server`. The client's kernel module is built without them.

#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

pub mod conn;
pub mod error;
pub mod rail;
mod random;
#[cfg(any(not(CONFIG_RUST), xprtrdma_server))]
pub mod responder;
pub mod rpc;
#[cfg(any(not(CONFIG_RUST), xprtrdma_server))]
pub mod served;
pub mod time;
pub mod v2;
pub mod wc;
pub mod wire;

pub use error::{
    Counter,
    Error,
    Notes, //
};
pub use rpc::{
    classify::classify,
    credit,
    defer,
    judge::{
        self,
        judge,
        Offer,
        Verdict, //
    },
    latency,
    limit,
    plan::{
        self,
        plan,
        CallPlan,
        Plan,
        ReplyPlan, //
    },
    predict,
    probing, //
};
pub use wire::{
    chunk::{
        self,
        ChunkLists,
        Handle,
        ReadChunk,
        Segment, //
    },
    header::{
        self,
        CallHeader,
        Credits,
        Refusal,
        ReverseReplyHeader,
        Version,
        Xid, //
    },
    inbound::{
        self,
        Inbound, //
    },
    private_data::{
        self,
        PrivateData, //
    },
    threshold::{
        self,
        Thresholds, //
    },
    xdr, //
};
