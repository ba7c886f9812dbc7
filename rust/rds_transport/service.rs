// SPDX-License-Identifier: GPL-2.0

//! The operations of RDS.

use crate::{
    driver::Rds,
    endpoint::Endpoint,
    events::Events,
    link::Link,
    operate,
    receive::Handler,
    regions::Region,
    send, //
};
use core::net::{
    IpAddr,
    SocketAddr, //
};
use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use xprtrdma_rdma::{
    cm::CmId,
    device::DeviceInfo,
    qp::Qp, //
};
use xprtrdma_rds::{
    connection::Connection,
    memory::Memory,
    message::Message,
    transport::{
        Range,
        Sent,
        Transport, //
    },
    util::Net, //
};
use xprtrdma_rds_proto::{
    credit::Credits,
    operation::Completion,
    ping::Pings, //
};

/// How often a connection that ends looks for the end of operations, and how long it waits in
/// between.
const LOOKS: u32 = 100;
const PAUSE: Delta = Delta::from_millis(5);
/// How long a connection that the device has ended is kept.
const GRACE: Delta = Delta::from_millis(50);

/// The driver's part of a connection.
///
/// Lock order: `endpoint`, `link`, the queues of the queue pair.
#[pin_data]
pub(crate) struct State {
    #[pin]
    pub(crate) endpoint: Mutex<Option<Endpoint>>,
    /// Present as long as there is an endpoint, and while one is made.
    #[pin]
    pub(crate) link: SpinLock<Option<Link<Handler>>>,
    /// What the former link knew of pings: their answers outlive it.
    #[pin]
    pings: Mutex<Pings>,
}

impl State {
    /// Calls `f` with the link, if there is one, and its lock held.
    pub(crate) fn with_link<R>(&self, f: impl FnOnce(&mut Link<Handler>) -> R) -> Option<R> {
        let mut place = self.link.lock();
        let link: &mut Option<Link<Handler>> = &mut place;
        link.as_mut().map(f)
    }

    /// Makes the link of a new queue pair.
    pub(crate) fn connect(&self, qp: Arc<Qp<Handler>>, credits: Credits) {
        let pings = *self.pings.lock();
        *self.link.lock() = Some(Link::new(qp, credits, pings));
    }

    /// Whether a work request has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.with_link(|link| link.failure.is_some()) != Some(false)
    }

    /// Waits a moment for the end of operations. If the peer has refused one of them, the peer ends
    /// the connection, and the device may be about to report how that operation has ended. If this
    /// side has refused an operation of the peer, the device of the peer may be about to hear of
    /// that. Sleeps.
    fn settle(&self) {
        let flushed = |link: &mut Link<Handler>| link.failure == Some(Completion::Flushed);
        if self.with_link(flushed) == Some(true) {
            fsleep(GRACE);
        }
        for _ in 0..LOOKS {
            let settled =
                |link: &mut Link<Handler>| link.posted.is_empty() || link.failure.is_some();
            if self.with_link(settled) != Some(false) {
                return;
            }
            fsleep(PAUSE);
        }
    }

    /// Ends the connection. Sleeps.
    pub(crate) fn end(&self, endpoint: Option<Endpoint>) {
        // Nothing completes any more when this has returned.
        drop(endpoint);
        let link = self.link.lock().take();
        if let Some(link) = link {
            *self.pings.lock() = link.pings;
            link.end();
        }
    }
}

impl Transport for Rds {
    type Connection = State;
    type Region = Region;

    fn create() -> impl PinInit<State, Error> {
        try_pin_init!(State {
            endpoint <- new_mutex!(None, "State::endpoint"),
            link <- new_spinlock!(None, "State::link"),
            pings <- new_mutex!(Pings::default(), "State::pings"),
        }? Error)
    }

    fn is_local(net: &Net, addr: IpAddr, _scope: u32) -> bool {
        let is = || -> Result {
            let id = CmId::create(net, Events::active()?)?;
            id.bind_addr(&SocketAddr::new(addr, 0))?;
            // On iWARP both ends would have to begin with the peer that connects, and no queue pair
            // is connected without one.
            let fits = |device: DeviceInfo| device.fast_reg && !device.ends_early;
            DeviceInfo::of(&id)
                .is_some_and(fits)
                .then_some(())
                .ok_or(ENODEV)
        };
        is().is_ok()
    }

    fn connect(connection: &Arc<Connection<Self>>) -> Result {
        let mut place = connection.data().endpoint.lock();
        // Belongs to a request of the peer that was dropped while it was being accepted.
        let former = place.take();
        connection.data().end(former);
        match Endpoint::connect(connection) {
            Ok(endpoint) => {
                *place = Some(endpoint);
                Ok(())
            }
            Err(error) => {
                connection.data().end(None);
                Err(error)
            }
        }
    }

    fn shut_down(connection: &Connection<Self>) {
        let mut place = connection.data().endpoint.lock();
        let endpoint = place.take();
        connection.data().settle();
        connection.data().end(endpoint);
    }

    fn transmit(
        connection: &Arc<Connection<Self>>,
        message: &Message<'_>,
        at: u32,
        begun: bool,
    ) -> Sent {
        send::transmit(connection, message, at, begun)
    }

    fn operate(connection: &Arc<Connection<Self>>, message: &Message<'_>) -> bool {
        operate::operate(connection, message)
    }

    fn sent(connection: &Arc<Connection<Self>>) {
        send::acknowledge(connection);
    }

    fn expose(
        self: &Arc<Self>,
        local: IpAddr,
        range: Range,
        memory: Memory,
    ) -> Result<(KBox<Region>, u32)> {
        self.open(local, range, memory)
    }

    fn acknowledged(region: &Region) {
        region.acknowledged();
    }

    fn offered(region: &Region) {
        region.offered();
    }

    fn release(region: KBox<Region>) {
        drop(region);
    }
}
