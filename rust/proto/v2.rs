// SPDX-License-Identifier: GPL-2.0

//! Code that is used only on connections that may use protocol version 2.
//!
//! Version 2 is an expired draft. So a connection uses it only if the administrator allows it
//! ([`VersionPolicy`](negotiate::VersionPolicy)) and the peer answers the probe.
//!
//! Code for both versions is in other modules: the header words ([`Version`](crate::Version)),
//! thresholds, error messages.
//!
//! | Module | Concept |
//! | --- | --- |
//! | `classify` | received messages of version 2 |
//! | [`negotiate`] | which version a connection speaks |
//! | [`probe`] | the message that asks the peer whether it supports version 2 |
//! | [`refusals`] | the limit on refusals of options |

pub(crate) mod classify;
pub mod negotiate;
pub mod probe;
pub mod refusals;
