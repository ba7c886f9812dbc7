// SPDX-License-Identifier: GPL-2.0

//! The steps that the fast path and the slow path share when they send a call ([`Sending`]).

use crate::{
    connection::{
        Connection,
        Needed,
        Shortage, //
    },
    driver::Rdma,
    rpc::{
        request::{
            Phase,
            Region,
            State, //
        },
        shape::shape32, //
    },
};
use xprtrdma_proto::{
    conn::Cause,
    limit::Strikes,
    threshold::MIN_THRESHOLD,
    Segment, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    mr::Access,
    qp::{
        Qp,
        SendBatch,
        SendError, //
    },
    spin::SpinLockGuard, //
};
use xprtrdma_sunrpc::{
    call::Call,
    latency,
    trace,
    util::{
        now_ns,
        others_want_this_cpu, //
    },
    xdr_buf::XdrBytes,
    xprt::Xprt, //
};

/// The reason why a call that has a plan and a credit was not posted.
pub(super) enum Unsent {
    /// The pools lack regions for the call, or the memory of the call could not be mapped to
    /// regions.
    NoRegions(Shortage, Needed),
    /// The send queue has no space for this many bytes and work requests.
    // Both numbers have the size of a word, so that the compiler keeps the enum in registers.
    NoRoom(SendError, usize, usize),
    /// The header cannot be encoded.
    NoHeader(xprtrdma_proto::Error),
    /// The post failed. Nevertheless, some of the work requests may have been posted.
    NotPosted,
}

/// A call that is being sent on a connection. The send lock is held.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    qp: &'a Qp<Connection>,
    call: &'a Call<'a, Rdma>,
}

impl<'a> Sending<'a> {
    #[inline(always)]
    pub(super) fn new(qp: &'a Qp<Connection>, call: &'a Call<'a, Rdma>) -> Self {
        Self { qp, call }
    }

    #[inline(always)]
    pub(super) fn call(self) -> &'a Call<'a, Rdma> {
        self.call
    }

    #[inline(always)]
    pub(super) fn conn(self) -> &'a Connection {
        self.qp.handler()
    }

    #[inline(always)]
    pub(super) fn xprt(self) -> &'a Xprt<Rdma> {
        self.conn().xprt()
    }

    /// Returns whether other calls are in flight. If there are other calls, also stops any thread
    /// that polls for its own reply. After that, the work item that handles completions receives
    /// all replies.
    #[inline(always)]
    pub(super) fn is_crowded(self) -> bool {
        let crowded = self.xprt().has_others();
        if crowded {
            self.qp.stop_polling();
        }
        crowded
    }

    /// Returns the maximum number of bytes in the reply outside its data item.
    #[inline(always)]
    pub(super) fn non_data(self) -> u32 {
        let room = self.call.reply();
        // NO-OVERFLOW: The numbers are lengths of parts of a message in memory, so their sum fits
        // into a `usize`.
        shape32(room.head_len().wrapping_add(room.tail_len()))
    }

    /// Reserves space in the send queue for a message of up to `max_len` bytes and for `wrs` work
    /// requests.
    #[inline(always)]
    pub(super) fn begin(
        self,
        max_len: usize,
        wrs: u32,
    ) -> Result<SendBatch<'a, Connection>, Unsent> {
        let batch = self.qp.begin(max_len, wrs);
        // CAST: The cast cannot truncate: `usize` has at least 32 bits.
        batch.map_err(|error| Unsent::NoRoom(error, max_len, wrs as usize))
    }

    /// Makes the call pending. This must precede the post, because the reply may arrive before the
    /// post returns. `is_new` says that the slot has not sent this xid before. `reads` says that
    /// the call has a Read chunk.
    #[inline(always)]
    pub(super) fn set_pending(self, state: &mut State, is_new: bool, reads: bool) {
        let (conn, call) = (self.conn(), self.call);
        if latency::is_measured() {
            state.posted = now_ns();
        }
        if is_new {
            state.xid = call.xid();
            state.strikes = Strikes::default();
        }
        if reads {
            state.offer.secret_xid = is_new && call.has_secret_xid();
            if !state.offer.secret_xid {
                call.wants_secret_xid(self.xprt());
            }
        }
        let request = call.slot().driver_data();
        request.set_phase(state, Phase::Sent);
        state.epoch = conn.epoch();
        request.owed_on.write_once(conn.epoch().raw());
    }

    /// Posts the registrations of `regions`, then a Send of the first `len` bytes of the batch's
    /// buffer.
    ///
    /// The doorbell may be deferred if other calls are in flight (`crowded`) and other threads want
    /// this processor, because more calls will then probably follow soon. The doorbell is never
    /// deferred for these messages:
    ///
    /// - a message to which no reply is `expected`, because the RPC client would not send the
    ///   message again,
    /// - a message above the minimum inline threshold, because its post must be reported (CM-24).
    #[inline(always)]
    pub(super) fn post(
        self,
        mut batch: SendBatch<'_, Connection>,
        len: usize,
        (crowded, expected): (bool, bool),
        regions: &mut [Region],
    ) -> Result<(), Unsent> {
        let may_wait =
            crowded && expected && !is_large(len) && others_want_this_cpu() && batch.may_batch();
        let posted = match may_wait {
            true => batch.post_later(len, regions),
            false => batch.post(len, regions),
        };
        posted.map_err(|_| Unsent::NotPosted)
    }

    /// Tells the connection that a call was posted. The caller has held the lock of the call's
    /// state since before the post. Until this lock is released, no reply to the call is handled.
    #[inline(always)]
    pub(super) fn was_posted(
        self,
        mut state: SpinLockGuard<'_, State>,
        len: usize,
        expected: bool,
    ) {
        if is_large(len) {
            state.large = Some((state.xid, state.epoch));
            self.conn().expect_large_send();
            drop(state);
            self.conn().large_send();
        } else {
            drop(state);
        }
        if !expected {
            // No reply to this message is expected. So no grant shows when the server has processed
            // the message, and the number of free credits becomes unknown. Therefore the connection
            // ends (V1-012).
            self.conn().lost(Cause::CreditResync);
        }
    }

    /// Traces the registration of a region.
    #[inline(always)]
    pub(super) fn trace_region(self, segment: &Segment, access: Access) {
        trace::register(|| {
            let (xprt, xid) = (self.xprt().id(), self.call.xid());
            let write = access == Access::RemoteWrite;
            (
                xprt,
                xid,
                segment.handle.0,
                segment.offset,
                segment.length,
                write,
            )
        });
    }

    /// Traces the length of the call's message in bytes, and the number of segments in its Read,
    /// Write and Reply chunks.
    #[inline(always)]
    pub(super) fn trace_call(self, len: usize, segments: impl FnOnce() -> [usize; 3]) {
        trace::call(|| {
            let (xprt, xid) = (self.xprt().id(), self.call.xid());
            let [reads, writes, replies] = segments().map(shape32);
            (xprt, xid, shape32(len), reads, writes, replies)
        });
    }
}

/// Returns whether a message of `len` bytes is longer than the minimum inline threshold.
#[inline(always)]
pub(super) fn is_large(len: usize) -> bool {
    len > MIN_THRESHOLD as usize
}

/// Copies a range of a message, given as (offset, length), to offset `at` of `out`. Returns the
/// offset after the copied bytes.
#[inline(always)]
pub(super) fn copy(
    message: &XdrBytes<'_>,
    (from, count): (usize, usize),
    out: &mut [u8],
    at: usize,
) -> Result<usize, xprtrdma_proto::Error> {
    let room = out
        .get_mut(at..)
        .and_then(|o| o.get_mut(..count))
        .ok_or(xprtrdma_proto::Error::NoSpace)?;
    message
        .read(from, room)
        .map_err(|_| xprtrdma_proto::Error::NoSpace)?;
    // NO-OVERFLOW: The end of the copy lies within `out`.
    Ok(at.wrapping_add(count))
}
