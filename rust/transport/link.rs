// SPDX-License-Identifier: GPL-2.0

//! The connection of a transport ([`Link`]): drives the protocol core's connection machine.
//!
//! One worker makes a connection: it performs what the machine asks for and waits for what the
//! connection manager answers. While it works, all events go to its mailbox; afterwards whoever has
//! an event hands it to the machine at once.
//!
//! The end of a connection has two halves. [`Link::end`] brings it out of the server's reach, and with
//! it the memory of all its calls. That needs no lock of the RPC client's, so tasks may wait for it
//! whatever they hold and wherever they run. [`Link::close`] is the RPC client's business, for which the
//! send lock must be free: it lets go of the connection, of which nothing may be left for the next one.
//! When the machine wants an end, both are ordered: a work item for the first half, and
//! [`Xprt::force_disconnect`] for the second, which does the first as well if nobody has done it yet.
//!
//! Teardown order of a connection:
//!
//! 1. the queue pair is disconnected, drained and destroyed, so no handler runs any more and nothing is
//!    posted;
//! 2. each slot gives up the regions of this connection, which deregisters them and ends the loans
//!    of the request's memory; a reply that had arrived and only waited for that completes its call;
//! 3. the pool's regions;
//! 4. the send path and the request paths lose sight of it (send lock, `Client::current`), which is first
//!    if nobody was faster than `close`;
//! 5. the completion queue, the rings, the protection domain and the id.
//!
//! In between senders find the send queue closed: what they have mapped goes back to the pool.

use crate::{
    beat::Beat,
    client::{
        cwnd,
        Client,
        CALLBACK_SLOTS, //
    },
    debug::Details,
    endpoint::{
        Endpoint,
        Shared, //
    },
    params,
    regions::{
        gather,
        RegionPool, //
    },
    tell::{
        self,
        Again,
        Named, //
    },
};
use kernel::{
    impl_has_work, new_condvar, new_mutex, new_spinlock, new_work,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex,
        SetOnce,
        SpinLock, //
    },
    workqueue::{
        Work,
        WorkItem, //
    },
};
use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        Actions,
        Activity,
        AddrFault,
        BackoffConfig,
        Cause,
        CmEvent,
        Config,
        Conn,
        ConnectError,
        Desk,
        Epoch,
        Event,
        KeepAliveConfig,
        LocalFault,
        Outage,
        QpEvent,
        Seen,
        Side, //
    },
    credit::ForwardCredits,
    error::errno,
    header::MAX_SEGMENTS,
    limit::{
        DiscardLimit,
        DEFAULT_DISCARD_LIMIT, //
    },
    time::{
        Millis,
        Time, //
    },
    wc,
    Counter,
    PrivateData,
    Thresholds,
    Version, //
};
use xprtrdma_rdma::{
    cm::{
        self,
        CmHandler,
        CmId,
        ConnectParam, //
    },
    device::DeviceInfo,
    failure::{
        self,
        Failure, //
    },
    pd::Pd,
    qp::{
        Qp,
        QpConfig,
        QpOwner,
        SendError,
        WcStatus, //
    },
};
use xprtrdma_sunrpc::{
    common::Common,
    queue::cancel_delayed_sync,
    trace,
    transport::{
        Create,
        Limits, //
    },
    util::{
        may_log,
        now_ms,
        random,
        Jiffies,
        NoFs,
        Show, //
    },
    xprt::{
        BackRef,
        ConnectLock,
        SendLock,
        Xprt, //
    },
};

/// Work requests in a row of which one is signalled; most calls take two.
const SIGNAL_EVERY: u32 = 64;

/// Work requests that may wait for one doorbell.
const WAITING_WRS: u16 = 31;

/// A silent peer is asked for a sign of life after this, and given up without one.
const KEEP_ALIVE: KeepAliveConfig = KeepAliveConfig {
    busy_after: Millis::from_secs(5),
    idle_after: Millis::from_secs(30),
    timeout: Millis::from_secs(10),
};

/// For how long calls that nobody waits for may hold every credit, in milliseconds.
const STARVED_MS: u32 = 60_000;

/// What was not needed for so long is given back, in milliseconds.
const TRIM_MS: u32 = 30_000;

/// How often a waiting worker looks whether it is still needed, in milliseconds.
const LOOK_MS: u32 = 250;

/// See the module's documentation.
#[pin_data]
pub(crate) struct Link {
    common: Arc<Common>,
    #[pin]
    desk: SpinLock<Desk>,
    /// Told when an event waits for the worker.
    #[pin]
    arrived: CondVar,
    /// What the peer of the present attempt said about itself.
    #[pin]
    peer: SpinLock<Option<PrivateData>>,
    #[pin]
    job: SpinLock<Option<ConnectLock<Client>>>,
    /// What of failed attempts was told.
    #[pin]
    outage: SpinLock<Outage>,
    #[pin]
    work: Work<Link, CONNECT>,
    /// The connection, until its end. Locked while that is going on, so that whoever wants the same waits
    /// until it is done.
    #[pin]
    owner: Mutex<Option<QpOwner<Endpoint>>>,
    #[pin]
    end: Work<Link, END>,
}

/// The numbers of the work items that make and end connections.
const CONNECT: u64 = 0;
const END: u64 = 1;

impl_has_work! {
    impl HasWork<Self, CONNECT> for Link { self.work }
    impl HasWork<Self, END> for Link { self.end }
}

pub(crate) fn now() -> Time {
    Time::from_millis(now_ms())
}

/// What a connection attempt has made so far; dropped in this order.
#[derive(Default)]
struct Attempt {
    qp: Option<QpOwner<Endpoint>>,
    pd: Option<Arc<Pd>>,
    id: Option<Arc<CmId>>,
    device: Option<DeviceInfo>,
    own: Option<PrivateData>,
}

impl Attempt {
    /// The device that it uses, if it has come so far, and whether the port is active.
    fn place(&self) -> Option<(DeviceInfo, bool)> {
        let active = self.id.as_ref()?.is_port_active();
        Some((self.device?, active))
    }
}

impl Link {
    /// Makes a link without a connection. Sleeps.
    pub(crate) fn new(common: Arc<Common>, create: &Create, limits: &Limits) -> Result<Arc<Self>> {
        let ms = |ms: u32| Millis::new(ms.into());
        let backoff = BackoffConfig::default();
        let config = Config {
            connect_timeout: ms(limits.connect_timeout_ms),
            backoff: BackoffConfig {
                max: backoff.max.min(ms(limits.reconnect_timeout_ms)),
                ..backoff
            },
            keepalive: Some(KEEP_ALIVE),
            idle_timeout: params::idle_timeout().filter(|_| !create.keep_idle),
            ..Config::default()
        };
        let seed = u64::from(random());
        Arc::pin_init(
            pin_init!(Self {
                common,
                desk <- new_spinlock!(Desk::new(Conn::new(config, seed)), "Link::desk"),
                arrived <- new_condvar!("Link::arrived"),
                peer <- new_spinlock!(None, "Link::peer"),
                job <- new_spinlock!(None, "Link::job"),
                outage <- new_spinlock!(Outage::new(), "Link::outage"),
                work <- new_work!("Link::work"),
                owner <- new_mutex!(None, "Link::owner"),
                end <- new_work!("Link::end"),
            }),
            GFP_KERNEL,
        )
    }

    /// Starts a connection attempt.
    pub(crate) fn connect(self: &Arc<Self>, lock: ConnectLock<Client>) {
        let old = self.job.lock().replace(lock);
        // There is none: its send lock would have kept this attempt from starting.
        drop(old);
        // Cannot fail: the worker has ended before the send lock became free.
        let queue = self.common.queue().queue();
        let _ = queue.enqueue::<Arc<Self>, CONNECT>(self.clone());
    }

    /// Hands an event to the machine: through the worker's mailbox while there is a worker,
    /// otherwise directly, and then does what the machine asks for.
    pub(crate) fn react(&self, xprt: &Xprt<Client>, event: Event) {
        let handed_in = self.desk.lock().hand_in(event, now());
        match handed_in {
            Some(actions) => self.carry_out(xprt, actions),
            None => self.arrived.notify_all(),
        }
    }

    /// Does what the machine asks for while there is no worker.
    fn carry_out(&self, xprt: &Xprt<Client>, actions: Actions) {
        for action in actions.into_iter().flatten() {
            match action {
                Action::Disconnect { epoch, cause, .. } => {
                    trace::disconnected(xprt.id(), epoch.raw(), cause.name());
                    // With the lock held: one that has been closed meanwhile needs no more, and no
                    // other is made before the order is given.
                    let desk = self.desk.lock();
                    if desk.conn.is_ending(epoch) {
                        self.order_end(xprt);
                    }
                }
                Action::KeepAlive { epoch } => self.probe(xprt, epoch),
                // The others belong to attempts, which have a worker.
                _ => {}
            }
        }
    }

    /// Has both halves of the connection's end done. Does not sleep.
    fn order_end(&self, xprt: &Xprt<Client>) {
        xprt.force_disconnect();
        // An error means that it is queued and has not begun yet.
        let ends = self.common.ends().queue();
        let _ = ends.enqueue::<Arc<Self>, END>(xprt.data().link.clone());
    }

    /// Asks the peer's device for a sign of life.
    fn probe(&self, xprt: &Xprt<Client>, epoch: Epoch) {
        let current = xprt.data().current.lock().clone();
        let Some(conn) = current.filter(|conn| conn.handler().epoch == epoch) else {
            return;
        };
        let posted = match conn.begin(0, 1) {
            Ok(batch) => batch.post_probe().is_ok(),
            // What is in the queue is as good as a probe.
            Err(SendError::Full) => true,
            Err(SendError::Closed) => false,
        };
        if !posted {
            self.react(xprt, Event::Lost(epoch, Cause::PostFailed));
        }
    }

    /// Looks whether the peer is still there; returns when to look again, in milliseconds.
    pub(crate) fn tick(&self, xprt: &Xprt<Client>) -> Option<u32> {
        let current = xprt.data().current.lock().clone()?;
        let endpoint = current.handler();
        let heard = endpoint.heard.load(Relaxed);
        let credits = *endpoint.state.credits.lock();
        endpoint.state.discards.lock().tick(now());
        if starves(endpoint, &credits) {
            endpoint.react(Event::Lost(endpoint.epoch, Cause::CreditResync));
        }
        if Jiffies::since(endpoint.trimmed.load(Relaxed)).as_ms() >= TRIM_MS {
            endpoint.trimmed.store(Jiffies::now().count(), Relaxed);
            // Those of slots at work are back at once.
            gather(xprt, &endpoint.regions);
            endpoint.regions.trim();
            xprt.trim_slots();
        }
        // So that a call that waits for its reply itself gets its timer, and notices that it was killed.
        current.dismiss();
        drop(current);
        // First, so that a request that ends meanwhile has used the connection.
        let busy = xprt.is_busy() || credits.abandoned() > 0;
        let now = now();
        let before =
            |span: Jiffies| Time::from_millis(now.as_millis().saturating_sub(span.as_ms().into()));
        let activity = Activity {
            heard: before(Jiffies::since(heard)),
            used: before(xprt.unused()),
            busy,
        };
        self.react(xprt, Event::Tick(activity));
        self.until_tick()
    }

    fn until_tick(&self) -> Option<u32> {
        let deadline = self.desk.lock().conn.deadline()?;
        Some(ms32(deadline.since(now())).max(1))
    }

    /// Tells of the end of a connection when there is no more to come about it: what is known at first,
    /// such as that everything is flushed, may be the least of it.
    fn log_loss(&self, xprt: &Xprt<Client>, epoch: Epoch) {
        let lost = self.with_conn(|conn| conn.history().iter().next().copied());
        let Some(lost) = lost.filter(|lost| lost.epoch == epoch) else {
            return;
        };
        if may_log() {
            let (xprt, cause) = (Named(xprt), lost.cause.name());
            let details = Details(&lost);
            pr_info!("{} disconnected: {cause}{}\n", Show(&xprt), Show(&details));
        }
    }

    /// Ends the connection by order of an administrator or a test.
    pub(crate) fn force(&self, xprt: &Xprt<Client>) {
        self.react(xprt, Event::Close(Cause::Forced));
    }

    /// Callbacks may come from now on: the connection is not idle without calls (BC-16).
    pub(crate) fn bind_backchannel(&self, xprt: &Xprt<Client>) {
        self.react(xprt, Event::Backchannel { bound: true });
    }

    /// Attempts and the pauses between them get no longer than this. Must not sleep.
    pub(crate) fn lower_timeouts(&self, connect: Jiffies, reconnect: Jiffies) {
        let ms = |time: Jiffies| Millis::new(time.as_ms().into());
        self.desk
            .lock()
            .conn
            .limit_timeouts(ms(connect), ms(reconnect));
    }

    /// Hands an event to the machine, as the worker or to close a connection.
    fn handle(&self, event: Event) {
        self.desk.lock().conn.handle(event, now());
    }

    fn poll_action(&self) -> Option<Action> {
        self.desk.lock().conn.poll_action()
    }

    /// Looks at the machine.
    pub(crate) fn with_conn<R>(&self, f: impl FnOnce(&Conn) -> R) -> R {
        f(&self.desk.lock().conn)
    }

    /// Brings the connection, if it is the one that is meant, and the memory of all its calls out of the
    /// server's reach, or waits until somebody else has done so. Nobody who is waited for here may wait for
    /// the send lock or the RPC client's queues, see the module's documentation. Sleeps.
    fn end(&self, is_meant: impl FnOnce(Epoch) -> bool) {
        let mut owner = self.owner.lock();
        let Some(qp) = owner.take_if(|qp| is_meant(qp.handler().epoch)) else {
            return;
        };
        let conn = qp.handle();
        let endpoint = conn.handler();
        self.handle(Event::Disconnecting(endpoint.epoch));
        let before = conn.failure();
        // Disconnects and drains.
        drop(qp);
        let seen = seen(before, conn.failure());
        self.handle(Event::Seen(endpoint.epoch, seen));
        self.log_loss(&endpoint.xprt, endpoint.epoch);
        strip(&endpoint.xprt, endpoint.epoch);
        endpoint.regions.close();
    }

    /// Ends the connection and waits until nothing of it is left. `last`: for good.
    pub(crate) fn close(&self, lock: &mut SendLock<'_, Client>, last: bool) {
        let xprt = lock.xprt();
        let conn = lock.state().take();
        let beat = xprt.data().beat.lock().take();
        if let Some(beat) = beat {
            cancel_delayed_sync(&beat);
        }
        *xprt.data().current.lock() = None;
        // The machine asks for the end itself unless the RPC client did, e.g. of an idle transport.
        let event = if last {
            Event::Shutdown
        } else {
            Event::Close(Cause::Closed)
        };
        self.handle(event);
        self.drain(xprt);
        if let Some(conn) = conn {
            let epoch = conn.handler().epoch;
            self.end(|of| of == epoch);
            // Of what senders have put back since; there are none now.
            conn.handler().regions.close();
            drop(conn);
            self.handle(Event::TornDown(epoch));
            self.drain(xprt);
        }
    }

    /// Takes the machine's actions while the connection is being closed.
    fn drain(&self, xprt: &Xprt<Client>) {
        loop {
            let Some(action) = self.poll_action() else {
                return;
            };
            if let Action::Disconnect { epoch, cause, .. } = action {
                trace::disconnected(xprt.id(), epoch.raw(), cause.name());
            }
        }
    }

    /// Waits for the next event of an attempt, at most until its deadline.
    fn next_event(&self, xprt: &Xprt<Client>) -> Event {
        let mut desk = self.desk.lock();
        loop {
            if let Some(event) = desk.next_event() {
                return event;
            }
            let left = match desk.conn.deadline() {
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
            let _ = self.arrived.wait_interruptible_timeout(&mut desk, span);
        }
    }

    /// Makes a connection.
    fn attempt(&self, mut lock: ConnectLock<Client>) {
        let xprt = lock.xprt().back_ref();
        let mut attempt = Attempt::default();
        let mut place = None;
        *self.peer.lock() = None;
        self.desk.lock().enter();
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
                        let epoch = self.desk.lock().conn.epoch();
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
        let left = self.desk.lock().leave(now());
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
        xprt: &Xprt<Client>,
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
        tell::failure(
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
        xprt: &BackRef<Client>,
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
            Action::KeepAlive { .. }
            | Action::Established { .. }
            | Action::Fail { .. }
            | Action::TearDown { .. } => Ok(()),
        }
    }

    fn create_qp(
        &self,
        xprt: &BackRef<Client>,
        attempt: &mut Attempt,
        epoch: Epoch,
    ) -> Result<(), LocalFault> {
        let resources = |_| LocalFault::NoResources;
        let id = attempt.id.as_ref().ok_or(LocalFault::DeviceGone)?;
        let device = DeviceInfo::of(id).ok_or(LocalFault::DeviceGone)?;
        if !device.fast_reg {
            pr_err!("{} has no fast registration\n", device.name());
            return Err(LocalFault::DeviceUnsuitable);
        }
        attempt.device = Some(device);
        let pd = Pd::alloc(id.clone()).map_err(resources)?;
        attempt.pd = Some(pd.clone());

        // Once for each connection: what is announced is what is posted.
        let (send_size, receive_size) = xprt.data().inline_sizes();
        attempt.own = Some(PrivateData {
            // What proves nothing is not asked for.
            remote_invalidation: device.refuses_stale_keys,
            send_size,
            receive_size,
        });
        let slots = xprt.slots().count();
        let inline = send_size as usize;
        let callbacks = u32::from(CALLBACK_SLOTS);
        // Both queues need one entry for the drain; the receive queue also a batch.
        let depth = device.max_qp_wr.min(device.max_cqe / 2).saturating_sub(1);
        let wanted = u32::try_from(slots).unwrap_or(u32::MAX);
        let batch = ((wanted + callbacks) / 8).clamp(1, 32);
        let credits = wanted.min(depth.saturating_sub(callbacks + batch)).max(1);
        let config = QpConfig {
            send_bytes: (inline * 16).clamp(4 * inline, 256 << 10),
            least_send_bytes: 4 * inline,
            send_wrs: (credits * 3 + 160).min(depth),
            signal_every: SIGNAL_EVERY,
            message_wrs: 2 * MAX_SEGMENTS as u16 + 1,
            waiting_wrs: WAITING_WRS,
            recv_count: (credits + callbacks) as u16,
            recv_batch: batch as u16,
            recv_size: receive_size as usize,
        };
        let pages = params::region_pages().min(device.max_fast_reg_pages);
        let regions = RegionPool::new(
            &pd,
            pages,
            device.sg_gaps,
            2 * credits as usize * regions_per_chunk(pages),
            xprt,
            &self.common,
        )
        .map_err(resources)?;
        let deferred = KVec::with_capacity(slots, GFP_KERNEL).map_err(|_| resources(ENOMEM))?;
        let state = Arc::pin_init(
            pin_init!(Shared {
                credits <- new_spinlock!(ForwardCredits::new(credits), "Shared::credits"),
                discards <- new_spinlock!(
                    DiscardLimit::new(DEFAULT_DISCARD_LIMIT, now()),
                    "Shared::discards"
                ),
                deferred <- new_spinlock!(deferred, "Shared::deferred"),
            }),
            GFP_KERNEL,
        )
        .map_err(resources)?;
        let endpoint = Endpoint {
            xprt: xprt.clone(),
            common: self.common.clone(),
            epoch,
            version: Version::V1,
            thresholds: SetOnce::new(),
            regions,
            device,
            replied: Atomic::new(false),
            large: Atomic::new(0),
            heard: Atomic::new(Jiffies::now().count()),
            no_credit_since: Atomic::new(0),
            trimmed: Atomic::new(Jiffies::now().count()),
            strict: params::strict(),
            requested: ForwardCredits::new(credits).request(),
            known_grant: Atomic::new(0),
            aloof: Atomic::new(0),
            state,
        };
        attempt.qp = Some(Qp::create(&pd, &config, endpoint).map_err(resources)?);
        Ok(())
    }

    /// The connection is made: lets the senders have it.
    fn establish(&self, lock: &mut ConnectLock<Client>, attempt: &mut Attempt, version: Version) {
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
        client.callback_size.store(
            thresholds
                .reverse_call_max(version)
                .min(thresholds.reverse_reply_max(version)),
            Relaxed,
        );
        let local = attempt.id.as_ref().and_then(|id| id.local_addr());
        *client.local.lock() = local;
        // The credit of one is what the RPC client counts in units of 256.
        xprt.reset_window(&send, cwnd(&credits));
        client.region_pages.store(pages, Relaxed);
        *client.current.lock() = Some(conn.clone());
        match Beat::new(xprt, &self.common) {
            Ok(beat) => *client.beat.lock() = Some(beat),
            // Without memory for it the connection goes without keep-alive; and nobody would send calls away
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

/// Whether calls that were given up have held every credit for so long that their replies will
/// not come: a server may drop what it takes for a repetition.
fn starves(endpoint: &Endpoint, credits: &ForwardCredits) -> bool {
    let since = &endpoint.no_credit_since;
    if credits.cwnd() > 0 {
        since.store(0, Relaxed);
        return false;
    }
    match since.load(Relaxed) {
        0 => {
            since.store(Jiffies::now().count().max(1), Relaxed);
            false
        }
        start => Jiffies::since(start).as_ms() >= STARVED_MS,
    }
}

/// What the device told of a failure before we ended the connection, and after all. At the end everything
/// that is left is flushed, which says nothing; but if something else failed it is the reason.
fn seen(before: Failure, after: Failure) -> Seen {
    let work = |failed: Option<(failure::Side, WcStatus)>| {
        failed.map(|(side, status)| {
            let side = match side {
                failure::Side::Send => Side::Send,
                failure::Side::Receive => Side::Receive,
            };
            (side, wc::WcStatus::from_raw(status.0))
        })
    };
    Seen {
        first: work(before.first),
        reason: work(after.reason),
        event: after.event.map(QpEvent::from_raw),
    }
}

/// Regions of `pages` pages for one chunk of the largest payload.
fn regions_per_chunk(pages: u32) -> usize {
    let needed = params::MAX_PAYLOAD / kernel::page::PAGE_SIZE + 1;
    needed.div_ceil(pages.max(1) as usize)
}

/// What the connection manager's error says about an address.
fn addr_fault(error: Error) -> AddrFault {
    // By number: not every kernel has Rust names for all of them.
    // NO-OVERFLOW: An errno is a small negative number.
    match error.to_errno().wrapping_neg() {
        errno::ENODEV => AddrFault::NoDevice,
        errno::ETIMEDOUT => AddrFault::TimedOut,
        errno::ENETUNREACH | errno::EHOSTUNREACH => AddrFault::NoRoute,
        _ => AddrFault::Other,
    }
}

fn ms32(span: Millis) -> u32 {
    u32::try_from(span.get()).unwrap_or(u32::MAX)
}

fn tick() -> Event {
    Event::Tick(Activity {
        heard: now(),
        used: now(),
        busy: true,
    })
}

/// Step 2 of the teardown: no region of the dead connection stays with a slot.
fn strip(xprt: &Xprt<Client>, epoch: Epoch) {
    for slot in xprt.slots() {
        let (regions, idle, answer) = {
            let mut state = slot.call().state.lock();
            if state.epoch != epoch {
                continue;
            }
            (
                core::mem::take(&mut state.regions),
                core::mem::take(&mut state.idle),
                slot.call().take_answer(&mut state),
            )
        };
        // Deregisters them, which is the end of the server's access.
        drop((regions, idle));
        if let Some(answer) = answer {
            answer.finish();
        }
    }
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

impl WorkItem<END> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        // The end that was ordered may be done, and another connection made.
        this.end(|epoch| this.with_conn(|conn| conn.is_ending(epoch)));
    }
}

/// Receives the connection manager's events about one attempt or connection.
struct Sink {
    xprt: BackRef<Client>,
    epoch: Epoch,
}

impl CmHandler for Sink {
    fn event(&self, event: cm::CmEvent<'_>) {
        let link = &self.xprt.data().link;
        let event = match event {
            cm::CmEvent::AddrResolved => CmEvent::AddrResolved,
            cm::CmEvent::AddrError(status) => {
                CmEvent::AddrError(addr_fault(Error::from_errno(status)))
            }
            cm::CmEvent::RouteResolved => CmEvent::RouteResolved,
            cm::CmEvent::RouteError(status) => match Error::from_errno(status) {
                e if e == ETIMEDOUT => CmEvent::RouteSilent,
                _ => CmEvent::RouteError,
            },
            cm::CmEvent::Established {
                private_data,
                peer_read_depth,
            } => {
                *link.peer.lock() = PrivateData::find(private_data);
                CmEvent::Established(Accepted {
                    peer_read_depth: Some(peer_read_depth),
                })
            }
            cm::CmEvent::ConnectError(_) => CmEvent::ConnectError,
            cm::CmEvent::Unreachable(_) => CmEvent::Unreachable,
            cm::CmEvent::Rejected { stale, .. } => CmEvent::Rejected { stale },
            cm::CmEvent::Disconnected => CmEvent::Disconnected,
            cm::CmEvent::AddrChange => CmEvent::AddrChange,
            cm::CmEvent::DeviceRemoval => CmEvent::DeviceRemoval,
            cm::CmEvent::TimewaitExit => CmEvent::TimewaitExit,
            cm::CmEvent::Other(_) => return,
        };
        link.react(&self.xprt, Event::Cm(self.epoch, event));
    }
}
