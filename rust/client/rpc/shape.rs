// SPDX-License-Identifier: GPL-2.0

//! Computes the shape of a call (the lengths of its parts), and the plan for how the call travels.

use crate::{
    connection::Connection,
    driver::Rdma,
    rpc::refuse::report, //
};
use kernel::prelude::*;
use xprtrdma_proto::{
    header::MAX_SEGMENTS,
    plan::{
        self,
        CallShape,
        RegionLimits,
        ReplyShape,
        Run,
        Segmentation, //
    },
    Plan,
    Thresholds,
    Version, //
};
use xprtrdma_rdma::qp::Qp;
use xprtrdma_sunrpc::{
    call::Encoded,
    xdr_buf::XdrBuf, //
};

/// Converts a length or an offset in a message to the 32 bits that the protocol core uses.
#[inline(always)]
pub(super) fn shape32(len: usize) -> u32 {
    // CAST: The RPC client counts the bytes of a whole message with 32 bits (`xdr_buf::buflen`).
    len as u32
}

pub(super) fn run(offset: usize, length: usize) -> Run {
    Run {
        offset: shape32(offset),
        length: shape32(length),
    }
}

/// Returns the position and the length of the part of a message that is in pages.
#[inline(always)]
pub(super) fn pages(buf: &XdrBuf<'_>) -> Run {
    run(buf.page_offset(), buf.page_len())
}

/// Returns the position and the length of a message's head, pages and tail.
fn whole(buf: &XdrBuf<'_>) -> [Run; 3] {
    [
        run(buf.head_offset(), buf.head_len()),
        pages(buf),
        run(buf.tail_offset(), buf.tail_len()),
    ]
}

/// Returns the limits of a region of `pages` pages. If `gaps` is true, the region may have gaps.
#[inline(always)]
fn region_limits(pages: u32, gaps: bool) -> RegionLimits {
    RegionLimits {
        pages,
        page_size: kernel::page::PAGE_SIZE as u32,
        gaps,
    }
}

/// Counts the segments that each chunk of a call would have if the plan used that chunk.
struct Counted<'a> {
    regions: RegionLimits,
    message: XdrBuf<'a>,
    reply: XdrBuf<'a>,
}

impl Segmentation for Counted<'_> {
    #[inline(always)]
    fn read(&self) -> usize {
        self.regions.segments_of_one(pages(&self.message))
    }

    #[inline(always)]
    fn call(&self) -> usize {
        segments_of_all(self.regions.pages, self.regions.gaps, self.message)
    }

    #[inline(always)]
    fn write(&self) -> usize {
        self.regions.segments_of_one(pages(&self.reply))
    }

    #[inline(always)]
    fn reply(&self) -> usize {
        // Only parts of `self` are passed to the callee. If all of `self` were passed, the compiler
        // would store it in memory even when that is not needed.
        let (buf, regions) = (self.reply, self.regions);
        if buf.page_len() == 0 && buf.tail_len() == 0 {
            return regions.segments_of_one(run(buf.head_offset(), buf.head_len()));
        }
        segments_of_all(regions.pages, regions.gaps, buf)
    }
}

#[inline(never)]
fn segments_of_all(pages: u32, gaps: bool, buf: XdrBuf<'_>) -> usize {
    region_limits(pages, gaps).segments(&whole(&buf))
}

/// Plans how a call and its reply travel.
#[inline(always)]
pub(super) fn plan_call(
    qp: &Qp<Connection>,
    call: &Encoded<'_, Rdma>,
    version: Version,
    thresholds: Thresholds,
) -> Result<Plan, xprtrdma_proto::Error> {
    let (pool, message) = (qp.handler().regions(), *call.message());
    let reply = call.reply();
    let shape = CallShape {
        head: shape32(message.head_len()),
        pages: shape32(message.page_len()),
        tail: shape32(message.tail_len()),
        tail_padded: true,
        eligible: message.is_write_data(),
    };
    let reply_shape = ReplyShape {
        head: shape32(reply.head_len()),
        pages: shape32(reply.page_len()),
        tail: shape32(reply.tail_len()),
        eligible: reply.is_read_data(),
    };
    let counts = Counted {
        regions: region_limits(pool.pages(), pool.gaps()),
        message,
        reply,
    };
    let limits = plan::Limits {
        version,
        thresholds,
        segments: MAX_SEGMENTS,
    };
    plan::plan(&shape, &reply_shape, &counts, call.ddp_allowed(), &limits)
}

/// Checks whether a call can be carried on a connection.
#[cold]
pub(crate) fn check(qp: &Qp<Connection>, call: &Encoded<'_, Rdma>) -> Result {
    let conn = qp.handler();
    match plan_call(qp, call, conn.version(), conn.thresholds()) {
        Ok(_) => Ok(()),
        Err(error) => {
            report(conn.counters(), call, error);
            Err(Error::from_errno(error.to_errno()))
        }
    }
}

/// Minimum number of pages in a region. Regions of this size suffice for every request of the RPC
/// client.
pub(crate) const SMALL_REGION: u32 = 64;
