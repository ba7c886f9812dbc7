// SPDX-License-Identifier: GPL-2.0

//! Room of version 2: what only a connection needs that may speak it.
//!
//! Version 2 is an expired draft, and is not on the wire yet: the driver's policy is always
//! [`VersionPolicy::V1Only`](negotiate::VersionPolicy::V1Only). The driver will use this room when
//! it offers the choice. It still has to send the probe, to deliver the answer to the connection
//! machine, to post Receives of [`receive_size`](negotiate::receive_size), and to count what it
//! refuses.
//!
//! What both versions share is outside: the words of the headers ([`Version`](crate::Version)),
//! thresholds, error messages.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `classify` | received messages of version 2 |
//! | [`negotiate`] | which version a connection speaks |
//! | [`refusals`] | how many options may be refused at a time |

pub(crate) mod classify;
pub mod negotiate;
pub mod refusals;
