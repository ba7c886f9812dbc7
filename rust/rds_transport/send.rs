// SPDX-License-Identifier: GPL-2.0

//! Sending of messages and acknowledgements.

use crate::{
    driver::Rds,
    link::{
        Link,
        Posted, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::qp::{
    QpHandler,
    SendError, //
};
use xprtrdma_rds::{
    connection::Connection,
    message::Message,
    transport::Sent, //
};
use xprtrdma_rds_proto::{
    header::{
        Header,
        CONGESTION_MAP,
        FRAGMENT_BYTES,
        HEADER_BYTES,
        RETRANSMITTED, //
    },
    outgoing::{
        complete,
        Chased,
        Facts, //
    },
    ping::is_answer,
    region::Cookie, //
};

/// The result of posting a frame.
enum Frame {
    Posted,
    /// The send queue has no space, or no credit is left.
    Full,
    /// The queue pair has failed.
    Dead,
}

impl<H: QpHandler> Link<H> {
    /// Posts a frame: the header, and `len` bytes that `payload` writes. `last` says whether the
    /// frame completes its message. If the frame `waits`, the caller must ring the doorbell.
    fn frame(
        &mut self,
        header: &Header,
        len: usize,
        (last, waits): (bool, bool),
        payload: impl FnOnce(&mut [u8]) -> Result,
    ) -> Frame {
        let qp = &*self.qp;
        // NO-OVERFLOW: `len` is at most `FRAGMENT_BYTES`.
        let frame = HEADER_BYTES.wrapping_add(len);
        let mut batch = match qp.begin(frame, 1) {
            Ok(batch) => batch,
            Err(SendError::Full) => return Frame::Full,
            Err(SendError::Closed) => return Frame::Dead,
        };
        let Some(credit) = self.credits.spend() else {
            return Frame::Full;
        };
        let header = Header {
            ack: self.owed.piggyback(),
            credit,
            ..*header
        };
        if last {
            // A peer may request an event for solicited frames only.
            batch.solicit();
        }
        let Some((front, rest)) = batch.buffer().split_at_mut_checked(HEADER_BYTES) else {
            return Frame::Dead;
        };
        front.copy_from_slice(&header.encode());
        let posted = payload(rest).and_then(|()| match waits {
            true => batch.post_waiting(frame),
            false => batch.post_message(frame),
        });
        match posted {
            Ok(()) => Frame::Posted,
            Err(_) => Frame::Dead,
        }
    }
}

impl<H: QpHandler> Link<H> {
    /// Posts the fragments of a message from offset `at` on, until the send queue is full or no
    /// credit is left. Returns the number of posted bytes of payload, or `None` if no frame was
    /// posted.
    fn fragments(
        &mut self,
        header: &Header,
        message: &Message<'_>,
        at: u32,
        begun: bool,
    ) -> Result<Option<u32>> {
        let (mut sent, mut any) = (0u32, false);
        // Several fragments are posted together, with one doorbell.
        let many = header.len.saturating_sub(at) > FRAGMENT_BYTES;
        loop {
            // NO-OVERFLOW: The sum is an offset in the message.
            let from = at.wrapping_add(sent);
            let len = header.len.saturating_sub(from).min(FRAGMENT_BYTES);
            // A message without payload consists of one header.
            if len == 0 && (any || begun) {
                break;
            }
            // NO-OVERFLOW: The sum is at most the length of the message.
            let last = from.wrapping_add(len) == header.len;
            let payload = |to: &mut [u8]| message.copy(from, to);
            match self.frame(header, len as usize, (last, many), payload) {
                Frame::Posted => any = true,
                Frame::Full => break,
                Frame::Dead => return Err(ENOTCONN),
            }
            // NO-OVERFLOW: The sum is at most the length of the message.
            sent = sent.wrapping_add(len);
        }
        if many {
            self.qp.ring_now()?;
        }
        if any && !header.has(CONGESTION_MAP) {
            self.sent = self.sent.max(header.sequence);
            if !begun && is_answer(header) && !header.has(RETRANSMITTED) {
                self.pings.answered(header.sequence);
            }
        }
        Ok(any.then_some(sent))
    }
}

/// Sends as much of a message as possible, from offset `at` on.
pub(crate) fn transmit(
    connection: &Arc<Connection<Rds>>,
    message: &Message<'_>,
    at: u32,
    begun: bool,
) -> Sent {
    let mut header = Header::of_own(&message.header());
    if !header.has(CONGESTION_MAP) {
        complete(&mut header, &facts(message));
    } else if connection.local() == connection.peer() {
        // Both ends share one map. A received copy would overwrite the map with an older state, so
        // none is sent.
        if let Some(entered) = connection.enter() {
            entered.same_congestion();
        }
        return Sent::Some(header.len.saturating_sub(at));
    }
    let sent = connection.data().with_link(|link| {
        let is_held = |posted: &Posted| posted.holds_message && posted.sequence == header.sequence;
        if link.posted.iter().any(is_held) {
            return Ok(None);
        }
        if link.acknowledged.leaves_out(header.sequence) {
            // RDS moves on to the next message, as if this one had been sent.
            return Ok(Some(header.len.saturating_sub(at)));
        }
        link.fragments(&header, message, at, begun)
    });
    match sent {
        Some(Ok(Some(payload))) => Sent::Some(payload),
        Some(Ok(None)) | None => Sent::Later,
        Some(Err(_)) => {
            connection.drop_path();
            Sent::Later
        }
    }
}

/// Returns the facts that determine the header of a message.
fn facts(message: &Message<'_>) -> Facts {
    let asked = message.asked();
    Facts {
        ack_required: asked.ack_required,
        retransmitted: asked.retransmitted,
        operation: asked.operation.map(|operation| Chased {
            key: operation.key,
            bytes: operation.bytes,
            written: operation.writes,
            notify: operation.notify,
        }),
        cookie: (asked.cookie != 0).then_some(Cookie(asked.cookie)),
    }
}

/// Sends an acknowledgement or credits in a separate frame, if the peer needs them. If the send
/// queue is full, the caller must call this function again when the queue has space. `posted` is
/// the number of Receives that were posted since the last call.
pub(crate) fn acknowledge(connection: &Arc<Connection<Rds>>, posted: u16) {
    let alive = connection.data().with_link(|link| {
        link.credits.posted(posted);
        let owed = link.owed.frame();
        if owed.is_none() && !link.credits.is_worth_a_frame() {
            return true;
        }
        let frame = link.frame(&Header::default(), 0, (true, false), |_| Ok(()));
        if owed.is_some() {
            link.owed.frame_over(matches!(frame, Frame::Full));
        }
        !matches!(frame, Frame::Dead)
    });
    if alive == Some(false) {
        connection.drop_path();
    }
}
