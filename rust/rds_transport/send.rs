// SPDX-License-Identifier: GPL-2.0

//! Sending of messages and acknowledgements.

use crate::{
    driver::Rds,
    link::Link, //
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
    connection::{
        Connection,
        Entered, //
    },
    events::Event,
    message::{
        Asked,
        Message,
        Payload, //
    },
    transport::Sent,
    util::not_connected, //
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
        substitute,
        Chased,
        Facts,
        Front, //
    },
    ping::is_answer,
    region::Cookie,
    turn::Way, //
};

/// How a frame is posted.
#[derive(Clone, Copy)]
struct Manner {
    /// Whether the frame completes its message.
    last: bool,
    /// Whether the frame is posted without ringing the doorbell. The caller must then ring it.
    waits: bool,
    /// Whether the frame is sent only after all RDMA Reads that were posted before have completed.
    fenced: bool,
}

impl<H: QpHandler> Link<H> {
    /// Posts a frame: the header in `front`, and `len` bytes that `payload` writes. Returns false
    /// if the send queue has no space, or no credit is left. Returns an error if the queue pair has
    /// failed.
    #[inline]
    fn frame(
        &mut self,
        front: &mut Front,
        len: usize,
        manner: Manner,
        payload: impl FnOnce(&mut [u8]) -> Result,
    ) -> Result<bool> {
        let qp = &*self.qp;
        // NO-OVERFLOW: `len` is at most `FRAGMENT_BYTES`.
        let frame = HEADER_BYTES.wrapping_add(len);
        let mut batch = match qp.begin(frame, 1) {
            Ok(batch) => batch,
            Err(SendError::Full) => {
                Event::SendQueueFull.count();
                return Ok(false);
            }
            Err(SendError::Closed) => return Err(not_connected()),
        };
        let Some(credit) = self.credits.spend() else {
            return Ok(false);
        };
        let ack = self.owed.piggyback();
        if manner.last {
            // The frame is sent as solicited, because the peer may have requested events for
            // solicited frames only.
            batch.solicit();
        }
        if manner.fenced {
            batch.fence();
        }
        let Some((place, rest)) = batch.buffer().split_first_chunk_mut::<HEADER_BYTES>() else {
            return Err(not_connected());
        };
        *place = *front.next(ack, credit);
        let posted = payload(rest).and_then(|()| match manner.waits {
            true => batch.post_waiting(frame),
            false => batch.post_message(frame),
        });
        match posted {
            Ok(()) => Ok(true),
            Err(_) => Err(not_connected()),
        }
    }
}

impl<H: QpHandler> Link<H> {
    /// Posts the fragments of a message from offset `at` on, until the send queue is full or no
    /// credit is left. If `fenced` is true, the device sends the fragments only after the
    /// completion of all RDMA Reads that were posted earlier. Returns the number of posted bytes of
    /// payload, or `None` if no frame was posted.
    #[inline]
    fn fragments(
        &mut self,
        header: &Header,
        message: &Message<'_>,
        at: u32,
        (begun, fenced): (bool, bool),
    ) -> Result<Option<u32>> {
        let left = header.len.saturating_sub(at);
        let sent = match left {
            0 if begun => None,
            // A message without payload is sent as a single frame, which contains only the header.
            0..=FRAGMENT_BYTES => {
                self.last_fragment(Front::new(header), message.payload(at), left, fenced)?
            }
            _ => self.series(Front::new(header), message.payload(at), left, fenced)?,
        };
        if sent.is_some() && !header.has(CONGESTION_MAP) {
            self.sent = self.sent.max(header.sequence);
            if !begun && is_answer(header) && !header.has(RETRANSMITTED) {
                self.pings.answered(header.sequence);
            }
        }
        Ok(sent)
    }

    /// Posts the last fragment of a message, with the last `left` bytes of its payload.
    #[inline]
    fn last_fragment(
        &mut self,
        mut front: Front,
        mut payload: Payload<'_>,
        left: u32,
        fenced: bool,
    ) -> Result<Option<u32>> {
        let manner = Manner {
            last: true,
            waits: false,
            fenced,
        };
        let write = |to: &mut [u8]| payload.copy(to);
        let posted = self.frame(&mut front, left as usize, manner, write)?;
        Ok(posted.then_some(left))
    }

    /// Posts several fragments together, with one doorbell.
    #[inline(never)]
    fn series(
        &mut self,
        mut front: Front,
        mut payload: Payload<'_>,
        left: u32,
        fenced: bool,
    ) -> Result<Option<u32>> {
        let mut sent = 0u32;
        while sent < left {
            // NO-OVERFLOW: The condition of the loop ensures that the difference is positive.
            let len = left.wrapping_sub(sent).min(FRAGMENT_BYTES);
            // NO-OVERFLOW: The sum is at most `left`.
            let next = sent.wrapping_add(len);
            let manner = Manner {
                last: next == left,
                waits: true,
                fenced,
            };
            let write = |to: &mut [u8]| payload.copy(to);
            if !self.frame(&mut front, len as usize, manner, write)? {
                break;
            }
            sent = next;
        }
        self.qp.ring_now()?;
        Ok((sent != 0).then_some(sent))
    }
}

/// Sends as much of a message as possible, from offset `at` on.
#[inline]
pub(crate) fn transmit(
    connection: &Arc<Connection<Rds>>,
    message: &Message<'_>,
    at: u32,
    begun: bool,
) -> Sent {
    let mut header = Header::of_own(&message.header());
    let rest = header.len.saturating_sub(at);
    let mut fenced = false;
    if !header.has(CONGESTION_MAP) {
        let asked = message.asked();
        complete(&mut header, &facts(&asked));
        fenced = asked.operation.is_some_and(|of| of.fence && !of.writes);
    } else if let Some(entered) = connection.enter().filter(Entered::shares_maps) {
        // Both ends of the connection are on this host, and share the congestion map. If a copy
        // were sent, it would overwrite the map with an older state on arrival. So no copy is sent.
        entered.same_congestion();
        return Sent::Some(rest);
    }
    let sent = connection.data().with_link(|link| -> Result<_> {
        // A congestion map has no sequence number.
        let way = match header.has(CONGESTION_MAP) {
            true => Way::Message,
            false => link.turn.way(header.sequence),
        };
        let is_replaced = way == Way::Substitute;
        let (at, state) = match way {
            Way::Later => return Ok(None),
            Way::Substitute => (0, (false, false)),
            Way::Message => (at, (begun, fenced)),
        };
        if is_replaced {
            // The substitute frame is sent in place of the message. RDS then continues with the
            // next message, as if this message had been sent.
            header = substitute(&header);
        }
        let sent = link.fragments(&header, message, at, state)?;
        Ok(sent.map(|sent| if is_replaced { rest } else { sent }))
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
#[inline]
fn facts(asked: &Asked) -> Facts {
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
/// queue is full, the caller must call this function again when the queue has space.
#[inline(never)]
pub(crate) fn acknowledge(connection: &Arc<Connection<Rds>>) {
    let alive = connection.data().with_link(|link| {
        if !link.is_frame_due() {
            return true;
        }
        let owed = link.owed.is_due();
        let mut front = Front::new(&Header::default());
        let manner = Manner {
            last: true,
            waits: false,
            fenced: false,
        };
        let posted = link.frame(&mut front, 0, manner, |_| Ok(()));
        if owed && posted == Ok(true) {
            Event::AckSent.count();
        }
        posted.is_ok()
    });
    if alive == Some(false) {
        connection.drop_path();
    }
}
