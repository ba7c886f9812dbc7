// SPDX-License-Identifier: GPL-2.0

//! RDMA operations.
//!
//! An operation moves bytes between the peer's memory region and the program's memory. If the
//! program's memory has more pieces than the work requests can describe, the device accesses pages
//! of this driver instead, and the driver copies the bytes.
//!
//! If the memory cannot be mapped for the device, only this operation fails: the failure is
//! reported to the program, a frame without content replaces the operation's message, and the
//! connection continues.

use crate::{
    driver::Rds,
    link::{
        Link,
        Posted, //
    },
    sizes::{
        LENT_WRS,
        OPERATION, //
    }, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_rdma::{
    dma::Direction,
    pages::Pages,
    qp::{
        Qp,
        QpHandler,
        SendError, //
    },
    stretch::Stretch,
    transfer::{
        Blank,
        Kind,
        Transfer, //
    }, //
};
use xprtrdma_rds::{
    connection::Connection,
    events::Event,
    message::{
        Held,
        Message,
        Operation as Asked, //
    },
    util::not_connected, //
};
use xprtrdma_rds_proto::{
    header::Header,
    operation::{
        Completion,
        Operation,
        Wishes, //
    }, //
};

/// Starts the RDMA operation of a message. Returns false if RDS must try again.
pub(crate) fn operate(connection: &Arc<Connection<Rds>>, message: &Message<'_>) -> bool {
    match start(connection, message) {
        Ok(()) => true,
        Err(error) if error == ENOMEM || error == EAGAIN => false,
        Err(_) => {
            // The connection has failed. RDS would retry the operation for ever, so the connection
            // is dropped.
            connection.drop_path();
            false
        }
    }
}

/// Ends an operation whose memory cannot be mapped for the device.
fn fail(connection: &Arc<Connection<Rds>>, posted: Posted) {
    let sequence = posted.sequence;
    connection
        .data()
        .with_link(|link| link.replaced = Some(sequence));
    posted.end(Completion::Unmapped);
}

fn start(connection: &Arc<Connection<Rds>>, message: &Message<'_>) -> Result {
    let (held, asked) = message.hold().ok_or(EINVAL)?;
    let header = Header::of_own(&message.header());
    let begun = |link: &mut Link<_>| (link.qp.clone(), link.most_sges, link.take_spare());
    let begun = connection.data().with_link(begun);
    let (qp, most_sges, mut spare) = begun.ok_or_else(not_connected)?;
    let is_lent = asked.pieces.div_ceil(most_sges) <= LENT_WRS;
    let wishes = Wishes {
        notify: asked.notify,
        failures: asked.failures,
        unacknowledged: asked.silent && header.len == 0,
    };
    let posted = Posted {
        message: held,
        sequence: header.sequence,
        operation: Operation::new(1),
        wishes,
        bytes: asked.bytes,
        // If the device writes the data of the RDMA Read to the program's memory itself, a fence
        // delays the message until the Read has completed. Otherwise the message must wait until
        // the driver has copied the data to the program's memory.
        holds_message: asked.fence && !asked.writes && !is_lent,
    };
    if asked.bytes == 0 {
        posted.end(Completion::Done);
        return Ok(());
    }
    // CAST: The number of pages is less than the number of bytes, which is a `u32`.
    let elements = match is_lent {
        true => asked.pieces,
        false => (asked.bytes as usize).div_ceil(PAGE_SIZE) as u32,
    };
    // The space in the send queue is checked first, so that no memory is mapped or copied in vain.
    if !qp.has_room(0, elements.div_ceil(most_sges)) {
        Event::SendQueueFull.count();
        // RDS will try again soon.
        connection
            .data()
            .with_link(|link| link.keep_spare(&mut spare));
        return Err(EAGAIN);
    }
    let transfer = match is_lent {
        true => lend(&qp, spare, &posted.message, &asked, most_sges),
        false => copy(&qp, &posted.message, &asked, most_sges),
    };
    let transfer = match transfer {
        Ok(transfer) => transfer,
        Err(error) if error == ENOMEM => return Err(error),
        Err(_) => {
            // Operations in flight may occupy resources that the device needs to map memory. So RDS
            // tries again if operations are in flight.
            let busy = |link: &mut Link<_>| !link.posted.is_empty();
            if connection
                .data()
                .with_link(busy)
                .ok_or_else(not_connected)?
            {
                return Err(EAGAIN);
            }
            fail(connection, posted);
            return Ok(());
        }
    };
    let wrs = transfer.wrs();
    // `transfer` and `posted` are declared outside the closure. If nothing is posted, they are
    // dropped after the lock is released, because dropping them may sleep.
    let mut transfer = Some(transfer);
    let mut posted = Some(posted);
    let post = |link: &mut Link<_>| -> Result {
        link.posted.reserve(1, GFP_ATOMIC)?;
        let batch = match qp.begin(0, wrs) {
            Ok(batch) => batch,
            Err(SendError::Full) => {
                Event::SendQueueFull.count();
                return Err(EAGAIN);
            }
            Err(SendError::Closed) => return Err(not_connected()),
        };
        batch.post_transfer(transfer.take().ok_or(EINVAL)?, None)?;
        if let Some(posted) = posted.take() {
            link.posted
                .push_within_capacity(posted)
                .map_err(|_| ENOMEM)?;
        }
        Ok(())
    };
    connection
        .data()
        .with_link(post)
        .ok_or_else(not_connected)?
}

/// Creates a transfer that accesses the program's memory directly.
fn lend<H: QpHandler>(
    qp: &Qp<H>,
    spare: Option<Blank>,
    message: &Held,
    asked: &Asked,
    most_sges: u32,
) -> Result<KBox<Transfer>> {
    let kind = match asked.writes {
        true => Kind::Write,
        false => Kind::Read,
    };
    let blank = match spare {
        Some(blank) => blank,
        None => Blank::new(qp.pd())?,
    };
    blank.fill_loan(
        kind,
        message.lend(),
        // CAST: `usize` has 64 bits.
        most_sges as usize,
        (asked.key, asked.address),
    )
}

/// Creates a transfer that accesses pages of this driver, and copies the bytes of a Write to them.
fn copy<H: QpHandler>(
    qp: &Qp<H>,
    message: &Held,
    asked: &Asked,
    most_sges: u32,
) -> Result<KBox<Transfer>> {
    if asked.bytes > OPERATION {
        return Err(E2BIG);
    }
    let len = asked.bytes as usize;
    let mut pages = Pages::new(len)?;
    let (kind, direction) = if asked.writes {
        pages.change(0, len, |at, part| message.copy_from_operation(at, part))?;
        (Kind::Write, Direction::ToDevice)
    } else {
        (Kind::Read, Direction::FromDevice)
    };
    let pages = pages.map(qp.pd(), direction)?;
    let stretch = Stretch {
        handle: asked.key,
        offset: asked.address,
        len: asked.bytes,
        at: 0,
    };
    // CAST: `usize` has 64 bits.
    let most_sges = most_sges as usize;
    let transfer = Transfer::new(kind, pages, most_sges, core::iter::once(stretch))?;
    Ok(KBox::new(transfer, GFP_KERNEL)?)
}
