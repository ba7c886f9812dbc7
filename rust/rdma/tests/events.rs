// SPDX-License-Identifier: GPL-2.0

//! Events that a device reports about itself and its ports.

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        net,
        routed,
        Census,
        Seen, //
    },
    log::Log, //
};
use crate::{
    cm::CmId,
    device::DeviceInfo,
    events::{
        DeviceEvent,
        DeviceEvents,
        DeviceHandler, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

const DOWN: DeviceEvent = of_port(bindings::ib_event_type_IB_EVENT_PORT_ERR);
const ACTIVE: DeviceEvent = of_port(bindings::ib_event_type_IB_EVENT_PORT_ACTIVE);
const FATAL: DeviceEvent = DeviceEvent {
    number: bindings::ib_event_type_IB_EVENT_DEVICE_FATAL,
    port: None,
};

const fn of_port(number: u32) -> DeviceEvent {
    DeviceEvent {
        number,
        port: Some(1),
    }
}

/// Makes the device report an event. A work item passes the event to the handlers later.
fn tell(event: DeviceEvent) {
    // SAFETY: The function accepts any event number and any port number.
    unsafe { bindings::fake_tells(event.number, event.port.unwrap_or(u32::MAX)) }
}

impl DeviceHandler for Log<DeviceEvent> {
    fn event(&self, event: DeviceEvent) {
        self.add(event);
    }
}

/// The state of a slow handler: it has begun, or it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slow {
    Begun,
    Done,
}

impl DeviceHandler for Log<Slow> {
    fn event(&self, _: DeviceEvent) {
        self.add(Slow::Begun);
        // SAFETY: A handler may sleep.
        unsafe { kernel::bindings::msleep(100) };
        self.add(Slow::Done);
    }
}

fn listen(id: &Arc<CmId>, log: &Arc<Log<DeviceEvent>>) -> Result<DeviceEvents> {
    DeviceEvents::listen(id.clone(), log.clone())
}

#[kunit_tests(xprtrdma_events)]
mod suite {
    use super::*;

    #[test]
    fn what_a_device_tells_is_heard_with_its_port() -> Test {
        calm();
        let (id, _seen) = routed()?;
        let log = Log::new()?;
        let events = listen(&id, &log)?;
        // An event of a port that this device does not have. A driver can report such an event.
        let of_other = DeviceEvent {
            number: bindings::ib_event_type_IB_EVENT_SM_CHANGE,
            port: Some(7),
        };
        let all = [
            DOWN,
            ACTIVE,
            of_port(bindings::ib_event_type_IB_EVENT_LID_CHANGE),
            of_port(bindings::ib_event_type_IB_EVENT_CLIENT_REREGISTER),
            FATAL,
            of_other,
            // An event that does not belong to a port has no port number.
            DeviceEvent {
                number: bindings::ib_event_type_IB_EVENT_QP_FATAL,
                port: None,
            },
        ];
        for event in all {
            tell(event);
            log.wait(|told| *told == event)?;
        }
        for event in all {
            ensure_eq!(log.count(event), 1);
        }
        drop(events);
        Ok(())
    }

    #[test]
    fn each_listener_hears_everything_until_it_is_dropped() -> Test {
        calm();
        let (id, _seen) = routed()?;
        let (first, second) = (Log::new()?, Log::new()?);
        let events = (listen(&id, &first)?, listen(&id, &second)?);
        tell(DOWN);
        first.wait(|told| *told == DOWN)?;
        second.wait(|told| *told == DOWN)?;
        drop(events.0);
        tell(ACTIVE);
        second.wait(|told| *told == ACTIVE)?;
        ensure_eq!(first.count(ACTIVE), 0);
        drop(events.1);
        // A handler receives only events that arrive after its registration.
        let third = Log::new()?;
        let events = listen(&id, &third)?;
        tell(FATAL);
        third.wait(|told| *told == FATAL)?;
        ensure_eq!((third.count(DOWN), third.count(ACTIVE)), (0, 0));
        ensure_eq!((first.count(FATAL), second.count(FATAL)), (0, 0));
        drop(events);
        Ok(())
    }

    // The thread that drops the registration frees the memory that the handler uses.
    #[test]
    fn no_handler_is_at_work_when_it_is_dropped() -> Test {
        calm();
        let (id, _seen) = routed()?;
        let log = Log::<Slow>::new()?;
        let events = DeviceEvents::listen(id.clone(), log.clone())?;
        tell(FATAL);
        log.wait(|how_far| *how_far == Slow::Begun)?;
        drop(events);
        ensure_eq!(log.count(Slow::Done), 1);
        // The registration may be dropped at any time. No event arrives after the drop.
        for _ in 0..50 {
            let log = Log::new()?;
            let events = listen(&id, &log)?;
            tell(DOWN);
            tell(FATAL);
            drop(events);
            let heard = log.count(DOWN) + log.count(FATAL);
            let last = Log::new()?;
            let events = listen(&id, &last)?;
            tell(ACTIVE);
            last.wait(|told| *told == ACTIVE)?;
            drop(events);
            ensure_eq!(log.count(DOWN) + log.count(FATAL), heard);
            ensure_eq!(log.count(ACTIVE), 0);
        }
        Ok(())
    }

    #[test]
    fn events_keep_their_device() -> Test {
        calm();
        let (id, _seen) = routed()?;
        let log = Log::new()?;
        let events = listen(&id, &log)?;
        drop(id);
        ensure!(DeviceInfo::of(events.id()).is_some_and(|device| device.port == 1));
        tell(DOWN);
        log.wait(|told| *told == DOWN)?;
        drop(events);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn an_id_without_a_device_has_no_events() -> Test {
        calm();
        let id = Arc::new(CmId::create(net(), Log::<Seen>::new()?)?, GFP_KERNEL)?;
        let log = Log::<DeviceEvent>::new()?;
        ensure!(matches!(listen(&id, &log), Err(e) if e == ENODEV));
        Ok(())
    }

    #[test]
    fn without_memory_nobody_listens() -> Test {
        calm();
        let (id, _seen) = routed()?;
        let log = Log::<DeviceEvent>::new()?;
        let errors = each_allocation(|| Ok(()), |()| listen(&id, &log).map(drop), |()| Ok(()))?;
        ensure_eq!(errors, 1);
        Ok(())
    }
}
