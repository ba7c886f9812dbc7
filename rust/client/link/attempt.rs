// SPDX-License-Identifier: GPL-2.0

//! Performs one connection attempt.

use crate::{
    connection::{
        Connection,
        Disbelief,
        Setup, //
    },
    driver::Rdma,
    link::{
        cm_events::{
            addr_fault,
            host_fault,
            Listener, //
        },
        port_events::PortListener,
        Link,
        CONNECT, //
    },
    log::{
        self,
        Again,
        Named,
        Reason, //
    },
    machine::{
        now,
        Established, //
    },
    server::Server,
};
use core::net::SocketAddr;
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::WorkItem, //
};
use xprtrdma_proto::{
    conn::{
        Action,
        AddrFault,
        Cause,
        CmEvent,
        Conn,
        ConnectError,
        Epoch,
        Event,
        Haste,
        LocalFault,
        LEAST_LIMIT, //
    },
    time::Millis,
    v2::negotiate::VersionPolicy,
    Counter,
    PrivateData,
    Thresholds,
    Version, //
};
use xprtrdma_rdma::{
    cm::{
        CmId,
        ConnectParam, //
    },
    device::DeviceInfo,
    pd::Pd,
    qp::QpOwner, //
};
use xprtrdma_sunrpc::{
    trace,
    util::{
        may_log,
        NoFs,
        Show, //
    },
    xprt::{
        BackRef,
        ConnectLock,
        Xprt, //
    },
};

/// The objects that a connection attempt has made so far. They are dropped in the order of the
/// fields.
#[derive(Default)]
struct Attempt {
    qp: Option<QpOwner<Connection>>,
    pd: Option<Arc<Pd>>,
    id: Option<Arc<CmId>>,
    device: Option<DeviceInfo>,
    /// The private data that this host sends.
    own: Option<PrivateData>,
}

impl Attempt {
    /// Returns the device of the attempt, if the address was resolved, and whether its port is
    /// active.
    fn place(&self) -> Option<(DeviceInfo, bool)> {
        let active = self.id.as_ref()?.is_port_active();
        Some((self.device?, active))
    }
}

impl Link {
    /// Makes a connection. If a rail fails, tries further rails without a delay.
    fn attempt(self: &Arc<Self>, mut lock: ConnectLock<Rdma>) {
        let xprt = lock.xprt().back_ref();
        self.learn_version(&xprt);
        let mut result = self.attempt_once(&mut lock, &xprt);
        let mut haste = Haste::default();
        while let Err((_, reason)) = result {
            if !haste.may_follow(reason) || !self.rail_failed(reason) {
                break;
            }
            result = self.attempt_once(&mut lock, &xprt);
        }
        let result = result.map_err(|(error, _)| Error::from_errno(error.to_errno()));
        if result.is_err() {
            self.leave_rail();
        }
        // From here on, events go directly to the connection's state machine. Events that are still
        // in the mailbox are handled first.
        let todo = self.machine().leave(&xprt);
        self.tell_version();
        self.fulfil(&xprt, todo);
        if result.is_ok() {
            self.look_again(None);
        }
        lock.finish(result);
    }

    /// Makes a connection over one rail. An error contains the errno for the tasks that wait for
    /// the connection, and the reason of the failure.
    fn attempt_once(
        self: &Arc<Self>,
        lock: &mut ConnectLock<Rdma>,
        xprt: &BackRef<Rdma>,
    ) -> Result<(), (xprtrdma_proto::Error, ConnectError)> {
        let machine = self.machine();
        let mut attempt = Attempt::default();
        let mut place = None;
        *self.peer.lock() = None;
        let timeout = Millis::new(u64::from(xprt.connect_timeout().as_ms())).max(LEAST_LIMIT);
        let (facts, timeout) = self.take_rail(xprt, timeout);
        // The state machine must know whether the call that requests this connection gives up after
        // one failed attempt. The number of the attempt does not say this. With `nconnect`, for
        // example, a transport may make its first attempt long after the mount, for a call that
        // waits without a time limit.
        machine.begin(timeout, lock.is_for_trial(), facts);
        loop {
            while let Some(action) = machine.poll_action() {
                match action {
                    Action::Established { version, .. } => {
                        self.establish(lock, &mut attempt, version);
                        return Ok(());
                    }
                    Action::Fail { error, reason } => {
                        self.log_failure(xprt, reason, place);
                        return Err((error, reason));
                    }
                    Action::TearDown { epoch } => {
                        place = attempt.place();
                        if let Some(qp) = attempt.qp.take() {
                            qp.destroy();
                        }
                        attempt = Attempt::default();
                        machine.handle(Event::TornDown(epoch));
                    }
                    other => {
                        if let Err(event) = self.perform(xprt, &mut attempt, other) {
                            pr_debug!("step {other:?} of an attempt failed\n");
                            machine.handle(event);
                        }
                    }
                }
            }
            let event = machine.next_event(xprt);
            machine.handle(event);
        }
    }

    /// Tells the state machine what all transports of the server know about the server's support
    /// for version 2 (V2-12).
    fn learn_version(&self, xprt: &Xprt<Rdma>) {
        if self.version_policy() != VersionPolicy::V1Only {
            // If there is no memory for the shared state, this transport finds out by itself
            // whether the server supports version 2.
            let server = self.server(xprt);
            if let Some(shared) = server.as_deref().and_then(Server::shared) {
                self.machine().learn_version(shared.version());
            }
        }
    }

    /// Shares what this transport knows about version 2 with the other transports of the server.
    pub(super) fn tell_version(&self) {
        let known = self.machine().with_conn(Conn::version_known);
        let server = self.server.lock().clone();
        if let Some(shared) = server.as_deref().and_then(Server::shared) {
            shared.add_version(known);
        }
    }

    /// Logs the failure of an attempt. `place` contains the device that the attempt used, and says
    /// whether the port of the device is active.
    fn log_failure(
        &self,
        xprt: &Xprt<Rdma>,
        reason: ConnectError,
        place: Option<(DeviceInfo, bool)>,
    ) {
        let look = |conn: &Conn| (conn.epoch(), conn.last_failure());
        let (epoch, last) = self.machine().with_conn(look);
        trace::connect_failed(xprt.id(), epoch.raw(), reason.name());
        let last = last.filter(|last| last.reason == reason);
        let (lasted, errno) = last.map_or_else(Default::default, |last| (last.lasted, last.errno));
        let active = place.is_some_and(|(_, active)| active);
        let mut outage = self.outage.lock();
        let report = outage.failed(reason, lasted, active, now(), may_log);
        drop(outage);
        log::failure(
            xprt,
            Reason(reason, errno),
            lasted,
            &report,
            place.map(|(device, _)| device),
            self.rail().map(|(rail, _)| rail),
        );
    }

    /// Performs one step of an attempt. If the step fails, returns the event to report to the state
    /// machine.
    fn perform(
        self: &Arc<Self>,
        xprt: &BackRef<Rdma>,
        attempt: &mut Attempt,
        action: Action,
    ) -> Result<(), Event> {
        match action {
            Action::ResolveAddr { epoch, timeout } => {
                let fault = |fault| Event::Cm(epoch, CmEvent::AddrError(fault));
                let mut peer = xprt.peer().ok_or(fault(AddrFault::Other))?;
                let rail = self.rail().map(|(rail, _)| rail);
                if let Some(rail) = rail.filter(|rail| rail.server != peer.ip()) {
                    peer = SocketAddr::new(rail.server, peer.port());
                }
                let refused = |error| match addr_fault(error) {
                    AddrFault::Other => host_fault(epoch, error),
                    other => fault(other),
                };
                let local = |_| Event::LocalFault(epoch, LocalFault::NoResources);
                let listener = Listener {
                    link: self.clone(),
                    xprt: xprt.clone(),
                    epoch,
                };
                let listener = Arc::new(listener, GFP_KERNEL).map_err(|_| local(ENOMEM))?;
                let id = CmId::create(xprt.net(), listener).map_err(local)?;
                let id = Arc::new(id, GFP_KERNEL).map_err(|_| local(ENOMEM))?;
                attempt.id = Some(id.clone());
                if let Some(rail) = rail {
                    id.bind_addr(&SocketAddr::new(rail.local, 0))
                        .map_err(refused)?;
                    // If the port is down, the attempt must not send anything. A packet could not
                    // leave this host, and after such a failure rxe could not send packets even
                    // when the port is up again.
                    self.check_port(&id, epoch)?;
                }
                id.resolve_addr(&peer, ms32(timeout)).map_err(refused)
            }
            Action::ResolveRoute { epoch, timeout } => attempt
                .id
                .as_ref()
                .ok_or(ENODEV)
                .and_then(|id| id.resolve_route(ms32(timeout)))
                .map_err(|error| host_fault(epoch, error)),
            Action::CreateQp { epoch } => {
                self.create_qp(xprt, attempt, epoch)
                    .map_err(|fault| Event::LocalFault(epoch, fault))?;
                // From now on, events of the port are reported. But an event between the last check
                // and now may have been missed, so the port is checked again.
                if let Some(id) = &attempt.id {
                    self.check_port(id, epoch)?;
                }
                self.machine().handle(Event::QpCreated(epoch));
                Ok(())
            }
            Action::Connect { epoch, inline_cap } => {
                let fault = |error| host_fault(epoch, error);
                let mut own = attempt.own.ok_or(fault(ENODEV))?;
                if let Some(cap) = inline_cap {
                    own.send_size = own.send_size.min(cap);
                    self.services.counters().count(Counter::CmFallback);
                }
                attempt.own = Some(own);
                let depth = attempt.device.map_or(1, |d| d.max_qp_rd_atom).max(1);
                let id = attempt.id.as_ref().ok_or(fault(ENODEV))?;
                id.connect(&ConnectParam {
                    private_data: own.encode(),
                    responder_resources: depth.min(255) as u8,
                    retry_count: 6,
                    rnr_retry_count: 0,
                })
                .map_err(fault)
            }
            Action::SendVersionProbe { epoch } => attempt
                .qp
                .as_ref()
                .ok_or(Event::LocalFault(epoch, LocalFault::NoResources))
                .and_then(|qp| Connection::send_version_probe(qp)),
            Action::Disconnect { epoch, cause, .. } => {
                self.machine().order_end(xprt, epoch, cause);
                Ok(())
            }
            Action::Keepalive { .. }
            | Action::Established { .. }
            | Action::Fail { .. }
            | Action::TearDown { .. } => Ok(()),
        }
    }

    /// Returns an error if the attempt uses a rail whose port is down. The next attempt then takes
    /// another rail.
    fn check_port(&self, id: &CmId, epoch: Epoch) -> Result<(), Event> {
        if self.rail().is_some() && !id.is_port_active() {
            return Err(Event::Lost(epoch, Cause::PortDown));
        }
        Ok(())
    }

    /// Makes the queue pair of an attempt, and the objects that live as long as the queue pair.
    fn create_qp(
        self: &Arc<Self>,
        xprt: &BackRef<Rdma>,
        attempt: &mut Attempt,
        epoch: Epoch,
    ) -> Result<(), LocalFault> {
        let resources = |_| LocalFault::NoResources;
        let id = attempt.id.as_ref().ok_or(LocalFault::DeviceGone)?;
        let device = DeviceInfo::of(id).ok_or(LocalFault::DeviceGone)?;
        if !device.fast_reg {
            // LOG: The device cannot be used. The attempt fails with `no suitable RDMA device`.
            pr_err!("{} has no fast registration\n", device.name());
            return Err(LocalFault::DeviceUnsuitable);
        }
        attempt.device = Some(device);
        let pd = Pd::alloc(id.clone()).map_err(resources)?;
        attempt.pd = Some(pd.clone());
        // The sizes are read only once for each connection, so that the announced sizes equal the
        // sizes of the posted Receives.
        let inline_sizes = self.inline_sizes();
        let setup = Setup::new(xprt, &self.services, (id, &pd), device, inline_sizes);
        attempt.own = Some(setup.private_data());
        let listener = PortListener {
            link: self.clone(),
            xprt: xprt.clone(),
            epoch,
            port: device.port,
            place: self.rail().map(|(_, number)| number),
        };
        let listener = Arc::new(listener, GFP_KERNEL).map_err(|_| LocalFault::NoResources)?;
        attempt.qp = Some(setup.make(epoch, listener).map_err(resources)?);
        Ok(())
    }

    /// Installs the new connection, so that senders can use it.
    fn establish(&self, lock: &mut ConnectLock<Rdma>, attempt: &mut Attempt, version: Version) {
        let Some(owner) = attempt.qp.take() else {
            return;
        };
        let peer_data = *self.peer.lock();
        let own = attempt.own.unwrap_or(PrivateData::ABSENT);
        let thresholds = Thresholds::negotiate(version, &own, peer_data.as_ref());
        let qp = owner.handle();
        let conn = qp.handler();
        conn.agree(version, thresholds);
        let (epoch, pages) = (conn.epoch(), conn.regions().pages());
        let disbelief = conn.disbelief();
        let credits = conn.credits().request().0;
        let mut send = lock.send_lock();
        let xprt = send.xprt();
        self.machine().own(owner);
        if peer_data.is_none() {
            self.services.counters().count(Counter::CmDefault);
        }
        self.callback_size
            .store(thresholds.callback_max(version), Relaxed);
        let local = attempt.id.as_ref().and_then(|id| id.local_addr());
        *self.local.lock() = local;
        conn.open_window(&send);
        self.region_pages.store(pages, Relaxed);
        *self.current.lock() = Some(qp.clone());
        trace::connected(
            xprt.id(),
            epoch.raw(),
            thresholds.call,
            thresholds.reply,
            credits,
            version.number(),
        );
        *send.state() = Some(qp);
        self.rail_connected();
        // Earlier events cannot explain a failure of this new connection, so their record is
        // cleared.
        self.services.devices().forget();
        let (failed, since) = self.outage.lock().ended(now());
        if let (true, Some(local), Some(device)) = (may_log(), local, attempt.device) {
            // LOG: The numbers after `inline` are the sizes in bytes of the largest messages that
            // are sent and received without RDMA. The credits are those that the client requests.
            // If the message contains `no remote invalidation`, each call with a region needs more
            // work.
            pr_info!(
                "{} connected{}: device {} port {}, from {}{}, inline {}/{}, credits {}, \
                 {} pages per region{}{}\n",
                Show(&Named(xprt)),
                Show(&Again(failed, since)),
                device.name(),
                device.port,
                Show(&local),
                Show(&log::To(xprt.peer(), self.rail().map(|(rail, _)| rail))),
                thresholds.call,
                thresholds.reply,
                credits,
                pages,
                match version {
                    Version::V1 => "",
                    Version::V2 => ", version 2",
                },
                Show(&log::Uninvalidated(disbelief.map(Disbelief::reason))),
            );
        }
    }
}

/// Converts a time span to the milliseconds that the connection manager takes.
fn ms32(span: Millis) -> u32 {
    u32::try_from(span.get()).unwrap_or(u32::MAX)
}

impl WorkItem<CONNECT> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        let job = this.job.lock().take();
        if let Some(lock) = job {
            this.attempt(lock);
        }
    }
}
