// SPDX-License-Identifier: GPL-2.0

//! The life of a connection that a client made to us.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`life`] | from the accept to the end, with deadlines |
//! | [`accept`] | whether a request is accepted, and with what |
//! | [`door`] | how many connections there may be |
//! | [`queues`] | how long the queues of a connection are |
//! | [`cause`] | why a connection ends |

pub mod accept;
pub mod cause;
pub mod door;
pub mod life;
pub mod queues;
