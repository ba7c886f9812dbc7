// SPDX-License-Identifier: GPL-2.0

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../targets/mod.rs"]
mod targets;

fuzz_target!(|data: &[u8]| targets::run("closed_loop", data));
