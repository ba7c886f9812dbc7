// SPDX-License-Identifier: GPL-2.0

//! One connection attempt.

use crate::{
    connection::{
        credits::cwnd,
        Connection, //
    },
    driver::Rdma,
    link::{
        cm_events::{
            addr_fault,
            Sink, //
        },
        keepalive::Beat,
        now,
        Link,
        CONNECT,
        LOOK_MS, //
    },
    log::{
        self,
        Again,
        Named, //
    },
};
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
        Activity,
        AddrFault,
        Cause,
        CmEvent,
        ConnectError,
        Event,
        LocalFault, //
    },
    time::Millis,
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
        Jiffies,
        NoFs,
        Show, //
    },
    xprt::{
        BackRef,
        ConnectLock,
        Xprt, //
    },
};

/// What a connection attempt has made so far; dropped in this order.
#[derive(Default)]
pub(crate) struct Attempt {
    pub(crate) qp: Option<QpOwner<Connection>>,
    pub(crate) pd: Option<Arc<Pd>>,
    pub(crate) id: Option<Arc<CmId>>,
    pub(crate) device: Option<DeviceInfo>,
    pub(crate) own: Option<PrivateData>,
}

impl Attempt {
    /// The device that it uses, if it has come so far, and whether the port is active.
    fn place(&self) -> Option<(DeviceInfo, bool)> {
        let active = self.id.as_ref()?.is_port_active();
        Some((self.device?, active))
    }
}

impl Link {
    /// Waits for the next event of an attempt, at most until its deadline.
    fn next_event(&self, xprt: &Xprt<Rdma>) -> Event {
        let mut mailbox = self.mailbox.lock();
        loop {
            if let Some(event) = mailbox.next_event() {
                return event;
            }
            let left = match mailbox.conn.deadline() {
                Some(deadline) => deadline.since(now()).get(),
                // Every step of an attempt has a deadline; look again soon all the same.
                None => 1000,
            };
            if left == 0 {
                return tick();
            }
            // Nobody tells us that the transport's last user has gone: look now and then.
            if xprt.is_dying() {
                return Event::Close(Cause::Shutdown);
            }
            let left = u32::try_from(left).unwrap_or(u32::MAX).min(LOOK_MS);
            let span = Jiffies::from_ms(left).count().max(1);
            // Kernel threads get no signals; however the wait ends, the loop looks again.
            let _ = self.arrived.wait_interruptible_timeout(&mut mailbox, span);
        }
    }

    /// Makes a connection.
    fn attempt(&self, mut lock: ConnectLock<Rdma>) {
        let xprt = lock.xprt().back_ref();
        let mut attempt = Attempt::default();
        let mut place = None;
        *self.peer.lock() = None;
        self.mailbox.lock().worker_started();
        let timeout = Some(Millis::new(u64::from(
            lock.xprt().connect_timeout().as_ms(),
        )));
        // With `nconnect` a transport may be connected long after the mount, by a call that does not give up.
        let trial = lock.is_for_trial();
        self.handle(Event::Start { timeout, trial });
        let result = 'attempt: loop {
            loop {
                let Some(action) = self.poll_action() else {
                    break;
                };
                match action {
                    Action::Established { version, .. } => {
                        self.establish(&mut lock, &mut attempt, version);
                        break 'attempt Ok(());
                    }
                    Action::Fail { error, reason } => {
                        self.log_failure(&xprt, reason, place);
                        break 'attempt Err(Error::from_errno(error.to_errno()));
                    }
                    Action::TearDown { epoch } => {
                        place = attempt.place();
                        if let Some(qp) = attempt.qp.take() {
                            let regions = qp.handler().regions.clone();
                            drop(qp);
                            regions.close();
                        }
                        attempt = Attempt::default();
                        self.handle(Event::TornDown(epoch));
                    }
                    other => {
                        let epoch = self.mailbox.lock().conn.epoch();
                        if let Err(event) = self.perform(&xprt, &mut attempt, other) {
                            pr_debug!("step {other:?} of attempt {} failed\n", epoch.raw());
                            self.handle(event);
                        }
                    }
                }
            }
            let event = self.next_event(&xprt);
            self.handle(event);
        };
        // From here on events go to the machine directly; those that are left go first.
        let left = self.mailbox.lock().worker_left(now());
        self.carry_out(&xprt, left);
        let beat = xprt.data().beat.lock().clone();
        if let (Ok(()), Some(beat), Some(ms)) = (result, beat, self.until_tick()) {
            beat.after(ms);
        }
        lock.finish(result);
    }

    /// `place`: what the attempt used, and whether its port is active.
    fn log_failure(
        &self,
        xprt: &Xprt<Rdma>,
        reason: ConnectError,
        place: Option<(DeviceInfo, bool)>,
    ) {
        let (epoch, last) = self.with_conn(|conn| (conn.epoch(), conn.last_failure()));
        trace::connect_failed(xprt.id(), epoch.raw(), reason.name());
        let lasted = last
            .filter(|last| last.reason == reason)
            .map_or(Millis::default(), |last| last.lasted);
        let active = place.is_some_and(|(_, active)| active);
        let mut outage = self.outage.lock();
        let report = outage.failed(reason, lasted, active, now(), may_log);
        drop(outage);
        log::failure(
            xprt,
            reason,
            lasted,
            &report,
            place.map(|(device, _)| device),
        );
    }

    /// Performs one step of an attempt. An error is what the machine must be told about it.
    fn perform(
        &self,
        xprt: &BackRef<Rdma>,
        attempt: &mut Attempt,
        action: Action,
    ) -> Result<(), Event> {
        match action {
            Action::ResolveAddr { epoch, timeout } => {
                let fault = |fault| Event::Cm(epoch, CmEvent::AddrError(fault));
                let peer = xprt.peer().ok_or(fault(AddrFault::Other))?;
                let local = |_| Event::LocalFault(epoch, LocalFault::NoResources);
                let sink = Sink {
                    xprt: xprt.clone(),
                    epoch,
                };
                let sink = Arc::new(sink, GFP_KERNEL).map_err(|_| local(ENOMEM))?;
                let id = CmId::create(xprt.net(), sink).map_err(local)?;
                let id = Arc::new(id, GFP_KERNEL).map_err(|_| local(ENOMEM))?;
                attempt.id = Some(id.clone());
                id.resolve_addr(&peer, ms32(timeout))
                    .map_err(|e| fault(addr_fault(e)))
            }
            Action::ResolveRoute { epoch, timeout } => attempt
                .id
                .as_ref()
                .ok_or(ENODEV)
                .and_then(|id| id.resolve_route(ms32(timeout)))
                .map_err(|_| Event::Cm(epoch, CmEvent::RouteError)),
            Action::CreateQp { epoch } => {
                let fault = self.create_qp(xprt, attempt, epoch);
                match fault {
                    Ok(()) => self.handle(Event::QpCreated(epoch)),
                    Err(fault) => return Err(Event::LocalFault(epoch, fault)),
                }
                Ok(())
            }
            Action::Connect { epoch, inline_cap } => {
                let fault = |_| Event::Cm(epoch, CmEvent::ConnectError);
                let mut own = attempt.own.ok_or(fault(ENODEV))?;
                if let Some(cap) = inline_cap {
                    own.send_size = own.send_size.min(cap);
                    xprt.data().stats.count(Counter::CmFallback);
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
            // Version 2 is not on the wire yet, and not allowed by the configuration.
            Action::SendVersionProbe { epoch } => {
                Err(Event::LocalFault(epoch, LocalFault::DeviceUnsuitable))
            }
            Action::Disconnect { epoch, cause, .. } => {
                trace::disconnected(xprt.id(), epoch.raw(), cause.name());
                self.order_end(xprt);
                Ok(())
            }
            Action::Keepalive { .. }
            | Action::Established { .. }
            | Action::Fail { .. }
            | Action::TearDown { .. } => Ok(()),
        }
    }

    /// The connection is made: lets the senders have it.
    fn establish(&self, lock: &mut ConnectLock<Rdma>, attempt: &mut Attempt, version: Version) {
        let Some(qp) = attempt.qp.take() else {
            return;
        };
        let peer_data = *self.peer.lock();
        let own = attempt.own.unwrap_or(PrivateData::ABSENT);
        let thresholds = Thresholds::negotiate(version, &own, peer_data.as_ref());
        qp.handler().thresholds.populate(thresholds);
        let credits = *qp.handler().state.credits.lock();
        let pages = qp.handler().regions.pages();
        let conn = qp.handle();
        let mut send = lock.send_lock();
        let xprt = send.xprt();
        let client = xprt.data();
        let old = self.owner.lock().replace(qp);
        // There is none: it ended before this attempt began.
        drop(old);
        if peer_data.is_none() {
            client.stats.count(Counter::CmDefault);
        }
        client
            .callback_size
            .store(thresholds.callback_max(version), Relaxed);
        let local = attempt.id.as_ref().and_then(|id| id.local_addr());
        *client.local.lock() = local;
        // The credit of one is what the RPC client counts in units of 256.
        xprt.reset_window(&send, cwnd(&credits));
        client.region_pages.store(pages, Relaxed);
        *client.current.lock() = Some(conn.clone());
        match Beat::new(xprt, &self.common) {
            Ok(beat) => *client.beat.lock() = Some(beat),
            // Without memory for it the connection goes without keepalive; and nobody would send calls away
            // that wait for their replies themselves.
            Err(_) => conn.handler().never_attend(),
        }
        trace::connected(
            xprt.id(),
            conn.handler().epoch.raw(),
            thresholds.call,
            thresholds.reply,
            credits.request().0,
        );
        *send.state() = Some(conn);
        let (failed, since) = self.outage.lock().ended(now());
        if let (true, Some(local), Some(device)) = (may_log(), local, attempt.device) {
            pr_info!(
                "{} connected{}: device {} port {}, from {}, inline {}/{}, credits {}, \
                 {} pages per region\n",
                Show(&Named(xprt)),
                Show(&Again(failed, since)),
                device.name(),
                device.port,
                Show(&local),
                thresholds.call,
                thresholds.reply,
                credits.request().0,
                pages,
            );
        }
    }
}

pub(crate) fn ms32(span: Millis) -> u32 {
    u32::try_from(span.get()).unwrap_or(u32::MAX)
}

pub(crate) fn tick() -> Event {
    Event::Tick(Activity {
        last_rx: now(),
        used: now(),
        busy: true,
    })
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
