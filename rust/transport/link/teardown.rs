// SPDX-License-Identifier: GPL-2.0

//! The end of a connection.

use crate::{
    connection::{
        Connection,
        Machine, //
    },
    driver::Rdma,
    link::{
        Link,
        KEEPALIVE_WORK, //
    },
    log::{
        Details,
        Named, //
    },
    machine::Established,
    rpc::reclaim, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::{
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
    qp::{
        QpOwner,
        WcStatus, //
    },
};
use xprtrdma_sunrpc::{
    queue::cancel_delayed_sync,
    util::{
        may_log,
        Show, //
    },
    xprt::{
        SendLock,
        Xprt, //
    },
};

impl Established for QpOwner<Connection> {
    fn epoch(&self) -> Epoch {
        self.handler().epoch()
    }

    fn end(self, machine: &Machine) {
        let qp = self.handle();
        let conn = qp.handler();
        machine.handle(Event::Disconnecting(conn.epoch()));
        let before = qp.failure();
        // Disconnects and drains.
        drop(self);
        let device =
            lost(machine, conn.epoch()).and_then(|lost| conn.services().devices().explains(&lost));
        let seen = seen(before, qp.failure(), device);
        machine.handle(Event::Seen(conn.epoch(), seen));
        log_loss(conn.xprt(), machine, conn.epoch());
        reclaim(conn);
        conn.regions().close();
    }
}

impl Link {
    /// Ends the connection and waits until nothing of it is left. `event`: why.
    fn end(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>, event: Event) {
        let xprt = lock.xprt();
        let qp = lock.state().take();
        *self.current.lock() = None;
        cancel_delayed_sync::<Self, KEEPALIVE_WORK>(self);
        self.machine().close(xprt, event);
        if let Some(qp) = qp {
            let epoch = qp.handler().epoch();
            self.machine().end(|of| of == epoch);
            // Frees the regions that senders have put back since; there are no senders now.
            qp.handler().regions().close();
            drop(qp);
            self.rail_left(lost(self.machine(), epoch));
            self.machine().close(xprt, Event::TornDown(epoch));
        }
    }

    /// Ends the connection and waits until nothing of it is left. Sleeps.
    pub(crate) fn close(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>) {
        // The machine has asked for it itself unless the RPC client did, e.g. of an idle transport.
        self.end(lock, Event::Close(Cause::Closed));
    }

    /// The same, for good.
    pub(crate) fn shut_down(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>) {
        self.end(lock, Event::Shutdown);
        self.leave_rail();
    }
}

/// How the connection with this number ended, if none did later.
fn lost(machine: &Machine, epoch: Epoch) -> Option<Disconnect> {
    let lost = machine.with_conn(|conn| conn.history().iter().next().copied());
    lost.filter(|lost| lost.epoch == epoch)
}

/// Logs the end of a connection when nothing more can come to light about it: the cause known at
/// first, such as that everything is flushed, may be the least of it.
fn log_loss(xprt: &Xprt<Rdma>, machine: &Machine, epoch: Epoch) {
    let Some(lost) = lost(machine, epoch) else {
        return;
    };
    if may_log() {
        let (xprt, cause) = (Named(xprt), lost.cause.name());
        let details = Details(&lost);
        pr_info!("{} disconnected: {cause}{}\n", Show(&xprt), Show(&details));
    }
}

/// What the device told of a failure before we ended the connection, and after all. At the end
/// everything that is left is flushed, which says nothing; but if something else failed it is the
/// reason.
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
