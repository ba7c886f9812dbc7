// SPDX-License-Identifier: GPL-2.0

//! Checks a connection periodically.
//!
//! A reliable connection does not notice a dead peer as long as nothing is sent. So a work item
//! checks the connection from time to time. The connection's state machine decides whether to probe
//! the peer, and whether to end the connection. The same work item frees memory that is not needed.

use crate::{
    connection::Connection,
    driver::Rdma,
    link::{
        Link,
        KEEPALIVE_WORK,
        PROBE_WORK,
        SUSPICION_WORK, //
    },
    machine::{
        now,
        Todo, //
    },
    rpc::collect_idle, //
};
use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use xprtrdma_proto::{
    conn::{
        Activity,
        Cause,
        Epoch,
        Event,
        SUSPICION, //
    },
    time::{
        Millis,
        Time, //
    }, //
};
use xprtrdma_rdma::qp::{
    Qp,
    SendError, //
};
use xprtrdma_sunrpc::{
    util::{
        enqueue_delayed,
        Jiffies,
        KeepsQueue,
        NoFs,
        WorkQueue, //
    },
    xprt::Xprt, //
};

/// Interval between two checks of a connection whose peer may be out of reach. The interval is
/// short, because the next probe can be due immediately after a response of the peer.
const NEXT_LOOK: Millis = Millis::new(250);

impl KeepsQueue for Link {
    fn work_queue(&self) -> &WorkQueue {
        self.services().common().looks()
    }
}

impl Link {
    /// Queues the next check of the connection. The check happens at the state machine's next tick
    /// or after the time `soon`, whichever is earlier.
    pub(super) fn look_again(self: &Arc<Self>, soon: Option<Millis>) {
        let Some(span) = self.machine().until_tick() else {
            return;
        };
        let span = soon.map_or(span, |soon| soon.min(span));
        let ms = u32::try_from(span.get()).unwrap_or(u32::MAX);
        let delay = Jiffies::from_ms(ms).count().max(1);
        // If queueing fails, the work item is being cancelled, or a check is already queued.
        let _ = enqueue_delayed::<Self, KEEPALIVE_WORK>(self.clone(), delay);
    }

    /// Performs one check of the connection.
    fn check_connection(&self, qp: &Qp<Connection>) {
        let conn = qp.handler();
        let credits = conn.credits();
        conn.forgive_discards();
        if conn.starves(&credits) {
            conn.lost(Cause::CreditResync);
        }
        let xprt = conn.xprt();
        if conn.regions().is_time_to_trim() {
            // `collect_idle` also takes regions from slots that are in use. The next call of such a
            // slot gets another region from the pool.
            collect_idle(xprt, conn.regions());
            let more = conn.regions().trim();
            // `retire_registrations` posts a fence. The fence makes the device finish all
            // registrations, so that a later check can free the unneeded regions.
            if more && qp.retire_registrations() == Err(SendError::Closed) {
                conn.lost(Cause::PostFailed);
            }
            xprt.trim_slots();
        }
        // While a call polls for its reply, the call's timer cannot fire, and the call cannot
        // notice a signal. So the call must stop polling.
        qp.stop_polling();
        self.tell_time(qp);
    }

    /// Reports the time and the activity of the connection to the connection's state machine.
    fn tell_time(&self, qp: &Qp<Connection>) {
        let conn = qp.handler();
        let xprt = conn.xprt();
        let credits = conn.credits();
        // `busy` is read before `used`, the time at which the last request ended. So if no request
        // is in flight at the first read, the second read sees the end of the last request. In the
        // opposite order, a request that ends between the two reads would be missed.
        let busy = xprt.is_busy() || credits.abandoned() > 0;
        let now = now();
        let before =
            |span: Jiffies| Time::from_millis(now.as_millis().saturating_sub(span.as_ms().into()));
        let activity = Activity {
            last_rx: before(conn.silence()),
            used: before(xprt.unused()),
            busy,
        };
        self.react(xprt, Event::Tick(activity));
    }

    /// Tells the state machine that the peer of this connection or attempt may be out of reach.
    /// Called by the connection manager's event handler.
    pub(super) fn suspect(self: &Arc<Self>, xprt: &Xprt<Rdma>, epoch: Epoch, event: Event) {
        // A work item posts the probe, because the probe needs a reference to the queue pair. If
        // this function dropped the last such reference, it would destroy the connection manager's
        // identifier. The destruction would wait for this event handler, and this event handler
        // would wait for the destruction.
        let probe = matches!(self.machine().react(xprt, event), Todo::Probe(_));
        // `with_current` holds a lock while the work item is queued. The teardown takes this lock
        // before it cancels the work item, so the work item is not queued after the cancellation.
        self.with_current(|conn| {
            (conn.epoch() == epoch).then(|| match probe {
                true => self.probe_soon(),
                false => self.look_at_suspicion(Millis::default()),
            })
        });
    }

    /// Queues the probe that the state machine requested. The probe has a separate work item,
    /// because the work item `suspicion` may already be queued for a later time.
    fn probe_soon(self: &Arc<Self>) {
        // Queueing fails only if the work item is being cancelled or is already queued.
        let _ = enqueue_delayed::<Self, PROBE_WORK>(self.clone(), 1);
    }

    /// Queues a check of the connection if the state machine suspects that the peer is out of
    /// reach. In this case the state machine's next tick is due within `SUSPICION`.
    fn look_while_suspicious(self: &Arc<Self>) {
        let left = self.machine().until_tick();
        if let Some(left) = left.filter(|left| *left <= SUSPICION) {
            self.look_at_suspicion(left.min(NEXT_LOOK));
        }
    }

    fn look_at_suspicion(self: &Arc<Self>, span: Millis) {
        let ms = u32::try_from(span.get()).unwrap_or(u32::MAX);
        let delay = Jiffies::from_ms(ms).count().max(1);
        // Queueing fails only if the work item is being cancelled or is already queued.
        let _ = enqueue_delayed::<Self, SUSPICION_WORK>(self.clone(), delay);
    }
}

impl WorkItem<PROBE_WORK> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        let Some(qp) = this.current() else {
            return;
        };
        let epoch = qp.handler().epoch();
        this.fulfil(qp.handler().xprt(), Todo::Probe(epoch));
        this.look_while_suspicious();
    }
}

impl WorkItem<SUSPICION_WORK> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        let Some(qp) = this.current() else {
            return;
        };
        this.tell_time(&qp);
        this.look_while_suspicious();
    }
}

impl WorkItem<KEEPALIVE_WORK> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // NOFS is needed, because this work item frees regions, and the thread that closes the
        // connection waits for this work item.
        let _nofs = NoFs::enter();
        if let Some(qp) = this.current() {
            this.check_connection(&qp);
            let soon = this.update_rails(&qp);
            this.look_again(soon);
        }
    }
}
