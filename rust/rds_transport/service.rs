// SPDX-License-Identifier: GPL-2.0

//! The operations that RDS calls ([`Transport`]).

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
    prelude::*,
    sync::{
        Arc,
        Mutex, //
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
    util::{
        new_spinlock,
        Net,
        SpinLock,
        WorkQueue, //
    }, //
};
use xprtrdma_rds_proto::{
    credit::Credits,
    operation::Completion,
    ping::Pings, //
};

/// When a connection ends, the driver checks up to `LOOKS` times whether operations are in flight,
/// with a pause of `PAUSE` between two checks.
const LOOKS: u32 = 100;
const PAUSE: Delta = Delta::from_millis(5);
/// Time that the driver waits before it destroys a connection that the device or the peer has
/// ended.
const GRACE: Delta = Delta::from_millis(50);

/// Returns true if the driver can use the device of an id.
///
/// * The device must offer fast registration. Without it, the driver cannot make memory accessible
///   to peers.
/// * The device must not be for iWARP. On iWARP the end that accepts a connection must not send
///   first, and RDS does not ensure this order. In addition, the driver registers memory with a
///   queue pair that is connected to itself, and iWARP does not allow such a connection.
pub(crate) fn has_usable_device(id: &CmId) -> bool {
    let fits = |device: DeviceInfo| device.fast_reg && !device.ends_early;
    DeviceInfo::of(id).is_some_and(fits)
}

/// The driver's state of a connection.
///
/// Lock order: `endpoint`, `link`, the queues of the queue pair.
#[pin_data]
pub(crate) struct State {
    #[pin]
    pub(crate) endpoint: Mutex<Option<Endpoint>>,
    /// The state of the connection's queue pair (the link). The link exists while an endpoint
    /// exists or is being created.
    #[pin]
    pub(crate) link: SpinLock<Option<Link<Handler>>>,
    /// The ping state of the last link. The state outlives the link, because RDS sends answers to
    /// pings again on the next connection if the peer did not acknowledge them.
    #[pin]
    pings: Mutex<Pings>,
}

impl State {
    /// Calls `f` with the link, if a link exists. The spin lock of the link is held during the
    /// call.
    // This function is inlined, so that the values that `f` uses can stay in the caller's
    // registers.
    #[inline(always)]
    pub(crate) fn with_link<R>(&self, f: impl FnOnce(&mut Link<Handler>) -> R) -> Option<R> {
        let mut place = self.link.lock();
        let link: &mut Option<Link<Handler>> = &mut place;
        link.as_mut().map(f)
    }

    /// Creates the link for a new queue pair. May sleep.
    pub(crate) fn connect(&self, qp: Arc<Qp<Handler>>, device: u64, credits: Credits) -> Result {
        let pings = *self.pings.lock();
        let link = Link::new(qp, device, credits, pings)?;
        *self.link.lock() = Some(link);
        Ok(())
    }

    /// Returns true if a work request has failed, or if no link exists.
    pub(crate) fn has_failed(&self) -> bool {
        self.with_link(|link| link.failure.is_some()) != Some(false)
    }

    /// Waits for a short time until the operations in flight have completed. May sleep.
    ///
    /// The wait has two reasons:
    ///
    /// * The peer's device may have refused an operation of this host. In this case the peer ends
    ///   the connection, possibly before this host's device reports how the operation failed.
    /// * This host's device may have refused an operation of the peer, and may not have told the
    ///   peer's device yet.
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

    /// Destroys the endpoint and the link of the connection. May sleep.
    pub(crate) fn end(&self, endpoint: Option<Endpoint>) {
        // Dropping the endpoint waits until no completion handler runs.
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
            has_usable_device(&id).then_some(()).ok_or(ENODEV)
        };
        is().is_ok()
    }

    fn connect(connection: &Arc<Connection<Self>>) -> Result {
        let mut place = connection.data().endpoint.lock();
        // An endpoint can exist already: the driver created it to accept a connection request of
        // the peer, but RDS dropped the connection before the accept had finished.
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

    #[inline]
    fn transmit(
        connection: &Arc<Connection<Self>>,
        message: &Message<'_>,
        at: u32,
        begun: bool,
    ) -> Sent {
        send::transmit(connection, message, at, begun)
    }

    #[inline]
    fn operate(connection: &Arc<Connection<Self>>, message: &Message<'_>) -> bool {
        operate::operate(connection, message)
    }

    fn expose(
        self: &Arc<Self>,
        local: impl FnOnce() -> IpAddr,
        connection: Option<&Connection<Self>>,
        range: Range,
        memory: Memory,
    ) -> Result<(Region, u32)> {
        let number = |connection: &Connection<Self>| {
            let of = |link: &mut Link<Handler>| link.device;
            connection.data().with_link(of)
        };
        self.open(local, connection.and_then(number), range, memory)
    }

    fn acknowledged(region: &Region) {
        region.acknowledged();
    }

    fn offered(region: &Region) {
        region.offered();
    }

    fn queue(&self) -> &WorkQueue {
        &self.accepts
    }
}
