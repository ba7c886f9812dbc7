// SPDX-License-Identifier: GPL-2.0

//! Posting transfers, with or without a message ([`SendBatch::post_transfer`]).

use super::{
    may_send,
    Nothing,
    SendBatch, //
};
use crate::{
    qp::{
        handler::QpHandler,
        outgoing::Message,
        send_queue::{
            aligned,
            flags,
            OpKind,
            RDMA_WRITE,
            REG_MR, //
        },
    },
    transfer::{
        Kind,
        Transfer, //
    },
};
use core::ptr;
use kernel::prelude::*;
use xprtrdma_base::list;

impl<H: QpHandler> SendBatch<'_, H> {
    /// Posts a transfer, and then a Send if there is a `message`, with one doorbell.
    /// [`QpHandler::transferred`] is called when the whole transfer has completed. If an error is
    /// returned, the connection has failed, and the queue pair keeps what was posted.
    ///
    /// Returns `EINVAL`, and does nothing, if the pages are mapped in another domain, or if regions
    /// of the transfer were posted before. Returns `E2BIG` if the batch has not enough space, or if
    /// the message has no bytes.
    #[cfg_attr(xprtrdma_rds, inline(always))]
    #[cfg_attr(not(xprtrdma_rds), inline)]
    pub fn post_transfer(self, transfer: KBox<Transfer>, message: Option<Message>) -> Result {
        match message {
            Some(message) => self.post_both(transfer, message),
            None => self.post_alone(transfer),
        }
    }

    /// Posts a transfer, see [`SendBatch::post_transfer`].
    #[cfg_attr(xprtrdma_rds, inline(always))]
    #[cfg_attr(not(xprtrdma_rds), inline(never))]
    fn post_alone(self, transfer: KBox<Transfer>) -> Result {
        self.post_all::<false>(transfer, 0.into())
    }

    /// Posts a transfer and a Send, see [`SendBatch::post_transfer`].
    #[inline(never)]
    fn post_both(self, transfer: KBox<Transfer>, message: Message) -> Result {
        self.post_all::<true>(transfer, message)
    }

    /// Posts a transfer, and then a Send if `SENDS` is true.
    #[inline(always)]
    fn post_all<const SENDS: bool>(self, mut transfer: KBox<Transfer>, message: Message) -> Result {
        let Self {
            qp,
            sq: mut guard,
            offset,
            max_len,
            max_wrs,
            ..
        } = self;
        if !transfer.may_be_posted(&qp.pd) {
            return Err(EINVAL);
        }
        // NO-OVERFLOW: Vectors in memory have far fewer than 2^32 elements.
        let wrs = transfer.wrs().wrapping_add(u32::from(SENDS));
        let len = message.len;
        if wrs > max_wrs || (SENDS && !may_send(len, max_len)) {
            return Err(E2BIG);
        }
        let sq = &mut *guard;
        if sq.chain.len != 0 {
            qp.ring(sq)?;
        }
        if SENDS && offset != sq.head {
            sq.skip();
        }
        sq.account(aligned(len), wrs);
        if let Err(error) = sq.signal(OpKind::Transfer) {
            // The transfer was counted as posted, but is not posted. So the queue is closed.
            sq.closed = true;
            return Err(error);
        }
        // RDMA Reads use the same `ib_cqe` as RDMA Writes, so a Read that fails is reported as a
        // Write. A separate `ib_cqe` is not needed: the list of posts shows which post completed.
        let cqe = qp.send_cqes.get::<RDMA_WRITE>();
        let is_read = !SENDS && transfer.kind() == Kind::Read;
        let mut last_flags = match is_read {
            true => flags(true),
            false => sq.flags(true),
        };
        let mut next = ptr::null_mut();
        if SENDS {
            message.choose(&mut sq.send);
            sq.head = offset.wrapping_add(aligned(len));
            sq.ring.sync_for_device(offset, len);
            sq.sge = sq.ring.sge(offset, len);
            sq.send.sg_list = &mut sq.sge;
            sq.send.send_flags = core::mem::replace(&mut last_flags, 0);
            next = &mut sq.send;
        }
        let first = transfer.link(cqe, last_flags, next);
        let first = transfer.register(&mut sq.seq, qp.send_cqes.get::<REG_MR>(), first);
        let added = list::push(&mut sq.transfers, transfer).map_err(|_| E2BIG);
        if added.is_err() {
            // The list `transfers` cannot be full, because each transfer has at least one work
            // request.
            sq.closed = true;
            return added;
        }
        // SAFETY: The chain ends with the Send or with the last work request of the transfer, whose
        // `next` is null. Everything to which the work requests refer outlives the post: the ring,
        // `send_cqes` and `transfers` belong to `qp`. A transfer, with its regions, stays in
        // `transfers` until it has completed.
        unsafe { qp.submit(&mut sq.closed, first) }
    }

    /// Posts a Send. If an error is returned, the connection has failed.
    #[inline(always)]
    pub fn post_message(mut self, message: impl Into<Message>) -> Result {
        let message = message.into();
        message.choose(&mut self.sq.send);
        let len = message.len;
        self.post_now::<Nothing>(len, &mut [], message.confirmed)
    }
}
