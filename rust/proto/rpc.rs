// SPDX-License-Identifier: GPL-2.0

//! The processing of one RPC: how its call is sent, and which replies to it are valid.
//!
//! | Module | Concept |
//! | --- | --- |
//! | [`plan`] | how a call and its reply travel |
//! | [`defer`] | work that waits for space in a queue |
//! | [`classify`] | the type of a received message |
//! | [`predict`] | the Replies that nearly all calls get |
//! | [`judge`] | whether a Reply fits its call |
//! | [`probing`] | messages that arrive while the version probe waits for its answer |
//! | [`credit`] | how many calls may be in flight |
//! | [`limit`] | limits for a peer that sends useless messages |
//! | [`latency`] | how long the stages of a call take |
//! | [`unmapped`] | calls whose memory cannot be mapped for the device |

pub mod classify;
pub mod credit;
pub mod defer;
pub mod judge;
pub mod latency;
pub mod limit;
pub mod plan;
pub mod predict;
pub mod probing;
pub mod unmapped;
