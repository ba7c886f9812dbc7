// SPDX-License-Identifier: GPL-2.0

//! Ends a connection.

use crate::{
    connection::{
        Connection,
        Machine, //
    },
    driver::Rdma,
    link::{
        Link,
        KEEPALIVE_WORK,
        PROBE_WORK,
        SUSPICION_WORK, //
    },
    log::{
        Details,
        Named, //
    },
    machine::Established,
    params,
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
        FailedWork,
        Opcode,
        QpEvent,
        Seen, //
    },
    time::Millis,
    Counter, //
};
use xprtrdma_rdma::{
    failure::{
        self,
        Failure, //
    },
    qp::QpOwner, //
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

    fn end(&mut self, machine: &Machine) {
        machine.handle(Event::Disconnecting(self.epoch()));
        let before = self.failure();
        // `shut_down` disconnects and drains the queue pair.
        self.shut_down();
        let conn = self.handler();
        let device =
            lost(machine, conn.epoch()).and_then(|lost| conn.services().devices().explains(&lost));
        let seen = seen(before, self.failure(), device);
        if seen.repeated {
            conn.counters().count(Counter::RepeatedRegistration);
        }
        machine.handle(Event::Seen(conn.epoch(), seen));
        log_loss(conn.xprt(), machine, conn.epoch());
        conn.regions().stop();
        reclaim(conn);
    }

    fn destroy(self) {
        let qp = self.handle();
        // Dropping `self` destroys the queue pair. The regions are destroyed afterwards.
        drop(self);
        qp.handler().regions().close();
    }
}

impl Link {
    /// Ends the connection because of `event`. Waits until the connection is destroyed, unless
    /// rails are configured.
    fn end(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>, event: Event) {
        let xprt = lock.xprt();
        // `is_busy` still counts the calls of the connection, because they keep their credits until
        // they complete or are sent again.
        let busy = xprt.is_busy();
        let qp = lock.state().take();
        *self.current.lock() = None;
        cancel_delayed_sync::<Self, KEEPALIVE_WORK>(self);
        // `PROBE_WORK` is cancelled first, because it queues `SUSPICION_WORK`.
        cancel_delayed_sync::<Self, PROBE_WORK>(self);
        cancel_delayed_sync::<Self, SUSPICION_WORK>(self);
        self.machine().close(xprt, event);
        if let Some(qp) = qp {
            let epoch = qp.handler().epoch();
            self.machine().end(|of| of == epoch);
            self.rail_left(lost(self.machine(), epoch), busy);
            // Regions that senders have returned since the teardown are destroyed with the pool. No
            // sender runs now, because the send lock is held.
            drop(qp);
            // Calls that may be sent over another rail need not wait until this connection is
            // destroyed.
            if !params::has_rails(xprt.common(), xprt.net()) {
                self.machine().destroy_ended();
            }
            self.machine().close(xprt, Event::TornDown(epoch));
            // The peer may have agreed to a version and refused it later. The other transports of
            // the server must learn about such a refusal.
            self.tell_version();
        }
    }

    /// Ends the connection. May sleep.
    pub(crate) fn close(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>) {
        // The RPC client closes a connection on its own only in rare cases, for example when the
        // connection is idle. In all other cases the state machine has requested the end and knows
        // the cause.
        self.end(lock, Event::Close(Cause::Closed));
    }

    /// Ends the last connection of the transport, and destroys all remaining objects of that
    /// connection.
    pub(crate) fn shut_down(self: &Arc<Self>, lock: &mut SendLock<'_, Rdma>) {
        self.end(lock, Event::Shutdown);
        self.machine().destroy_ended();
        self.leave_rail();
    }
}

/// Returns how the connection `epoch` ended. Returns `None` if a later connection has ended, too.
fn lost(machine: &Machine, epoch: Epoch) -> Option<Disconnect> {
    let lost = machine.with_conn(|conn| conn.history().iter().next().copied());
    lost.filter(|lost| lost.epoch == epoch)
}

/// Logs the end of a connection. Called after all reports about the end have arrived, because the
/// first report may say little, for example only that all work requests were flushed.
fn log_loss(xprt: &Xprt<Rdma>, machine: &Machine, epoch: Epoch) {
    let Some(lost) = lost(machine, epoch) else {
        return;
    };
    if may_log() {
        let (xprt, cause) = (Named(xprt), lost.cause.name());
        let details = Details(&lost);
        // LOG: The connection ended (see the causes below). The client makes a new connection when
        // it needs one. The text in parentheses names the first work request that failed, the first
        // work request that failed with a status other than "flushed", and events of the queue
        // pair, of the connection manager and of the device.
        pr_info!("{} disconnected: {cause}{}\n", Show(&xprt), Show(&details));
    }
}

/// Combines two failure reports of the device. `before` was taken before this host ended the
/// connection, and `after` was taken afterwards. The end of the connection flushes all remaining
/// work requests. So the first failed work request is taken from `before`. The reason is taken from
/// `after`: the first work request that failed with another status than "flushed".
fn seen(before: Failure, after: Failure, device: Option<(DeviceEvent, Millis)>) -> Seen {
    let work = |failed: Option<failure::FailedWork>| {
        failed.map(|work| FailedWork {
            opcode: match work.opcode {
                failure::Opcode::Send => Opcode::Send,
                failure::Opcode::RegMr => Opcode::RegMr,
                failure::Opcode::LocalInv => Opcode::LocalInv,
                failure::Opcode::RdmaWrite => Opcode::RdmaWrite,
                failure::Opcode::Recv => Opcode::Recv,
            },
            status: work.status.0,
            vendor_err: work.vendor_err,
        })
    };
    Seen {
        first: work(before.first),
        reason: work(after.reason),
        event: after.event.map(QpEvent::from_raw),
        repeated: before.repeated,
        device,
    }
}
