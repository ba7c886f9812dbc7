// SPDX-License-Identifier: GPL-2.0

//! Rails: the ways to one server, and which of them a connection takes.
//!
//! A rail is a local address on an RDMA device together with an address of the server. Each
//! connection takes one when it is made; the RPC client sees nothing of it.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `rails` | the rails to a server and the connections on them: choice, moves |
//! | `seat` | the place of one connection, and how a rail looks from outside |
//! | `health` | whether a rail works, and when it may have its connections back |
//! | `pairs` | which rails there are |
//! | [`table`] | what the administrator wrote: local addresses, addresses of servers |
//! | `place` | names of devices, local addresses, rails |

mod health;
mod pairs;
mod place;
mod rails;
mod seat;
pub mod table;

pub use self::{
    pairs::{
        Pairs,
        MAX_RAILS, //
    },
    place::{
        Local,
        Name,
        Rail, //
    },
    rails::Rails,
    seat::{
        Choice,
        Move,
        Probe,
        Probed,
        Seat,
        Standing,
        View, //
    },
};
