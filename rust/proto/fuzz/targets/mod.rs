// SPDX-License-Identifier: GPL-2.0

//! The functions that the fuzzers run. Each target is one function, which takes arbitrary bytes and
//! makes assertions.
//!
//! The fuzzers of `fuzz_targets` and the replay in `tests/fuzz_replay.rs` use the same functions,
//! so a machine without a fuzzer still runs every input of the corpus.

mod client_message;
pub(crate) mod closed_loop;
mod conn;
mod judge;
mod message;
mod plan;
mod private_data;
mod rail;
mod source;
mod v2_connection;

/// The name of a target, and its function.
type Target = (&'static str, fn(&[u8]));

/// All targets. The name of a target is also the name of its fuzzer and of its corpus directory.
pub const ALL: [Target; 11] = [
    ("v1_reply", message::v1_reply),
    ("v2_message", message::v2_message),
    ("reverse_call", message::reverse_call),
    ("private_data", private_data::run),
    ("judge", judge::run),
    ("plan", plan::run),
    ("conn", conn::run),
    ("rail", rail::run),
    ("v2_connection", v2_connection::run),
    ("client_message", client_message::run),
    ("closed_loop", closed_loop::run),
];

/// Runs the target with this name.
#[allow(dead_code)]
pub fn run(name: &str, data: &[u8]) {
    let target = ALL.iter().find(|(known, _)| *known == name);
    target.expect("a known target").1(data);
}
