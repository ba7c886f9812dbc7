// SPDX-License-Identifier: GPL-2.0

//! Tests of protection domains.

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        net,
        routed,
        Census,
        Verb, //
    },
    log::Log, //
};
use crate::{
    cm::CmId,
    device::DeviceInfo,
    pd::Pd, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

#[kunit_tests(xprtrdma_pd)]
mod suite {
    use super::*;

    #[test]
    fn a_domain_lives_as_long_as_its_owner() -> Test {
        calm();
        let (id, _log) = routed()?;
        let pd = Pd::alloc(id.clone())?;
        ensure_eq!(
            Census::now(),
            Census {
                pds: 1,
                ..Census::NOTHING
            }
        );
        drop(pd);
        ensure_eq!(Census::now(), Census::NOTHING);
        drop(id);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_domain_keeps_its_id() -> Test {
        calm();
        let (id, _log) = routed()?;
        let first = Pd::alloc(id.clone())?;
        let second = Pd::alloc(id.clone())?;
        drop(id);
        // Only the domains hold references to the id now. The next line reads the device's limits
        // through the id, and so shows that the id still exists.
        ensure!(DeviceInfo::of(first.id()).is_some_and(|d| d.fast_reg && d.sg_gaps));
        drop(first);
        ensure_eq!(
            Census::now(),
            Census {
                pds: 1,
                ..Census::NOTHING
            }
        );
        drop(second);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn an_id_without_a_device_has_no_domain() -> Test {
        calm();
        let id = Arc::new(CmId::create(net(), Log::new()?)?, GFP_KERNEL)?;
        ensure_eq!(Pd::alloc(id).err(), Some(ENODEV));
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_device_without_a_domain_leaves_nothing() -> Test {
        calm();
        let (id, _log) = routed()?;
        Verb::AllocPd.fail(1);
        ensure_eq!(Pd::alloc(id.clone()).err(), Some(EAGAIN));
        ensure_eq!(Verb::AllocPd.calls(), 1);
        ensure_eq!(Census::now(), Census::NOTHING);
        drop(Pd::alloc(id)?);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_domain_without_memory_leaves_nothing() -> Test {
        calm();
        let (id, _log) = routed()?;
        let errors = each_allocation(
            || Ok(()),
            |()| Pd::alloc(id.clone()).map(drop),
            |()| {
                ensure_eq!(Census::now(), Census::NOTHING);
                Ok(())
            },
        )?;
        // The call makes two allocations: the C object and the Rust object.
        ensure_at_least!(errors, 2);
        Ok(())
    }
}
