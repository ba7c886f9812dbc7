// SPDX-License-Identifier: GPL-2.0

//! Looks after a connection that is silent ([`Beat`]).
//!
//! A reliable connection does not notice a dead peer as long as nothing is sent. So somebody looks
//! from time to time; the connection machine decides whether to ask the peer for a sign of life,
//! and whether to give it up.

use crate::{
    connection::credits::starves,
    driver::Rdma,
    link::{
        attempt::ms32,
        now,
        Link, //
    },
    rpc::map::gather, //
};
use kernel::{
    impl_has_delayed_work, new_delayed_work,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
    workqueue::{
        DelayedWork,
        WorkItem, //
    },
};
use xprtrdma_proto::{
    conn::{
        Activity,
        Cause,
        Epoch,
        Event, //
    },
    time::Time, //
};
use xprtrdma_rdma::qp::SendError;
use xprtrdma_sunrpc::{
    common::Common,
    util::{
        Jiffies,
        NoFs, //
    },
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// See the module's documentation. Made with a connection, cancelled before its end.
#[pin_data]
pub(crate) struct Beat {
    xprt: BackRef<Rdma>,
    common: Arc<Common>,
    #[pin]
    work: DelayedWork<Beat>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Beat { self.work }
}

impl Beat {
    /// Makes one that sleeps. May sleep.
    pub(crate) fn new(xprt: &Xprt<Rdma>, common: &Arc<Common>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                xprt: xprt.back_ref(),
                common: common.clone(),
                work <- new_delayed_work!("Beat::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Looks at the connection in `ms` milliseconds.
    pub(crate) fn after(self: Arc<Self>, ms: u32) {
        let delay = Jiffies::from_ms(ms).count().max(1);
        let common = self.common.clone();
        // An error means that it is being cancelled, or will look soon anyway.
        let _ = common.queue().queue().enqueue_delayed(self, delay);
    }
}

impl WorkItem for Beat {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        // It gives regions back, and whoever closes the connection waits for it.
        let _nofs = NoFs::enter();
        if let Some(ms) = this.xprt.data().link.tick(&this.xprt) {
            this.after(ms);
        }
    }
}

/// What was not needed for so long is given back, in milliseconds.
const TRIM_MS: u32 = 30_000;

impl Link {
    /// Asks the peer's device for a sign of life.
    pub(crate) fn probe(&self, xprt: &Xprt<Rdma>, epoch: Epoch) {
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
    pub(crate) fn tick(&self, xprt: &Xprt<Rdma>) -> Option<u32> {
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
            last_rx: before(Jiffies::since(heard)),
            used: before(xprt.unused()),
            busy,
        };
        self.react(xprt, Event::Tick(activity));
        self.until_tick()
    }

    pub(crate) fn until_tick(&self) -> Option<u32> {
        let deadline = self.mailbox.lock().conn.deadline()?;
        Some(ms32(deadline.since(now())).max(1))
    }
}
