// SPDX-License-Identifier: GPL-2.0

//! The version probe, and what comes before the version is agreed on (V2-26 to V2-35).
//!
//! The probe is no call of the RPC client's: it has no slot and no task, and its answer goes to the
//! connection machine. It is alone on the connection, so whatever else comes is dropped.

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
    /// Asks the peer whether it speaks version 2, with a call that does nothing. An error is the
    /// event to report to the machine.
    pub(crate) fn send_version_probe(qp: &Qp<Self>) -> Result<(), Event> {
        let this = qp.handler();
        let xid = Xid(random());
        this.begin_probing(xid);
        let fault = Event::LocalFault(this.epoch(), LocalFault::NoResources);
        let mut batch = qp.begin(probe::LEN, 1).map_err(|_| fault)?;
        let len = probe::encode(xid, this.requested(), batch.buffer()).map_err(|_| fault)?;
        // On iWARP a post fails when the peer has ended the connection.
        batch
            .post::<Lease<Rdma>>(len, &mut [])
            .map_err(|_| Event::Lost(this.epoch(), Cause::PostFailed))
    }

    /// Handles a message that came before the agreement, while the probe has this xid. The first
    /// answer counts: later messages are neither taken for an answer nor answered.
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
            Arrival::Drop(counter) => drop(counter),
        }
    }
}
