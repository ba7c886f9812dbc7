// SPDX-License-Identifier: GPL-2.0

//! Tests of the files in `/proc/sys/sunrpc`.

use super::ensure::Test;
use crate::sysctl::{
    Sysctl,
    Table, //
};
use core::num::NonZero;
use kernel::prelude::*;
use xprtrdma_bindings as bindings;

#[kunit_tests(xprtrdma_sysctl)]
mod suite {
    use super::*;

    #[test]
    fn values_are_those_that_were_preset() -> Test {
        const UNIT: NonZero<u32> = NonZero::new(1024).unwrap();
        for (knob, value, unit) in [
            (Sysctl::Slots, 17, NonZero::<u32>::MIN),
            (Sysctl::InlineRead, 3071, UNIT),
            (Sysctl::InlineWrite, 8192, UNIT),
        ] {
            knob.preset(value, &(4..=10_000), unit);
        }
        ensure_eq!(Sysctl::Slots.get(), 17);
        ensure_eq!(Sysctl::InlineRead.get(), 2048);
        ensure_eq!(Sysctl::InlineWrite.get(), 8192);
        Ok(())
    }

    #[test]
    fn the_files_come_and_go() -> Test {
        for _ in 0..3 {
            let table = Table::register();
            ensure!(table.is_some());
            drop(table);
        }
        Ok(())
    }

    #[test]
    fn files_without_memory_leave_nothing() -> Test {
        let mut failed = 0;
        for nth in 1..100 {
            // SAFETY: The call has no requirements. The registration ends below.
            unsafe { bindings::fake_fail_alloc(nth) };
            let table = Table::register();
            // SAFETY: The call has no requirements.
            let injected = unsafe { bindings::fake_alloc_failed() };
            if table.is_none() {
                ensure!(injected);
                failed += 1;
            }
            drop(table);
            // The files were removed, so files with the same names can be registered again.
            ensure!(Table::register().is_some());
            if !injected {
                break;
            }
        }
        ensure_at_least!(failed, 1);
        Ok(())
    }
}
