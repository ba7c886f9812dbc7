// SPDX-License-Identifier: GPL-2.0

//! Tests of connection ids.

use super::{
    allocations::each_allocation,
    busy_poll::{
        elsewhere,
        Errands,
        Shared, //
    },
    ensure::Test,
    fake::{
        calm,
        net,
        peer,
        routed,
        Census,
        Seen,
        Verb, //
    },
    log::Log,
    peer::Answer,
    qp::{
        Pair,
        REQUEST, //
    },
    wait::wait_until, //
};
use crate::{
    cm::CmId,
    device::DeviceInfo, //
};
use core::net::{
    Ipv4Addr,
    Ipv6Addr,
    SocketAddr, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Full,
        Relaxed, //
    },
};

/// An address with a prefix that is not routed (RFC 6666).
const NOWHERE: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);

/// Returns the device's own address with port 0, which selects any free port.
fn own() -> SocketAddr {
    let mut own = peer();
    own.set_port(0);
    own
}

#[kunit_tests(xprtrdma_cm)]
mod suite {
    use super::*;

    #[test]
    fn an_id_finds_the_device_of_its_address() -> Test {
        calm();
        let (id, log) = routed()?;
        let info = DeviceInfo::of(&id);
        ensure!(info.is_some_and(|d| d.name().starts_with("fake") && d.port == 1));
        ensure!(id.is_port_active());
        ensure!(id.local_addr().is_some_and(|a| a.ip() == peer().ip()));
        ensure_eq!(log.count(Seen::AddrResolved), 1);
        ensure_eq!(log.count(Seen::RouteResolved), 1);
        drop(id);
        // No event arrives after the id was destroyed.
        ensure_eq!(log.count(Seen::Disconnected), 0);
        Ok(())
    }

    #[test]
    fn an_id_may_be_dropped_at_any_step() -> Test {
        calm();
        drop(CmId::create(net(), Log::<Seen>::new()?)?);
        // The id is destroyed while its address is being resolved.
        let id = CmId::create(net(), Log::<Seen>::new()?)?;
        id.resolve_addr(&peer(), 5000)?;
        drop(id);
        // The id is destroyed after its address was resolved.
        let log = Log::<Seen>::new()?;
        let id = CmId::create(net(), log.clone())?;
        id.resolve_addr(&peer(), 5000)?;
        log.wait(|e| *e == Seen::AddrResolved)?;
        drop(id);
        // The id is destroyed after it was bound.
        let id = CmId::create(net(), Log::<Seen>::new()?)?;
        id.bind_addr(&own())?;
        drop(id);
        // The id is destroyed while its route is being resolved.
        let log = Log::<Seen>::new()?;
        let id = CmId::create(net(), log.clone())?;
        id.resolve_addr(&peer(), 5000)?;
        log.wait(|e| *e == Seen::AddrResolved)?;
        id.resolve_route(5000)?;
        drop(id);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_bound_id_has_its_device_at_once() -> Test {
        calm();
        let log = Log::<Seen>::new()?;
        let id = CmId::create(net(), log.clone())?;
        id.bind_addr(&own())?;
        ensure!(DeviceInfo::of(&id).is_some_and(|d| d.name().starts_with("fake") && d.port == 1));
        ensure!(id.is_port_active());
        // The binding sets the address, but the CM writes the address a second time when it
        // resolves the peer's address. So `local_addr` returns no address before that.
        ensure!(id.local_addr().is_none());
        ensure_eq!(id.bind_addr(&own()), Err(EINVAL));
        let other = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 20049);
        ensure_eq!(id.resolve_addr(&other, 100), Err(EINVAL));
        id.resolve_addr(&peer(), 5000)?;
        log.wait(|e| *e == Seen::AddrResolved)?;
        ensure!(id
            .local_addr()
            .is_some_and(|a| a.ip() == own().ip() && a.port() != 0));
        ensure_eq!(id.bind_addr(&own()), Err(EINVAL));
        id.resolve_route(5000)?;
        log.wait(|e| *e == Seen::RouteResolved)?;
        // The port is in use as long as the id exists.
        let local = id.local_addr().ok_or(EINVAL)?;
        let late = CmId::create(net(), log.clone())?;
        ensure_eq!(late.bind_addr(&local), Err(EADDRINUSE));
        ensure!(DeviceInfo::of(&late).is_none());
        drop(id);
        CmId::create(net(), log)?.bind_addr(&local)?;
        Ok(())
    }

    #[test]
    fn what_has_no_device_binds_nothing() -> Test {
        calm();
        for (local, error) in [
            // No interface has one of these addresses. The second address is reserved for
            // documentation (RFC 5737).
            (SocketAddr::new(NOWHERE.into(), 0), EADDRNOTAVAIL),
            (
                SocketAddr::new(Ipv4Addr::new(203, 0, 113, 1).into(), 0),
                EADDRNOTAVAIL,
            ),
            (
                SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
                EADDRNOTAVAIL,
            ),
            (
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
                EADDRNOTAVAIL,
            ),
            (
                SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
                EADDRNOTAVAIL,
            ),
            (
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0),
                EADDRNOTAVAIL,
            ),
            // This is a link-local address without a scope.
            (SocketAddr::new(own().ip(), 0), EINVAL),
        ] {
            let id = CmId::create(net(), Log::<Seen>::new()?)?;
            ensure_eq!(id.bind_addr(&local), Err(error));
            ensure!(DeviceInfo::of(&id).is_none());
            ensure!(!id.is_port_active());
        }
        Ok(())
    }

    #[test]
    fn an_address_without_a_device_is_an_error() -> Test {
        calm();
        let log = Log::<Seen>::new()?;
        let id = CmId::create(net(), log.clone())?;
        ensure!(DeviceInfo::of(&id).is_none());
        ensure!(!id.is_port_active());
        let nowhere = SocketAddr::new(NOWHERE.into(), 20049);
        if id.resolve_addr(&nowhere, 100).is_ok() {
            log.wait(|e| *e == Seen::AddrError)?;
        }
        ensure!(DeviceInfo::of(&id).is_none());
        Ok(())
    }

    #[test]
    fn steps_out_of_order_are_refused() -> Test {
        calm();
        let id = CmId::create(net(), Log::<Seen>::new()?)?;
        ensure!(id.resolve_route(100).is_err());
        ensure!(id.disconnect().is_err());
        Ok(())
    }

    // If a connect request fails, the connection manager frees the objects that it created for the
    // request. A disconnect reads these objects, so it must wait until the connect request has
    // failed.
    #[test]
    fn an_id_disconnects_when_it_does_not_connect_any_more() -> Test {
        for shut_down in [false, true] {
            let pair = Pair::new()?;
            Answer::FailsLate.always();
            let shared = Shared::new()?;
            let errands = Errands(shared.clone());
            elsewhere(&pair, &shared, |qp, shared| {
                if qp.pd().id().connect(&REQUEST).is_err() {
                    shared.seen.fetch_add(1, Full);
                }
            })?;
            wait_until(|| Verb::Connect.calls() == 1)?;
            if !shut_down {
                ensure_eq!(pair.owner.pd().id().disconnect(), Err(EINVAL));
            }
            drop(pair);
            errands.finish()?;
            ensure_eq!(shared.seen.load(Relaxed), 1);
            wait_until(|| Census::now() == Census::NOTHING)?;
        }
        Ok(())
    }

    #[test]
    fn an_id_without_memory_leaves_nothing() -> Test {
        calm();
        let log = Log::<Seen>::new()?;
        let errors = each_allocation(
            || Ok(()),
            |()| CmId::create(net(), log.clone()).map(drop),
            |()| Ok(()),
        )?;
        // The call makes two allocations: the C object and this crate's context.
        ensure_at_least!(errors, 2);
        Ok(())
    }
}
