// SPDX-License-Identifier: GPL-2.0

//! Looks after a connection.
//!
//! A reliable connection does not notice a dead peer as long as nothing is sent. So a work item
//! looks at it from time to time. The connection machine decides whether to ask the peer for a sign
//! of life, and whether to give it up. The same work item returns memory that is not needed.

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
        Jiffies,
        NoFs, //
    },
    xprt::Xprt, //
};

/// How soon to look while the peer may be out of reach: an answer may make another probe due at
/// once.
const NEXT_LOOK: Millis = Millis::new(250);

impl Link {
    /// Queues a look at the connection for the time when the machine wants to be told the time
    /// again, or sooner.
    pub(super) fn look_again(self: &Arc<Self>, soon: Option<Millis>) {
        let Some(span) = self.machine().until_tick() else {
            return;
        };
        let span = soon.map_or(span, |soon| soon.min(span));
        let ms = u32::try_from(span.get()).unwrap_or(u32::MAX);
        let delay = Jiffies::from_ms(ms).count().max(1);
        let queue = self.services().common().looks().queue();
        // An error means that it is being cancelled, or that a look will come soon anyway.
        let _ = queue.enqueue_delayed::<Arc<Self>, KEEPALIVE_WORK>(self.clone(), delay);
    }

    /// Looks after the connection.
    fn check_connection(&self, qp: &Qp<Connection>) {
        let conn = qp.handler();
        let credits = conn.credits();
        conn.forgive_discards();
        if conn.starves(&credits) {
            conn.lost(Cause::CreditResync);
        }
        let xprt = conn.xprt();
        if conn.regions().is_time_to_trim() {
            // Slots in use get their regions again with the next call.
            collect_idle(xprt, conn.regions());
            let more = conn.regions().trim();
            // So that those which are not needed may go the next time.
            if more && qp.retire_registrations() == Err(SendError::Closed) {
                conn.lost(Cause::PostFailed);
            }
            xprt.trim_slots();
        }
        // A call that polls for its reply must stop polling, so that its timer can fire and it
        // notices a signal.
        qp.stop_polling();
        self.tell_time(qp);
    }

    /// Reports the time, and what came over the connection, to the machine.
    fn tell_time(&self, qp: &Qp<Connection>) {
        let conn = qp.handler();
        let xprt = conn.xprt();
        let credits = conn.credits();
        // First, so that a request that ends now counts as a use of the connection.
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

    /// Tells the machine that the peer of this connection or attempt may be out of reach; called by
    /// the connection manager, in its handler.
    pub(super) fn suspect(self: &Arc<Self>, xprt: &Xprt<Rdma>, epoch: Epoch, event: Event) {
        // A probe needs a reference to the queue pair. Its last one may not be dropped here: the
        // connection manager's identifier goes with it, and waits for its handler.
        let probe = matches!(self.machine().react(xprt, event), Todo::Probe(_));
        // Under the lock: the end of the connection takes it first, and cancels the work then.
        self.with_current(|conn| {
            (conn.epoch() == epoch).then(|| match probe {
                true => self.probe_soon(),
                false => self.look_at_suspicion(Millis::default()),
            })
        });
    }

    /// Queues the probe that the machine asked for. The work is its own, for `suspicion` may be
    /// queued for later.
    fn probe_soon(self: &Arc<Self>) {
        let queue = self.services().common().looks().queue();
        // An error means that it is being cancelled, or queued already.
        let _ = queue.enqueue_delayed::<Arc<Self>, PROBE_WORK>(self.clone(), 1);
    }

    /// The answer has little time; without a suspicion the next look is far away.
    fn look_while_suspicious(self: &Arc<Self>) {
        let left = self.machine().until_tick();
        if let Some(left) = left.filter(|left| *left <= SUSPICION) {
            self.look_at_suspicion(left.min(NEXT_LOOK));
        }
    }

    fn look_at_suspicion(self: &Arc<Self>, span: Millis) {
        let ms = u32::try_from(span.get()).unwrap_or(u32::MAX);
        let delay = Jiffies::from_ms(ms).count().max(1);
        let queue = self.services().common().looks().queue();
        // An error means that it is being cancelled, or is under way.
        let _ = queue.enqueue_delayed::<Arc<Self>, SUSPICION_WORK>(self.clone(), delay);
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
        // It gives regions back, and the thread that closes the connection waits for it.
        let _nofs = NoFs::enter();
        if let Some(qp) = this.current() {
            this.check_connection(&qp);
            let soon = this.update_rails(&qp);
            this.look_again(soon);
        }
    }
}
