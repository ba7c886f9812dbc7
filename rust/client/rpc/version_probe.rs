// SPDX-License-Identifier: GPL-2.0

//! The version probe, and messages before the peers agree on a version (V2-26 to V2-35).
//!
//! The probe is not a call of the RPC client: it has no slot and no task, and its reply goes to the
//! connection's state machine. While the probe is in flight, no call is in flight, so every other
//! message is dropped.

use crate::{
    connection::Connection,
    driver::Rdma, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    conn::{
        Cause,
        Event,
        LocalFault, //
    },
    probing::{
        arrived,
        Arrival, //
    },
    v2::probe,
    Counter,
    Xid, //
};
use xprtrdma_rdma::qp::{
    Qp,
    Received, //
};
use xprtrdma_sunrpc::{
    lease::Lease,
    util::random, //
};

impl Connection {
    /// Asks the peer whether it supports version 2, with a call that does nothing. If the probe
    /// cannot be sent, returns the event to report to the state machine.
    pub(crate) fn send_version_probe(qp: &Qp<Self>) -> Result<(), Event> {
        let this = qp.handler();
        let xid = Xid(random());
        this.begin_probing(xid);
        let fault = Event::LocalFault(this.epoch(), LocalFault::NoResources);
        let mut batch = qp.begin(probe::LEN, 1).map_err(|_| fault)?;
        let len = probe::encode(xid, this.requested(), batch.buffer()).map_err(|_| fault)?;
        // On iWARP a post fails if the peer has ended the connection. So this failure is reported
        // as a lost connection.
        batch
            .post::<Lease<Rdma>>(len, &mut [])
            .map_err(|_| Event::Lost(this.epoch(), Cause::PostFailed))
    }

    /// Handles a message that arrives before both ends agree on a version. `probe` is the xid of
    /// the version probe. Only the first reply to the probe counts, and later messages are dropped.
    #[cold]
    pub(super) fn while_probing(&self, qp: &Qp<Self>, probe: Xid, message: &Received<'_, Self>) {
        let drop = |counter| self.drop_message(qp, message, counter, None, None);
        if self.is_probe_answered() {
            return drop(Counter::BadXid);
        }
        match arrived(message.bytes(), probe, message.invalidation().is_some()) {
            Arrival::Answer(answer, grant) => {
                self.end_probing();
                if let Some(grant) = grant {
                    self.take_first_grant(grant);
                }
                self.react(Event::VersionAnswer(self.epoch(), answer));
            }
            Arrival::Refuse(refusal) => self.send_refusal(qp, &refusal),
            // `wrongly_invalidated` counts the message itself, so `drop` is not called.
            Arrival::Drop(Counter::ReminvWrong) => self.wrongly_invalidated(),
            Arrival::Drop(counter) => drop(counter),
        }
    }
}
