// SPDX-License-Identifier: GPL-2.0

//! Calls that were not posted ([`not_sent`]).

use crate::{
    connection::{
        Connection,
        Needed,
        Shortage, //
    },
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        map::{
            collect_idle,
            unmap, //
        },
        refuse::refuse,
        sending::Unsent, //
    },
};
use xprtrdma_proto::conn::Cause;
use xprtrdma_rdma::qp::{
    Qp,
    SendError, //
};
use xprtrdma_sunrpc::{
    call::Call,
    transport::NotSent, //
};

/// Undoes the preparation of a call that was not posted, and tells the RPC client what to do next.
// This function is inlined. Otherwise the compiler would write an `Unsent` to memory even for calls
// that were posted.
#[inline(always)]
pub(super) fn not_sent(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    unsent: Unsent,
) -> Result<(), NotSent> {
    match unsent {
        Unsent::NoRegions(shortage, needed) => no_regions(qp, call, shortage, needed),
        Unsent::NoRoom(error, len, wrs) => no_room_for_call(qp, call, error, (len, wrs)),
        Unsent::NoHeader(error) => no_header(qp, call, error),
        Unsent::NotPosted => not_posted(qp),
    }
}

#[cold]
#[inline(never)]
fn no_regions(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    shortage: Shortage,
    needed: Needed,
) -> Result<(), NotSent> {
    let conn = qp.handler();
    conn.counters().add(Ordinary::FailedMarshal);
    unmap(qp, call);
    collect_idle(conn.xprt(), conn.regions());
    match shortage {
        Shortage::Wait => {}
        Shortage::NoMemory => return Err(NotSent::NoBuffers),
        Shortage::Unmapped => return unmapped(conn, call),
    }
    conn.xprt().stop_senders();
    // Regions may have been returned to the pools before the senders were stopped. In this case the
    // senders are woken immediately.
    if conn.regions().have(needed) {
        conn.xprt().wake_senders();
    }
    Err(NotSent::Wait)
}

#[cold]
#[inline(never)]
fn no_room_for_call(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    error: SendError,
    (len, wrs): (usize, usize),
) -> Result<(), NotSent> {
    unmap(qp, call);
    // CAST: The cast cannot truncate: the number was converted from 32 bits in `Sending::begin`.
    Err(no_room(qp, error, len, wrs as u32))
}

#[cold]
#[inline(never)]
fn no_header(
    qp: &Qp<Connection>,
    call: &Call<'_, Rdma>,
    error: xprtrdma_proto::Error,
) -> Result<(), NotSent> {
    unmap(qp, call);
    refuse(qp.handler().counters(), call, error);
    Ok(())
}

/// Ends the connection after a failed post. The regions stay in the slot until the connection's
/// teardown takes them back. The RPC client will send the call again.
#[cold]
#[inline(never)]
fn not_posted(qp: &Qp<Connection>) -> Result<(), NotSent> {
    qp.handler().lost(Cause::PostFailed);
    Err(NotSent::NotConnected)
}

/// Handles a call whose memory the DMA layer refused to map. The DMA layer may be short of
/// resources, so the RPC client retries. After several refusals in a row the call fails, because
/// nothing else would end the call.
fn unmapped(conn: &Connection, call: &Call<'_, Rdma>) -> Result<(), NotSent> {
    let error = {
        let mut state = call.slot().driver_data().state.lock();
        state.unmapped.again(call.xid(), conn.epoch().raw())
    };
    if error == xprtrdma_proto::Error::NoBuffers {
        return Err(NotSent::NoBuffers);
    }
    refuse(conn.counters(), call, error);
    Ok(())
}

/// Makes senders wait for space in the send queue. Returns the result for the RPC client.
pub(super) fn no_room(qp: &Qp<Connection>, error: SendError, len: usize, wrs: u32) -> NotSent {
    let conn = qp.handler();
    match error {
        SendError::Closed => NotSent::NotConnected,
        SendError::Full => {
            conn.counters().add(Ordinary::SendQueueFull);
            conn.xprt().stop_senders();
            // Space may have become free before the senders were stopped. In this case the senders
            // are woken immediately.
            if qp.has_room(len, wrs) {
                conn.xprt().wake_senders();
            }
            NotSent::Wait
        }
    }
}
