// SPDX-License-Identifier: GPL-2.0

//! The end of a connection.

use crate::{
    driver::Rdma,
    link::{
        Link,
        END, //
    },
    log::{
        Details,
        Named, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use xprtrdma_proto::{
    conn::{
        Action,
        Cause,
        DeviceEvent,
        Disconnect,
        Epoch,
        Event,
        QpEvent,
        Seen,
        Side, //
    },
    time::Millis,
    wc, //
};
use xprtrdma_rdma::{
    failure::{
        self,
        Failure, //
    },
    qp::WcStatus, //
};
use xprtrdma_sunrpc::{
    queue::cancel_delayed_sync,
    trace,
    util::{
        may_log,
        NoFs,
        Show, //
    },
    xprt::{
        SendLock,
        Xprt, //
    },
};

impl Link {
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
        let device = self
            .lost(endpoint.epoch)
            .and_then(|lost| self.with_told(|told| told.explains(lost.at, lost.lasted)));
        let seen = seen(before, conn.failure(), device);
        self.handle(Event::Seen(endpoint.epoch, seen));
        self.log_loss(&endpoint.xprt, endpoint.epoch);
        strip(&endpoint.xprt, endpoint.epoch);
        endpoint.regions.close();
    }

    /// Ends the connection and waits until nothing of it is left. `last`: for good.
    pub(crate) fn close(&self, lock: &mut SendLock<'_, Rdma>, last: bool) {
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
    fn drain(&self, xprt: &Xprt<Rdma>) {
        loop {
            let Some(action) = self.poll_action() else {
                return;
            };
            if let Action::Disconnect { epoch, cause, .. } = action {
                trace::disconnected(xprt.id(), epoch.raw(), cause.name());
            }
        }
    }

    /// How the connection with this number ended, if none did later.
    fn lost(&self, epoch: Epoch) -> Option<Disconnect> {
        let lost = self.with_conn(|conn| conn.history().iter().next().copied());
        lost.filter(|lost| lost.epoch == epoch)
    }

    /// Tells of the end of a connection when there is no more to come about it: what is known at first,
    /// such as that everything is flushed, may be the least of it.
    fn log_loss(&self, xprt: &Xprt<Rdma>, epoch: Epoch) {
        let Some(lost) = self.lost(epoch) else {
            return;
        };
        if may_log() {
            let (xprt, cause) = (Named(xprt), lost.cause.name());
            let details = Details(&lost);
            pr_info!("{} disconnected: {cause}{}\n", Show(&xprt), Show(&details));
        }
    }
}

/// What the device told of a failure before we ended the connection, and after all. At the end everything
/// that is left is flushed, which says nothing; but if something else failed it is the reason.
fn seen(before: Failure, after: Failure, device: Option<(DeviceEvent, Millis)>) -> Seen {
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
        device,
    }
}

/// Step 2 of the teardown: no region of the dead connection stays with a slot.
fn strip(xprt: &Xprt<Rdma>, epoch: Epoch) {
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

impl WorkItem<END> for Link {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let _nofs = NoFs::enter();
        // The end that was ordered may be done, and another connection made.
        this.end(|epoch| this.with_conn(|conn| conn.is_ending(epoch)));
    }
}
