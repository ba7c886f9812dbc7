// SPDX-License-Identifier: GPL-2.0

//! Room of version 2: what only a connection needs that may speak it.
//!
//! Version 2 is an expired draft: a connection speaks it only if the administrator allows it
//! ([`VersionPolicy`](negotiate::VersionPolicy)) and the peer answers the probe.
//!
//! What both versions share is outside: the words of the headers ([`Version`](crate::Version)),
//! thresholds, error messages.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `classify` | received messages of version 2 |
//! | [`negotiate`] | which version a connection speaks |
//! | [`probe`] | the message that asks the peer |
//! | [`refusals`] | how many options may be refused at a time |

pub(crate) mod classify;
pub mod negotiate;
pub mod probe;
pub mod refusals;
