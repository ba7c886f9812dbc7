// SPDX-License-Identifier: GPL-2.0

//! What is done for a connection every few seconds.

use crate::{
    receive::Handler,
    ticker::Tended, //
};
use kernel::sync::ArcBorrow;
use xprtrdma_proto::served::{
    cause::Cause,
    life::{
        holds_memory,
        Act, //
    }, //
};
use xprtrdma_rdma::qp::Qp;

impl Tended for Handler {
    fn tick(qp: ArcBorrow<'_, Qp<Self>>) {
        let this = qp.handler();
        this.reads.trim();
        this.callbacks.tick(&this.events);
        let mut grant = this.outbox.grant.lock();
        grant.pause();
        let has_calls = grant.in_process() != 0 || grant.has_unsent();
        drop(grant);
        // NO-OVERFLOW: Both numbers of transfers are small.
        let transfers = this
            .outbox
            .transfers()
            .wrapping_add(qp.sum_transfers(|_| 1));
        let holds_memory = holds_memory(this.reads.pages(), transfers);
        let in_flight = || qp.sends_in_flight();
        let events = &this.events;
        for act in this.watch.tick(events, in_flight, has_calls, holds_memory) {
            match act {
                Act::End(cause) => events.end(cause),
                // If the send queue is full, no probe is needed: at least one queued work request
                // is signalled, and its completion shows that the client answers.
                Act::Probe => {
                    let batch = qp.begin(0, 1);
                    if batch.is_ok_and(|batch| batch.post_probe().is_err()) {
                        events.end(Cause::Transfer);
                    }
                }
                // `Act::Begin` requires that all messages that have arrived are passed to the RPC
                // layer. This server passes on each call when it arrives, so no action is needed.
                Act::Begin | Act::Nothing => {}
            }
        }
    }

    fn go_on(qp: ArcBorrow<'_, Qp<Self>>) {
        if let Err(failed) = Self::pump_reads(&qp) {
            Self::failed(qp, failed);
        }
    }
}
