// SPDX-License-Identifier: GPL-2.0

//! Tests of the text settings of network namespaces.

use super::{
    allocations::each_allocation,
    driver::{
        Driver,
        REFUSED, //
    },
    ensure::Test, //
};
use crate::settings::{
    check_parameters,
    Setting,
    Settings,
    LONGEST, //
};
use kernel::prelude::*;
use xprtrdma_base::net::Net;
use xprtrdma_bindings as bindings;

/// Returns the initial network namespace.
fn net() -> &'static Net {
    // SAFETY: The initial namespace is never freed.
    unsafe { Net::from_raw(bindings::fake_net()) }
}

#[kunit_tests(xprtrdma_settings)]
mod suite {
    use super::*;

    #[test]
    fn what_is_set_is_read() -> Test {
        check_parameters::<Driver>()?;
        let settings = Settings::register::<Driver>()?;
        let is = |setting, wanted: &str| settings.read(net(), setting, |text| text == wanted);
        ensure!(is(Setting::Rails, "") && is(Setting::RailServers, ""));
        settings.set(net(), Setting::Rails, b"one\n")?;
        settings.set(net(), Setting::RailServers, b"two")?;
        ensure!(is(Setting::Rails, "one") && is(Setting::RailServers, "two"));
        settings.set(net(), Setting::Rails, b"")?;
        ensure!(is(Setting::Rails, "") && is(Setting::RailServers, "two"));
        Ok(())
    }

    #[test]
    fn what_is_refused_changes_nothing() -> Test {
        let settings = Settings::register::<Driver>()?;
        settings.set(net(), Setting::Rails, b"good")?;
        let changes = settings.changes(net());
        let long = KVec::from_elem(b'x', LONGEST + 1, GFP_KERNEL)?;
        for (text, error) in [
            (REFUSED.as_bytes(), ERANGE),
            // The newline at the end of the text is removed before the text is checked.
            (b"refused\n".as_slice(), ERANGE),
            (b"\xff".as_slice(), EINVAL),
            (long.as_slice(), EINVAL),
        ] {
            ensure_eq!(settings.set(net(), Setting::Rails, text), Err(error));
        }
        ensure!(settings.read(net(), Setting::Rails, |text| text == "good"));
        ensure_eq!(settings.changes(net()), changes);
        let longest = long.get(..LONGEST).ok_or(EINVAL)?;
        settings.set(net(), Setting::Rails, longest)?;
        ensure!(settings.read(net(), Setting::Rails, |text| text.len() == LONGEST));
        ensure!(settings.changes(net()) != changes);
        Ok(())
    }

    #[test]
    fn there_is_one_registration() -> Test {
        for _ in 0..3 {
            let settings = Settings::register::<Driver>()?;
            ensure_eq!(Settings::register::<Driver>().err(), Some(EBUSY));
            // After a new registration the setting has its initial value again.
            ensure!(settings.read(net(), Setting::Rails, str::is_empty));
            settings.set(net(), Setting::Rails, b"left")?;
        }
        Ok(())
    }

    #[test]
    fn settings_without_memory_leave_nothing() -> Test {
        let errors = each_allocation(
            || Ok(()),
            |()| Settings::register::<Driver>().map(drop),
            |()| Ok(()),
        )?;
        // Each namespace needs an allocation for each of its two texts.
        ensure_at_least!(errors, 3);
        let settings = Settings::register::<Driver>()?;
        let errors = each_allocation(
            || Ok(()),
            |()| settings.set(net(), Setting::Rails, b"text"),
            |()| Ok(()),
        )?;
        ensure_eq!(errors, 1);
        Ok(())
    }
}
