// SPDX-License-Identifier: GPL-2.0

//! The switch that turns latency measurements on, and the files that show the results. The switch
//! is a static key, like the switch of a tracepoint. So its test costs hardly any time while the
//! switch is off.

use crate::debugfs::{
    read_switch,
    Dir,
    File, //
};
use core::fmt;
use kernel::{
    jump_label::static_branch_unlikely,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// Returns whether measuring is switched on. May be called in any context.
#[inline(always)]
pub fn is_measured() -> bool {
    // SAFETY: The operand refers to a static key that C code defines.
    unsafe { static_branch_unlikely!(bindings::xprtrdma_latency, bindings::xprtrdma_switch, key) }
}

/// Switches measuring on or off for the whole module. May sleep.
pub fn measure(on: bool) {
    // SAFETY: The function's only requirement is that the caller may sleep.
    unsafe { bindings::xprtrdma_set_latency(on) };
}

/// Makes the file `measure_latency`, which shows the switch; writing `1` or `0` to the file changes
/// the switch. Returns `ENOMEM` if no memory is available. May sleep.
pub fn switch_file(dir: &Arc<Dir>) -> Result<File<()>> {
    File::new(
        dir,
        c"measure_latency",
        (),
        Some(|(), f| writeln!(f, "{}", u32::from(is_measured()))),
        Some(|(), reader| {
            measure(read_switch(reader)?);
            Ok(())
        }),
    )
}

/// Writes a histogram of latencies: a column for each stage, and a row for each bucket.
///
/// - `stages` contains the name of each stage.
/// - `buckets` contains the upper limit of each bucket in microseconds. A bucket counts the time
///   spans below its limit. The bucket `None` counts all longer spans.
/// - `count` returns the number of spans in a stage and bucket.
pub fn write_histogram<S: Copy>(
    f: &mut fmt::Formatter<'_>,
    stages: impl Iterator<Item = (&'static str, S)> + Clone,
    buckets: impl Iterator<Item = Option<u64>>,
    count: impl Fn(S, usize) -> u64,
) -> fmt::Result {
    write!(f, "{:>10}", "below_us")?;
    for (name, _) in stages.clone() {
        write!(f, " {name:>10}")?;
    }
    writeln!(f)?;
    for (bucket, below_us) in buckets.enumerate() {
        match below_us {
            Some(us) => write!(f, "{us:>10}")?,
            None => write!(f, "{:>10}", "more")?,
        }
        for (_, stage) in stages.clone() {
            write!(f, " {:>10}", count(stage, bucket))?;
        }
        writeln!(f)?;
    }
    Ok(())
}
