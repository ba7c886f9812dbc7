// SPDX-License-Identifier: GPL-2.0

//! Encoding and decoding of messages, without knowledge of calls and connections.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`xdr`] | cursors over bytes |
//! | [`chunk`] | segments and chunk lists |
//! | [`header`] | fixed words, and all headers that the client sends |
//! | [`inbound`] | what a received message is |
//! | `option` | options of version 2 |
//! | [`private_data`], [`threshold`] | what two peers agree on when they connect |

pub mod chunk;
pub mod header;
pub mod inbound;
pub(crate) mod option;
pub mod private_data;
pub mod threshold;
pub mod xdr;
