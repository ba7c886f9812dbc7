// SPDX-License-Identifier: GPL-2.0

//! Rails: the network paths to one server, and which path a connection takes.
//!
//! A rail is a local address on an RDMA device together with an address of the server. Each
//! connection takes one rail when it is made. The RPC client does not know about rails.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `rails` | the rails to a server and the connections on them: choice, moves |
//! | `seat` | the rail that one connection uses, and a rail's state as shown to administrators |
//! | `health` | whether a rail works, and when connections may return to it |
//! | `pairs` | the list of rails to a server |
//! | [`table`] | the administrator's lists of local addresses and of server addresses |
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
