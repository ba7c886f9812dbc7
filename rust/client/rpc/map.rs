// SPDX-License-Identifier: GPL-2.0

//! Maps the memory of calls to regions, and returns regions that were not posted.

use crate::{
    connection::{
        Connection,
        Needed,
        Pools,
        Shortage, //
    },
    counters::Ordinary,
    driver::Rdma,
    rpc::{
        request::{
            Chunk,
            Region,
            State, //
        },
        sending::Sending, //
    },
};
use kernel::prelude::*;
use xprtrdma_proto::{
    CallPlan,
    Handle,
    Plan,
    ReplyPlan,
    Segment, //
};
use xprtrdma_rdma::{
    mr::{
        Access,
        IdleMr, //
    },
    qp::Qp, //
};
use xprtrdma_sunrpc::{
    call::Call,
    lease::Message,
    xdr_buf::Part,
    xprt::Xprt, //
};

/// The idle regions that a call takes, and the list of regions that it has mapped.
struct Mapping<'a> {
    idle: &'a mut KVec<IdleMr>,
    regions: &'a mut KVec<Region>,
}

impl Mapping<'_> {
    /// Maps one part of a message, with as many regions as it needs.
    #[inline(always)]
    fn add_chunk(
        &mut self,
        sending: Sending<'_>,
        (message, part): (Message, Part),
        access: Access,
        chunk: &mut Chunk,
    ) -> Result<(), Shortage> {
        let buf = match message {
            Message::Call => *sending.call().message(),
            Message::Reply => sending.call().reply(),
        };
        let len = buf.part_len(part);
        let mut start = 0;
        while start < len {
            start += self.add_region(sending, (message, part), start, access, chunk)?;
        }
        Ok(())
    }

    /// Maps memory to one region: the bytes from offset `start` on, up to the size of the region.
    /// Returns the number of mapped bytes.
    // This function is not inlined. Otherwise the caller would contain code that maps a second
    // region, which is rarely needed.
    #[inline(never)]
    fn add_region(
        &mut self,
        sending: Sending<'_>,
        (message, part): (Message, Part),
        start: usize,
        access: Access,
        chunk: &mut Chunk,
    ) -> Result<usize, Shortage> {
        let loan = sending
            .call()
            .lend(message, part)
            .ok_or(Shortage::NoMemory)?;
        let suits = |mr: &IdleMr| sending.conn().regions().suits(mr, access);
        let at = self
            .idle
            .iter()
            .rposition(suits)
            .ok_or(Shortage::Unmapped)?;
        let mr = self.idle.remove(at).map_err(|_| Shortage::Unmapped)?;
        let region = match mr.map(loan, start, access) {
            Ok(region) => region,
            Err(failed) => {
                sending.conn().regions().put(failed.mr);
                return Err(Shortage::Unmapped);
            }
        };
        let window = region.window();
        let segment = Segment {
            handle: Handle(window.handle),
            length: window.length,
            offset: window.offset,
        };
        sending.trace_region(&segment, access);
        // Adding the region cannot fail, because the caller has reserved the capacity.
        let _ = self.regions.push_within_capacity(region);
        if chunk.push(segment) {
            Ok(window.length as usize)
        } else {
            Err(Shortage::Unmapped)
        }
    }
}

/// Maps the memory for the chunks of the plan. After an error, the call keeps the regions mapped so
/// far.
pub(super) fn map_call(
    sending: Sending<'_>,
    planned: &Plan,
    needed: Needed,
    state: &mut State,
) -> Result<(), Shortage> {
    let pools = sending.conn().regions();
    let (idle, regions) = (&mut state.idle, &mut state.regions);
    regions
        .reserve(needed.all(), GFP_NOWAIT)
        .map_err(|_| Shortage::NoMemory)?;
    idle.reserve(needed.all(), GFP_NOWAIT)
        .map_err(|_| Shortage::NoMemory)?;
    // Usually the region that an earlier call has left in this slot is of the required kind.
    if let Some(mr) = state.kept.take() {
        match pools.are_meant(needed, &mr) {
            // Adding the region cannot fail: the list has reserved capacity for all regions that
            // the call needs, and the call needs at least one region.
            true => drop(idle.push_within_capacity(mr)),
            false => pools.put(mr),
        }
    }
    if let Err(shortage) = pools.take(needed, idle) {
        while let Some(mr) = idle.pop() {
            pools.put(mr);
        }
        sending.conn().counters().add(Ordinary::NoRegion);
        return Err(shortage);
    }
    let (reads, results) = (&mut state.reads, &mut state.offer.chunk);
    let mut mapping = Mapping { idle, regions };
    let mut map = |what, access, chunk| mapping.add_chunk(sending, what, access, chunk);
    let mapped = match planned.call {
        CallPlan::Inline => Ok(()),
        CallPlan::ReadChunk { .. } => map((Message::Call, Part::Pages), Access::RemoteRead, reads),
        CallPlan::Long { .. } => map((Message::Call, Part::Whole), Access::RemoteRead, reads),
    };
    let mapped = mapped.and_then(|()| match planned.reply {
        ReplyPlan::Inline => Ok(()),
        ReplyPlan::WriteChunk { .. } => {
            map((Message::Reply, Part::Pages), Access::RemoteWrite, results)
        }
        ReplyPlan::ReplyChunk { .. } => {
            map((Message::Reply, Part::Whole), Access::RemoteWrite, results)
        }
    });
    // Contiguous memory may need fewer regions than the plan counted. The unused regions return to
    // the pool.
    while let Some(mr) = idle.pop() {
        pools.put(mr);
    }
    mapped
}

/// Puts the regions of a call that was not posted back into the pool.
pub(super) fn unmap(qp: &Qp<Connection>, call: &Call<'_, Rdma>) {
    let mut regions = core::mem::take(&mut call.slot().driver_data().state.lock().regions);
    while let Some(region) = regions.pop() {
        match region.unposted() {
            Ok((mr, _lease)) => qp.handler().regions().put(mr),
            // A post of this call failed. So this region and the remaining regions stay in the slot
            // until the teardown of the connection takes them.
            Err(region) => {
                let _ = regions.push_within_capacity(region);
                break;
            }
        }
    }
    // The slot keeps the memory of the list for the slot's next call.
    call.slot().driver_data().state.lock().regions = regions;
}

/// Collects the regions that slots keep for their next calls. The caller must hold the send lock or
/// run the keepalive, so that every such region belongs to the current connection.
pub(crate) fn collect_idle(xprt: &Xprt<Rdma>, pools: &Pools) {
    for slot in xprt.slots() {
        let kept = slot.driver_data().state.lock().kept.take();
        if let Some(mr) = kept {
            pools.put(mr);
        }
    }
}
