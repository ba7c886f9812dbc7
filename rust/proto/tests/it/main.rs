// SPDX-License-Identifier: GPL-2.0

//! The tests of the protocol core: one program, with a module for each subject.

#![allow(
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

mod calls_and_options;
mod closed_loop;
mod common;
mod conn;
mod conn_model;
mod conn_silence;
mod conn_up;
mod connect_data;
mod defer;
mod device_log;
mod errors;
mod fixed_words;
mod flow_control;
mod fuzz_replay;
mod latency;
mod mailbox;
mod mutants;
mod outage;
mod planning;
mod predict;
mod rail_conn;
mod rail_port;
mod rail_silence;
mod rail_sim;
mod rail_table;
mod random;
mod reply_chunks;
mod responder_admit;
mod responder_breakers;
mod responder_grant;
mod responder_reply;
mod responder_reverse;
mod responder_rig;
mod responder_sort;
mod responder_stream;
mod responder_turns;
mod responder_v2;
mod rig;
mod served;
mod sizes;
mod vectors;
mod version;
mod wc;
