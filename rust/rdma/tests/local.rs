// SPDX-License-Identifier: GPL-2.0

//! The addresses of devices.

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        net,
        peer,
        Census, //
    }, //
};
use crate::local::{
    list,
    locals,
    Local, //
};
use kernel::prelude::*;

/// Returns the list entry for the fake device's own address.
fn own(found: &[Local]) -> Option<&Local> {
    found.iter().find(|local| local.addr == peer().ip())
}

#[kunit_tests(xprtrdma_local)]
mod suite {
    use super::*;

    #[test]
    fn an_address_comes_with_its_device() -> Test {
        calm();
        let found = list(net(), |_| true)?;
        ensure!(own(&found).is_some_and(|local| {
            local.prefix_len == 64
                && local.interface != 0
                && local.active
                && local.device.name().starts_with("fake")
                && local.device.port == 1
        }));
        ensure!(found.iter().all(|local| !local.addr.is_loopback()));
        Ok(())
    }

    #[test]
    fn only_what_is_wanted_is_listed() -> Test {
        calm();
        ensure!(list(net(), |_| false)?.is_empty());
        let found = list(net(), |addr| *addr == peer().ip())?;
        ensure_eq!(found.len(), 1);
        // The fake device's address is valid only on its own link.
        ensure!(own(&locals(net())?).is_none());
        Ok(())
    }

    #[test]
    fn a_list_without_memory_leaves_nothing() -> Test {
        calm();
        let errors = each_allocation(
            || Ok(()),
            |()| {
                let found = list(net(), |addr| *addr == peer().ip())?;
                // If no memory is available, the call fails instead of leaving addresses out.
                if found.len() == 1 {
                    Ok(())
                } else {
                    Err(EINVAL)
                }
            },
            |()| Ok(()),
        )?;
        // The call makes at least five allocations: the handler, the addresses, the id, the id's
        // context, and the list.
        ensure_at_least!(errors, 5);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }
}
