// SPDX-License-Identifier: GPL-2.0

//! Probes of rails that do not work or may not work: dead, doubted and suspected rails. A probe
//! makes a connection, transfers nothing over it, and ends it.
//!
//! No simpler test proves that a rail works: addresses are resolved from caches, and a port may be
//! active while no packet gets through.
//!
//! Each probe is a separate work item, so that several rails can be probed at the same time. This
//! is needed because over iWARP a probe may take as long as the adapter's TCP tries to connect.

use crate::{
    driver::Rdma,
    link::Link,
    machine::now,
    server::{
        ProbeJob,
        Server, //
    },
};
use core::net::SocketAddr;
use kernel::{
    new_condvar,
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        CondVar,
        SpinLock, //
    }, //
};
use xprtrdma_proto::{
    rail::{
        Probe,
        Probed,
        Rail, //
    },
    time::{
        Millis,
        Time, //
    },
    PrivateData, //
};
use xprtrdma_rdma::{
    cm::{
        self,
        CmHandler,
        CmId,
        ConnectParam, //
    },
    mr::LocalInvalidation,
    pd::Pd,
    qp::{
        Qp,
        QpConfig,
        QpHandler,
        Received,
        WcStatus, //
    },
};
use xprtrdma_sunrpc::{
    common::Common,
    util::{
        Jiffies,
        NoFs,
        PromptQueue, //
    },
    xprt::Xprt, //
};

/// Time limit of a probe. The limit leaves time for the loss of one connection request: the
/// connection manager repeats a lost request only after 4.1 to 4.6 seconds.
const LIMIT: Millis = Millis::from_secs(10);

/// Interval, in milliseconds, at which a probe checks whether its transport still exists.
const LOOK_MS: u32 = 250;

/// The queue sizes of the smallest possible queue pair.
const QUEUES: QpConfig = QpConfig {
    send_bytes: 4096,
    least_send_bytes: 4096,
    send_wrs: 4,
    signal_every: 1,
    message_wrs: 1,
    waiting_wrs: 1,
    recv_count: 1,
    recv_batch: 1,
    recv_more: 0,
    recv_size: 1024,
};

impl Link {
    /// Starts the probe of a rail.
    pub(super) fn start_probe(
        &self,
        xprt: &Xprt<Rdma>,
        server: &Arc<Server>,
        probe: Probe,
        rail: Rail,
    ) {
        let job = ProbeJob::new(xprt.back_ref(), server.clone(), probe, rail);
        let queue = self.services.common().queue().queue();
        // If memory is short, the job is dropped, and the rail policy asks for another probe later.
        let _ = queue.try_spawn(GFP_KERNEL, move || {
            let _nofs = NoFs::enter();
            let outcome = match connects(job.xprt(), &job.rail()) {
                Ok(()) => Probed::Connected,
                Err(Fault::Ours) => Probed::NotTried,
                Err(_) if job.xprt().is_dying() => Probed::NotTried,
                Err(Fault::Rails) => Probed::Failed,
            };
            job.end(outcome);
        });
    }
}

/// The steps of a connection that the connection manager reports, in the order in which they
/// happen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    Address,
    Route,
    Peer,
    /// The connection failed or ended. No more reports will follow.
    End,
}

/// The reason why a probe made no connection.
enum Fault {
    /// This host lacks a resource. This failure says nothing about the rail.
    Ours,
    /// The rail is the reason for the failure.
    Rails,
}

impl Fault {
    /// Classifies the error of a step that needs the rail.
    fn of_step(error: Error) -> Self {
        match error {
            ENOMEM | EAGAIN => Self::Ours,
            _ => Self::Rails,
        }
    }
}

/// Waits for the reports of the connection manager.
#[pin_data]
struct Answers {
    #[pin]
    reached: SpinLock<Reached>,
    #[pin]
    told: CondVar,
}

impl Answers {
    fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                reached <- new_spinlock!(Reached::Nothing, "Answers::reached"),
                told <- new_condvar!("Answers::told"),
            }),
            GFP_KERNEL,
        )
    }

    /// Waits until the connection manager reports this step, at most until `deadline`.
    fn wait(&self, xprt: &Xprt<Rdma>, wanted: Reached, deadline: Time) -> Result<(), Fault> {
        let mut reached = self.reached.lock();
        loop {
            if *reached == Reached::End {
                return Err(Fault::Rails);
            }
            if *reached >= wanted {
                return Ok(());
            }
            let left = deadline.since(now()).get();
            if left == 0 || xprt.is_dying() {
                return Err(Fault::Rails);
            }
            let left = u32::try_from(left).unwrap_or(u32::MAX).min(LOOK_MS);
            let span = Jiffies::from_ms(left).count().max(1);
            // No signal ends the wait, because kernel threads receive no signals. The result of the
            // wait is ignored, because the loop checks all conditions again.
            let _ = self.told.wait_interruptible_timeout(&mut reached, span);
        }
    }
}

impl CmHandler for Answers {
    fn event(&self, event: cm::CmEvent<'_>) {
        let now = match event {
            cm::CmEvent::AddrResolved => Reached::Address,
            cm::CmEvent::RouteResolved => Reached::Route,
            cm::CmEvent::Established { .. } => Reached::Peer,
            cm::CmEvent::Other(_) => return,
            _ => Reached::End,
        };
        let mut reached = self.reached.lock();
        *reached = now.max(*reached);
        drop(reached);
        self.told.notify_all();
    }
}

/// Handles the completions of a connection that carries nothing.
struct Idle(Arc<Common>);

impl QpHandler for Idle {
    fn queue(&self) -> &PromptQueue {
        self.0.completions().queue()
    }

    fn received(_: ArcBorrow<'_, Qp<Self>>, _: Received<'_, Self>) {}
    fn invalidated(_: ArcBorrow<'_, Qp<Self>>, _: u64, _: &LocalInvalidation) {}
    fn probed(_: ArcBorrow<'_, Qp<Self>>) {}
    fn confirmed(_: ArcBorrow<'_, Qp<Self>>) {}
    fn acknowledged(_: ArcBorrow<'_, Qp<Self>>) {}
    fn send_space(_: ArcBorrow<'_, Qp<Self>>) {}
    fn broken(_: ArcBorrow<'_, Qp<Self>>, _: WcStatus) {}
}

/// Makes a connection over the rail and ends it. May sleep.
fn connects(xprt: &Xprt<Rdma>, rail: &Rail) -> Result<(), Fault> {
    let ours = |_: Error| Fault::Ours;
    let port = xprt.peer().ok_or(Fault::Ours)?.port();
    let deadline = now().after(LIMIT);
    // CAST: The cast cannot truncate: the limit is a few seconds, in milliseconds.
    let limit = LIMIT.get() as u32;
    let answers = Answers::new().map_err(ours)?;
    // `id` is dropped last: after the queue pair and the protection domain.
    let id = CmId::create(xprt.net(), answers.clone()).map_err(ours)?;
    let id = Arc::new(id, GFP_KERNEL).map_err(|_| Fault::Ours)?;
    id.bind_addr(&SocketAddr::new(rail.local, 0))
        .map_err(Fault::of_step)?;
    // If the port is down, the probe must not send anything. Nothing would leave this host. After
    // such an attempt, rxe could send nothing even when the port is up again.
    if !id.is_port_active() {
        return Err(Fault::Rails);
    }
    id.resolve_addr(&SocketAddr::new(rail.server, port), limit)
        .map_err(Fault::of_step)?;
    answers.wait(xprt, Reached::Address, deadline)?;
    id.resolve_route(limit).map_err(Fault::of_step)?;
    answers.wait(xprt, Reached::Route, deadline)?;
    // If the device lacks a resource for a queue pair, it lacks the resource on every rail, so no
    // rail is at fault.
    let pd = Pd::alloc(id.clone()).map_err(ours)?;
    let _qp = Qp::create(&pd, &QUEUES, Idle(xprt.common().clone())).map_err(ours)?;
    let asks = id.connect(&ConnectParam {
        private_data: PrivateData::ABSENT.encode(),
        responder_resources: 1,
        retry_count: 6,
        rnr_retry_count: 0,
    });
    asks.map_err(Fault::of_step)?;
    answers.wait(xprt, Reached::Peer, deadline)
}
