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
    util::{
        list,
        not_connected, //
    }, //
};
use xprtrdma_rds_proto::{
    header::Header,
    operation::Completion, //
};

/// Starts the RDMA operation of a message. Returns false if RDS must try again.
#[inline]
pub(crate) fn operate(connection: &Arc<Connection<Rds>>, message: &Message<'_>) -> bool {
    match start(connection, message) {
        Ok(()) => true,
        Err(error) => {
            check(connection, error);
            false
        }
    }
}

/// Drops the connection if it has failed, because otherwise RDS would retry the operation for ever.
/// `error` says why the operation was not started.
#[cold]
#[inline(never)]
fn check(connection: &Connection<Rds>, error: Error) {
    if error != ENOMEM && error != EAGAIN {
        connection.drop_path();
    }
}

/// Handles an operation whose memory was not mapped for the device, because of `error`.
#[cold]
fn fail(connection: &Connection<Rds>, posted: Posted, error: Error) -> Result {
    if error == ENOMEM {
        return Err(error);
    }
    // Operations in flight may occupy resources that the device needs to map memory. So RDS tries
    // again if operations are in flight.
    let busy = |link: &mut Link<_>| {
        let busy = !link.posted.is_empty();
        if !busy {
            link.turn.replace(posted.sequence());
        }
        busy
    };
    if connection
        .data()
        .with_link(busy)
        .ok_or_else(not_connected)?
    {
        return Err(EAGAIN);
    }
    posted.end(Completion::Unmapped);
    Ok(())
}

/// Starts the operation of a message.
// This function takes the lock of the link itself. If it passed closures to `State::with_link`, it
// would execute 28 more instructions.
#[inline]
fn start(connection: &Connection<Rds>, message: &Message<'_>) -> Result {
    let (held, asked) = message.hold().ok_or(EINVAL)?;
    let posted = Posted(held);
    if asked.bytes == 0 {
        posted.end(Completion::Done);
        return Ok(());
    }
    let (is_lent, most_sges, spare);
    {
        let mut place = connection.data().link.lock();
        let link: &mut Option<Link<Handler>> = &mut place;
        let link = link.as_mut().ok_or_else(not_connected)?;
        most_sges = link.most_sges;
        // NO-OVERFLOW: The factors have 32 bits, and the product has 64 bits.
        let most_pieces = u64::from(most_sges).wrapping_mul(LENT_WRS.into());
        is_lent = u64::from(asked.pieces) <= most_pieces;
        // If operations are in flight, or if the last operation found no space, the send queue may
        // be full. In both cases its space is checked here, so that no memory is mapped or copied
        // in vain. Otherwise the send queue is rarely full, and only `post` checks its space.
        if link.is_full || !link.posted.is_empty() {
            let elements = match is_lent {
                true => asked.pieces,
                // An operation of more than `OPERATION` bytes fails later, in `copy`.
                // CAST: The number of pages is less than the number of bytes, which is a `u32`.
                false => (asked.bytes.min(OPERATION) as usize).div_ceil(PAGE_SIZE) as u32,
            };
            if !link.qp.has_room(0, elements.div_ceil(most_sges)) {
                Event::SendQueueFull.count();
                // RDS will try again soon.
                return Err(EAGAIN);
            }
            link.is_full = false;
        }
        spare = match is_lent {
            true => link.take_spare(),
            false => None,
        };
    }
    if !is_lent {
        return start_copied(connection, most_sges, posted);
    }
    match lend(connection, spare, most_sges, &posted.0, asked) {
        Ok(transfer) => post(connection, transfer, posted),
        Err(error) => fail(connection, posted, error),
    }
}

/// Starts an operation whose bytes the driver copies.
#[cold]
#[inline(never)]
fn start_copied(connection: &Connection<Rds>, most_sges: u32, posted: Posted) -> Result {
    match copy(connection, most_sges, &posted.0) {
        Ok(transfer) => post(connection, transfer, posted),
        Err(error) => fail(connection, posted, error),
    }
}

/// Posts the transfer of an operation.
// The lock is released before `transfer` and `posted` are dropped, because dropping them may sleep.
#[inline(always)]
fn post(connection: &Connection<Rds>, transfer: KBox<Transfer>, posted: Posted) -> Result {
    let mut place = connection.data().link.lock();
    let link: &mut Option<Link<Handler>> = &mut place;
    let link = link.as_mut().ok_or_else(not_connected)?;
    if link.posted.len() == link.posted.capacity() {
        link.posted.reserve(1, GFP_ATOMIC)?;
    }
    let batch = match link.qp.begin(0, transfer.wrs()) {
        Ok(batch) => batch,
        Err(SendError::Full) => {
            Event::SendQueueFull.count();
            link.is_full = true;
            return Err(EAGAIN);
        }
        Err(SendError::Closed) => return Err(not_connected()),
    };
    batch.post_transfer(transfer, None)?;
    list::push(&mut link.posted, posted).map_err(|_| ENOMEM)
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
// The properties of the operation are read from the message again. If `start` passed them as an
// argument, `start` would have to store them in memory for every operation.
fn copy(connection: &Connection<Rds>, most_sges: u32, held: &Held) -> Result<KBox<Transfer>> {
    let message = held.message();
    let asked = message.operation().ok_or(EINVAL)?;
    // RDS refuses an operation of more than `OPERATION` bytes (`EMSGSIZE`). This check limits the
    // number of pages even if RDS accepts such an operation.
    if asked.bytes > OPERATION {
        return Err(E2BIG);
    }
    let qp = queue_pair(connection)?;
    let len = asked.bytes as usize;
    let mut pages = Pages::new(len)?;
    let kind = if asked.writes {
        pages.change(0, len, |at, part| held.copy_from_operation(at, part))?;
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
    let transfer = KBox::new(transfer, GFP_KERNEL)?;
    // The message must not be sent before the data of the RDMA Read are in the program's memory. If
    // the device writes the data there itself, a fence in the send queue ensures this order. But
    // here the driver copies the data to that memory. So the message is held until the driver has
    // copied them. If the Read cannot be posted now, RDS tries the operation again before it sends
    // the message.
    if asked.fence && !asked.writes {
        let sequence = Header::of_own(&message.header()).sequence;
        let hold = |link: &mut Link<_>| link.turn.hold(sequence);
        connection.data().with_link(hold);
    }
    Ok(transfer)
}
