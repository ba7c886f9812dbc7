// SPDX-License-Identifier: GPL-2.0

//! Tests of the core of RDS.

mod acknowledge;
mod connect;
mod credit;
mod extensions;
mod fuzzed;
mod header;
mod incoming;
mod operation;
mod outgoing;
mod ping;
mod random;
mod region;
mod turn;
