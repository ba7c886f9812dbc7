// SPDX-License-Identifier: GPL-2.0

//! The version probe, and what comes before the version is agreed on (V2-26 to V2-35).
//!
//! The probe is no call of the RPC client's: it has no slot and no task, and its answer goes to the
//! connection machine. It is alone on the connection, so whatever else comes meanwhile is dropped.

use crate::{
    connection::Connection,
    driver::Rdma, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    conn::{
        Event,
        LocalFault, //
    },
    inbound::Discard,
    v2::{
        negotiate::ProbeAnswer,
        probe, //
    },
    Counter,
    Inbound,
    Version,
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
    /// Asks the peer whether it speaks version 2, with a call that does nothing.
    pub(crate) fn send_version_probe(qp: &Qp<Self>) -> Result<(), LocalFault> {
        let this = qp.handler();
        let xid = Xid(random());
        this.begin_probing(xid);
        let fault = LocalFault::NoResources;
        let mut batch = qp.begin(probe::LEN, 1).map_err(|_| fault)?;
        let call = probe::call(xid, this.requested());
        let room = batch.buffer().get_mut(..call.len()).ok_or(fault)?;
        room.copy_from_slice(&call);
        batch
            .post::<Lease<Rdma>>(call.len(), &mut [])
            .map_err(|_| fault)
    }

    /// Deals with a message that came while the probe with this xid is not answered.
    #[cold]
    pub(super) fn while_probing(&self, qp: &Qp<Self>, probe: Xid, message: &Received<'_, Self>) {
        let answer = match xprtrdma_proto::classify(message.bytes(), Version::V2, false) {
            Inbound::Reply(reply) if reply.xid == probe => {
                self.take_first_grant(reply.credits);
                ProbeAnswer::Reply
            }
            Inbound::Error(error) if error.xid == probe => ProbeAnswer::Error(error.kind),
            Inbound::Refuse(refusal) => return self.send_refusal(qp, &refusal),
            Inbound::Discard(Discard { counter, .. }) => {
                return self.drop_message(qp, message, counter, None, None);
            }
            _ => return self.drop_message(qp, message, Counter::BadXid, None, None),
        };
        self.react(Event::VersionAnswer(self.epoch(), answer));
    }
}
