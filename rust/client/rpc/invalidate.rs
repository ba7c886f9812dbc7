// SPDX-License-Identifier: GPL-2.0

//! Revokes the server's access to the memory of calls.

use crate::{
    connection::Connection,
    driver::Rdma,
    rpc::request::{
        Phase,
        Region,
        State, //
    },
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Event, //
    },
    defer::{
        self,
        PostQueue, //
    },
    judge::{
        invalidated,
        Invalidated, //
    },
    Counter,
    Handle, //
};
use xprtrdma_rdma::{
    mr::{
        Echo,
        IdleMr,
        RemoteInvalidation, //
    },
    qp::{
        Qp,
        SendError, //
    },
};
use xprtrdma_sunrpc::{
    call::{
        Encoded,
        Leaving,
        Pinned, //
    },
    lease::Lease,
    slot::Slot,
    trace,
    xprt::Xprt, //
};

/// Reports that a message invalidated a region that does not belong to the call that the message
/// answers.
pub(super) struct Foreign;

#[inline]
fn handle(region: &Region) -> Handle {
    Handle(region.window().handle)
}

/// Finds the region with this key among the regions of a call, and removes it from the call. Used
/// for calls that are rare: calls without a region, calls with several regions, and calls whose
/// [`Echo`] is not known.
#[inline(never)]
fn one_of_many(
    state: &mut State,
    rkey: Handle,
    agreed: bool,
) -> Result<(Region, Counter), Foreign> {
    let handles = state.regions.iter().map(handle);
    match invalidated(Some(rkey), handles, agreed) {
        Invalidated::Own(index, counter) => {
            let region = state.regions.remove(index).map_err(|_| Foreign)?;
            Ok((region, counter))
        }
        _ => Err(Foreign),
    }
}

/// Keeps a region with its call, because the message does not prove that the region is invalid. The
/// client will invalidate the region.
#[inline(never)]
fn not_taken_back(state: &mut State, region: Region) {
    // Adding the region cannot fail: the region was taken from this list, so the list has capacity
    // for it.
    let _ = state.regions.push_within_capacity(region);
}

impl Connection {
    /// Takes back the region that the reply invalidated, if the reply proves that the region is
    /// invalid. Returns an error if the region does not belong to this call.
    ///
    /// - `pinned` is the reference to the call, or `None` if there is no such reference.
    /// - `echo` is used only for a call with one region. It says which value of the call's Send the
    ///   reply must contain. It is `None` if this is not known.
    #[inline(always)]
    pub(super) fn remotely_invalidated(
        &self,
        state: &mut State,
        pinned: Option<&Pinned<Rdma>>,
        proof: &RemoteInvalidation<'_>,
        echo: Option<Echo>,
    ) -> Result<(), Foreign> {
        let lease = match (&*state.regions, echo) {
            // Usually the call has exactly one region.
            ([only], Some(echo)) => {
                let rkey = Some(Handle(proof.rkey()));
                let agreed = self.remote_invalidation();
                let Invalidated::Own(_, counter) = invalidated(rkey, [handle(only)], agreed) else {
                    return Err(Foreign);
                };
                let region = state.regions.pop().ok_or(Foreign)?;
                self.believe(state, region, proof, (echo, counter))
            }
            _ => {
                let rkey = Handle(proof.rkey());
                let (region, counter) = one_of_many(state, rkey, self.remote_invalidation())?;
                let echo = state.offer.echo(&region);
                self.believe(state, region, proof, (echo, counter))
            }
        };
        if let (Some(pinned), Some(lease)) = (pinned, lease) {
            pinned.end_lease(lease);
        }
        Ok(())
    }

    /// Takes a region back if the message proves that the region is invalid. Returns the lease of
    /// the memory that the region mapped.
    #[inline(always)]
    fn believe(
        &self,
        state: &mut State,
        region: Region,
        proof: &RemoteInvalidation<'_>,
        (echo, counter): (Echo, Counter),
    ) -> Option<Lease<Rdma>> {
        state.tally.invalidated(counter);
        let echo = match self.believes() {
            true => echo,
            false => Echo::Nothing,
        };
        match region.remotely_invalidated(proof, echo) {
            Ok((mr, lease)) => {
                self.keep(state, mr);
                Some(lease)
            }
            Err(region) => {
                not_taken_back(state, region);
                None
            }
        }
    }

    /// If a sender waits for regions, returns the region to the pool. Otherwise keeps it for the
    /// slot's next call, and returns the region that the slot has kept before, if any, to the pool.
    #[inline(always)]
    fn keep(&self, state: &mut State, mr: IdleMr) {
        if self.regions().of(mr.access()).is_scarce() {
            self.regions().put(mr);
        } else if let Some(other) = state.kept.replace(mr) {
            self.regions().put(other);
        }
    }

    /// Invalidates the regions of a slot: now, or as soon as the send queue has space.
    pub(super) fn invalidate(&self, qp: &Qp<Connection>, index: u16) {
        defer::post(&Invalidations(qp), index);
    }

    /// Invalidates the regions of a slot. Returns `false` if the send queue has no space. If the
    /// invalidation fails, the connection ends, and the end of the connection takes the regions
    /// back (V1-098).
    fn try_invalidate(&self, qp: &Qp<Connection>, index: u16) -> bool {
        let Some(slot) = self.xprt().slot(index) else {
            return true;
        };
        let mut state = slot.driver_data().state.lock();
        let count = state.regions.len() as u32;
        let posted = match qp.begin(0, count) {
            Ok(batch) => {
                self.counters().count_many(Counter::LocalInv, count.into());
                trace::invalidate(self.xprt().id(), index.into(), count);
                batch
                    .post_invalidate(u64::from(index), &mut state.regions)
                    .inspect_err(|e| {
                        // LOG: The device refused to revoke the server's access to memory. So the
                        // connection ends, and the end of the connection revokes the access.
                        pr_warn!("cannot invalidate {count} regions of slot {index}: {e:?}\n")
                    })
                    .is_ok()
            }
            Err(SendError::Full) => return false,
            Err(SendError::Closed) => false,
        };
        drop(state);
        if !posted {
            self.lost(Cause::InvalidateFailed);
        }
        true
    }
}

/// The invalidations that a connection posts, identified by the numbers of their slots.
pub(super) struct Invalidations<'a>(pub(super) &'a Qp<Connection>);

impl PostQueue for Invalidations<'_> {
    fn post(&self, index: u16) -> bool {
        self.0.handler().try_invalidate(self.0, index)
    }

    fn has_room(&self, index: u16) -> bool {
        let regions = |slot: &Slot<Rdma>| slot.driver_data().state.lock().regions.len() as u32;
        let count = self.0.handler().xprt().slot(index).map_or(0, regions);
        self.0.has_room(0, count)
    }

    fn defer(&self, index: u16) {
        self.0.handler().defer_invalidation(index);
    }

    fn next_deferred(&self) -> Option<u16> {
        self.0.handler().deferred_invalidation()
    }
}

/// Maximum time, in milliseconds, for which the task of an abandoned call waits for the reply to
/// the call.
const REPLY_WAIT_MS: u32 = 1000;

/// Revokes the server's access to the memory of a call that was sent and has not completed.
///
/// Usually the process of the call was killed while the server works on the call. So this function
/// first waits some time for the reply. Without this wait, the server would often write to memory
/// that was revoked. Then the queue pairs of both hosts fail, and all users of the mount wait for
/// the next connection. With a server that replies within milliseconds, this would happen nearly
/// every time.
///
/// The task itself waits, because its memory must not be released, and used for something else,
/// while the server can access it. No user notices the wait, because the process is exiting. But
/// the task holds its slot and the locks of its process, such as the lock of a directory. So it
/// waits at most a second.
///
/// Only tasks of processes wait ([`Leaving::wait_for_reply`]), and only if the connection on which
/// the reply is expected still exists. The end of this connection ends the wait, because it takes
/// the regions back.
#[cold]
pub(crate) fn revoke(
    xprt: &Xprt<Rdma>,
    current: impl Fn() -> Option<Arc<Qp<Connection>>>,
    call: &Encoded<'_, Rdma>,
    leaving: Leaving,
) {
    let request = call.slot().driver_data();
    let (exposed, epoch) = {
        let state = request.state.lock();
        (!state.regions.is_empty(), state.epoch)
    };
    let current = || current().filter(|qp| qp.handler().epoch() == epoch);
    if exposed && xprt.is_connected() && current().is_some() {
        // The task waits for the reply here. `Connection::departed` handles that reply.
        leaving.wait_for_reply(call, REPLY_WAIT_MS);
    }
    {
        let mut state = request.state.lock();
        if state.regions.is_empty() {
            request.set_phase(&mut state, Phase::Idle);
            return;
        }
        if state.phase == Phase::Revoked {
            // The reply has arrived, and the remaining regions of the call are being invalidated.
            return;
        }
        request.set_phase(&mut state, Phase::Revoked);
    }
    // If the connection has ended or is about to end, its teardown searches every slot and takes
    // these regions back.
    if let Some(qp) = current() {
        let conn = qp.handler();
        conn.react(Event::MemoryRevoked(epoch));
        conn.invalidate(&qp, call.slot().index());
    }
}
