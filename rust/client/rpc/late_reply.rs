// SPDX-License-Identifier: GPL-2.0

//! Replies to calls that were abandoned or have ended.

use crate::{
    connection::Connection,
    counters::Ordinary,
    rpc::request::{
        Phase,
        Remaining, //
    },
};
use xprtrdma_proto::{
    conn::Cause,
    Counter,
    Xid, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    qp::{
        Qp,
        Received, //
    },
};

impl Connection {
    /// Handles a reply for which no call waits.
    #[cold]
    pub(super) fn unclaimed(
        &self,
        qp: &Qp<Connection>,
        xid: Xid,
        message: &Received<'_, Self>,
    ) -> Remaining {
        if self.xprt().is_pinned(xid.0) {
            // Another reply already waits for the invalidation of the call's regions, so this
            // message is a duplicate.
            self.drop_message(qp, message, Counter::DupReply, Some(xid), None);
            return Remaining::Nothing;
        }
        if let Some(remaining) = self.departed(xid, message) {
            return remaining;
        }
        if self.unmatched_reply() {
            self.check_revoked(message);
        } else {
            self.drop_message(qp, message, Counter::BadXid, None, None);
        }
        Remaining::Nothing
    }

    /// Handles a reply to a call that has left the RPC client's queue but is still in its slot.
    /// Such a call is ending (its task may be waiting for this very reply), or is being encoded
    /// again. So the server is not at fault. The message itself is not used, but the call's regions
    /// and its credit are taken back. Returns `None` if there is no such call.
    fn departed(&self, xid: Xid, message: &Received<'_, Self>) -> Option<Remaining> {
        for slot in self.xprt().slots() {
            let request = slot.driver_data();
            let mut state = request.state.lock();
            if state.xid != xid.0 || state.epoch != self.epoch() {
                continue;
            }
            let sent = state.phase == Phase::Sent;
            let owed = request.owed_on.read_once() == self.epoch().raw();
            if !sent && !owed && state.phase != Phase::Revoked {
                continue;
            }
            let mut waits = false;
            let mut foreign = false;
            if sent {
                if let Some(proof) = message.invalidation() {
                    foreign = self
                        .remotely_invalidated(&mut state, None, &proof, None)
                        .is_err();
                }
                waits = !state.regions.is_empty();
                let phase = if waits { Phase::Revoked } else { Phase::Idle };
                request.set_phase(&mut state, phase);
            }
            drop(state);
            if owed && request.take_owed() == self.epoch().raw() {
                // The release of the call will free its credit.
                self.counters().add(Ordinary::LateReplies);
            } else {
                self.unmatched_reply();
            }
            if foreign {
                self.wrongly_invalidated();
            } else if !sent {
                self.check_revoked(message);
            }
            return Some(match waits {
                true => Remaining::Invalidation(slot.index()),
                false => Remaining::Nothing,
            });
        }
        None
    }

    /// Returns whether the last call of a slot has this xid and was sent on this connection. Such a
    /// call need not wait for a reply any more: perhaps its reply has arrived and waits for the
    /// invalidation of the call's regions, or the call has ended.
    #[cold]
    pub(super) fn remembers(&self, xid: Xid) -> bool {
        self.xprt().slots().any(|slot| {
            let state = slot.driver_data().state.lock();
            state.xid == xid.0 && state.epoch == self.epoch()
        })
    }

    /// Handles a reply to a call whose regions were taken back earlier. If the reply invalidated
    /// one of these regions, this usually does no harm, because the region was already invalid. But
    /// with a probability of 1 in 256 the region's key is in use again. In that case a region of
    /// another call is now invalid, so the connection must end.
    pub(super) fn check_revoked(&self, message: &Received<'_, Self>) {
        let Some(proof) = message.invalidation() else {
            return;
        };
        let exposed = self.xprt().slots().any(|slot| {
            let state = slot.driver_data().state.lock();
            let regions = &state.regions;
            state.epoch == self.epoch()
                && state.phase != Phase::Revoked
                && regions.iter().any(|r| r.window().handle == proof.rkey())
        });
        if exposed {
            self.lost(Cause::GivenUpCall);
        }
    }
}
