// SPDX-License-Identifier: GPL-2.0

//! Completes calls whose reply has arrived.

use crate::{
    counters::Counters,
    driver::Rdma,
    rpc::request::{
        Answer,
        Phase,
        Request,
        ResultChunk,
        State, //
    },
};
use kernel::prelude::*;
use xprtrdma_proto::{
    conn::Epoch,
    judge::{
        check_reply_chunk,
        Accept,
        Verdict, //
    },
    latency::Stamps,
    Counter,
    Xid, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    qp::Held, //
};
use xprtrdma_sunrpc::{
    call::Pinned,
    latency::{
        self,
        Times, //
    },
    slot::Slot,
    trace,
    util::now_ns, //
};

impl Answer {
    /// Completes the call. The server can no longer access any region of the call.
    pub(super) fn complete(self, counters: &Counters) {
        let message = self.message.as_ref().map_or(&[][..], Held::bytes);
        complete_judged(counters, self.pinned, &self.verdict, self.result, message);
    }
}

/// Carries out the verdict on a reply that took the slow path. Such a reply did not have the
/// predicted form, or this host had to invalidate regions of the call.
#[inline(never)]
pub(super) fn complete_judged(
    counters: &Counters,
    pinned: Pinned<Rdma>,
    verdict: &Verdict,
    result: ResultChunk,
    message: &[u8],
) {
    match verdict {
        Verdict::Accept(accept) => complete_rpc(counters, pinned, *accept, result, message),
        // The bad reply was counted when it arrived, so it is not counted again here.
        Verdict::Fail(error, _) => fail(counters, pinned, *error),
        // A dropped message completes no call.
        Verdict::Discard(_) => {}
    }
}

/// Records that the reply has arrived. If the server can no longer access any region of the call,
/// returns `pinned`. Otherwise keeps `pinned` in the call's state until the regions are
/// invalidated.
#[inline(always)]
pub(super) fn complete_or_park(
    request: &Request,
    state: &mut State,
    pinned: Pinned<Rdma>,
    verdict: impl FnOnce() -> Verdict,
) -> Option<Pinned<Rdma>> {
    request.owed_on.write_once(Epoch::NONE.raw());
    if state.regions.is_empty() {
        request.set_phase(state, Phase::Idle);
        return Some(pinned);
    }
    park(request, state, pinned, verdict());
    None
}

/// Stores the verdict on a reply in the state of the call, until the call's regions are
/// invalidated.
#[inline(never)]
fn park(request: &Request, state: &mut State, pinned: Pinned<Rdma>, verdict: Verdict) {
    state.answer = Some(Answer {
        pinned,
        verdict,
        result: state.offer.result,
        message: None,
    });
    request.set_phase(state, Phase::Answered);
}

/// Drops the reference to a call, which stays pending. This function is not inlined, so that the
/// fast path can keep the reference in registers.
#[cold]
#[inline(never)]
pub(super) fn leave_pending(_: Pinned<Rdma>) {}

/// Completes a call whose reply was accepted. The server can no longer access any region of the
/// call.
#[inline(always)]
pub(super) fn complete_rpc(
    counters: &Counters,
    mut pinned: Pinned<Rdma>,
    accept: Accept,
    result: ResultChunk,
    message: &[u8],
) {
    // NO-OVERFLOW: Offset and length lie within the message, or are zero.
    let end = accept.inline_offset.wrapping_add(accept.inline_len);
    let inline = message.get(accept.inline_offset..end).unwrap_or(&[]);
    let padded = (accept.placed as usize).next_multiple_of(4);
    let (placed, len) = if accept.reply_len != 0 {
        if let Err(error) = check_reply_chunk(&pinned.placed_start(), Xid(pinned.xid())) {
            counters.count(Counter::BadPayload);
            return fail(counters, pinned, error);
        }
        (Ok(()), accept.reply_len as usize)
    } else if result == ResultChunk::Write {
        (
            pinned.place_around(inline, accept.placed as usize),
            inline.len() + padded,
        )
    } else {
        (pinned.place_inline(inline), inline.len())
    };
    match placed {
        Ok(()) => {
            ends(counters, &pinned, 0);
            // The call has no regions left, so it has no leases that prevent the completion. The
            // completion fails here only if the buffer has no space for the padding of the data
            // item.
            if let Err(pinned) = pinned.complete(len) {
                fail(counters, pinned, xprtrdma_proto::Error::BadPayload);
            }
        }
        Err(_) => fail(counters, pinned, xprtrdma_proto::Error::BadPayload),
    }
}

#[cold]
fn fail(counters: &Counters, pinned: Pinned<Rdma>, error: xprtrdma_proto::Error) {
    ends(counters, &pinned, error.to_errno());
    // Ending the call cannot fail: the call has no regions left, so it has no leases.
    let _ = pinned.fail(Error::from_errno(error.to_errno()));
}

/// Traces and measures a call that is about to complete. `status` is zero if the call completes
/// with its reply, otherwise a negative errno.
#[inline(always)]
fn ends(counters: &Counters, pinned: &Pinned<Rdma>, status: i32) {
    trace::complete(|| (pinned.xprt().id(), pinned.xid(), status));
    if latency::is_measured() {
        count_stages(counters, pinned.slot(), pinned.times());
    }
}

#[cold]
fn count_stages(counters: &Counters, slot: &Slot<Rdma>, times: Times) {
    let posted = slot.driver_data().state.lock().posted;
    counters.passed(&Stamps {
        begun: times.begun,
        given: times.given,
        posted,
        answered: times.answered,
        ended: now_ns(),
    });
}
