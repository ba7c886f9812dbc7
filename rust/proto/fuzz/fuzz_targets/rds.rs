// SPDX-License-Identifier: GPL-2.0

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../rds_proto/tests/it/extensions.rs"]
mod extensions;
#[path = "../../../rds_proto/tests/it/fuzzed.rs"]
mod fuzzed;

fuzz_target!(|data: &[u8]| fuzzed::run(data));
