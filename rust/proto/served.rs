// SPDX-License-Identifier: GPL-2.0

//! The server's side of one connection, from the client's request to the disconnect.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`life`] | the states of a connection from the accept to the disconnect, with deadlines |
//! | [`accept`] | whether a connection request is accepted, and with which parameters |
//! | [`door`] | limits on the number of connections |
//! | [`lines`] | limits on the lines of the log |
//! | [`queues`] | the lengths of the queues of a connection |
//! | [`cause`] | why a connection ends |

pub mod accept;
pub mod cause;
pub mod door;
pub mod life;
pub mod lines;
pub mod queues;
