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
    receive::Handler,
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
        Wishes, //
    }, //
};

/// Starts the RDMA operation of a message. Returns false if RDS must try again.
#[inline]
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

/// Posts the operation of a message.
// This function takes the lock of the link itself. With closures for `State::with_link` it executes
// 28 instructions more.
#[inline]
fn start(connection: &Arc<Connection<Rds>>, message: &Message<'_>) -> Result {
    let (held, asked) = message.hold().ok_or(EINVAL)?;
    let header = Header::of_own(&message.header());
    let (sequence, bytes) = (header.sequence, asked.bytes);
    let wishes = Wishes {
        notify: asked.notify,
        failures: asked.failures,
        unacknowledged: asked.silent && header.len == 0,
    };
    let posted = move |message| Posted {
        message,
        sequence,
        wishes,
        bytes,
    };
    if asked.bytes == 0 {
        posted(held).end(Completion::Done);
        return Ok(());
    }
    let (is_lent, most_sges, spare);
    {
        let mut place = connection.data().link.lock();
        let link: &mut Option<Link<Handler>> = &mut place;
        let link = link.as_mut().ok_or_else(not_connected)?;
        most_sges = link.most_sges;
        let lent_wrs = asked.pieces.div_ceil(most_sges);
        is_lent = lent_wrs <= LENT_WRS;
        let wrs = match is_lent {
            true => lent_wrs,
            // CAST: The number of pages is less than the number of bytes, which is a `u32`.
            false => ((bytes as usize).div_ceil(PAGE_SIZE) as u32).div_ceil(most_sges),
        };
        // The space in the send queue is checked first, so that no memory is mapped or copied in
        // vain.
        if !link.qp.has_room(0, wrs) {
            Event::SendQueueFull.count();
            // RDS will try again soon.
            return Err(EAGAIN);
        }
        spare = match is_lent {
            true => link.take_spare(),
            false => None,
        };
    }
    let transfer = match is_lent {
        true => lend(connection, spare, most_sges, &held, asked),
        false => copy(connection, most_sges, &held, asked),
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
            fail(connection, posted(held));
            return Ok(());
        }
    };
    // If the device writes the data of the RDMA Read to the program's memory itself, a fence delays
    // the message until the Read has completed. Otherwise the message must wait until the driver
    // has copied the data to the program's memory.
    let holds_message = asked.fence && !asked.writes && !is_lent;
    // `transfer` and `held` are declared before the lock is taken. If nothing is posted, they are
    // dropped after the lock is released, because dropping them may sleep.
    let (mut transfer, mut held) = (Some(transfer), Some(held));
    let mut place = connection.data().link.lock();
    let link: &mut Option<Link<Handler>> = &mut place;
    let link = link.as_mut().ok_or_else(not_connected)?;
    link.post(&mut transfer)?;
    if let Some(message) = held.take() {
        if holds_message {
            link.held = Some(sequence);
        }
        link.posted
            .push_within_capacity(posted(message))
            .map_err(|_| ENOMEM)?;
    }
    Ok(())
}

impl<H: QpHandler> Link<H> {
    /// Posts a transfer, and reserves space in the list of operations. If the transfer is not
    /// posted, it stays in `transfer`.
    #[inline]
    fn post(&mut self, transfer: &mut Option<KBox<Transfer>>) -> Result {
        let wrs = transfer.as_ref().map_or(0, |transfer| transfer.wrs());
        if self.posted.len() == self.posted.capacity() {
            self.posted.reserve(1, GFP_ATOMIC)?;
        }
        let batch = match self.qp.begin(0, wrs) {
            Ok(batch) => batch,
            Err(SendError::Full) => {
                Event::SendQueueFull.count();
                return Err(EAGAIN);
            }
            Err(SendError::Closed) => return Err(not_connected()),
        };
        batch.post_transfer(transfer.take().ok_or(EINVAL)?, None)
    }
}

/// Returns the queue pair of a connection.
fn queue_pair(connection: &Connection<Rds>) -> Result<Arc<Qp<Handler>>> {
    let qp = connection.data().with_link(|link| link.qp.clone());
    qp.ok_or_else(not_connected)
}

/// Creates a transfer that accesses the program's memory directly.
#[inline]
fn lend(
    connection: &Connection<Rds>,
    spare: Option<Blank>,
    most_sges: u32,
    message: &Held,
    asked: Asked,
) -> Result<KBox<Transfer>> {
    let kind = match asked.writes {
        true => Kind::Write,
        false => Kind::Read,
    };
    let blank = match spare {
        Some(blank) => blank,
        None => Blank::new(queue_pair(connection)?.pd())?,
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
#[cold]
fn copy(
    connection: &Connection<Rds>,
    most_sges: u32,
    message: &Held,
    asked: Asked,
) -> Result<KBox<Transfer>> {
    if asked.bytes > OPERATION {
        return Err(E2BIG);
    }
    let qp = queue_pair(connection)?;
    let len = asked.bytes as usize;
    let mut pages = Pages::new(len)?;
    let kind = if asked.writes {
        pages.change(0, len, |at, part| message.copy_from_operation(at, part))?;
        Kind::Write
    } else {
        Kind::Read
    };
    let stretch = Stretch {
        handle: asked.key,
        offset: asked.address,
        len: asked.bytes,
        at: 0,
    };
    // CAST: `usize` has 64 bits.
    let most_sges = most_sges as usize;
    let transfer = Transfer::new(kind, qp.pd(), pages, most_sges, core::iter::once(stretch))?;
    Ok(KBox::new(transfer, GFP_KERNEL)?)
}
