// SPDX-License-Identifier: GPL-2.0

//! Sizes and limits.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use xprtrdma_proto::{
    responder::{
        admit::{
            MAX_SEGMENTS,
            MAX_WRITES, //
        },
        call::Call,
        grant::GrantBounds,
        refusal::Refusal, //
    },
    served::{
        door::Doorway,
        life::Patience,
        queues::{
            self,
            Limits,
            Queues, //
        }, //
    },
    threshold::MIN_THRESHOLD_V2,
    time::Millis, //
};
use xprtrdma_rdma::{
    device::DeviceInfo,
    pd::Pd,
    qp::QpConfig,
    sink::Sinks,
    transfer::Transfer, //
};
use xprtrdma_svc::sysctl;

/// Maximum number of connection requests that wait for a thread at one listener.
pub(crate) const REQUESTS: usize = 64;

/// Maximum number of RDMA Reads that a connection has in flight.
pub(crate) const READS: u8 = 16;
/// The values that the sysctls show.
pub(crate) const SHOWN: sysctl::Sizes = sysctl::Sizes {
    requests: CALLS as u32,
    request_size: INLINE,
    reads: READS as u32,
};

/// Maximum length in bytes of a message from a client that does not announce longer messages.
pub(crate) const INLINE: u32 = 4096;
/// Maximum length of a message in either direction, in bytes, if the client announces this length
/// or more. A message of this length can contain the data of a READ or WRITE of 4 KiB.
pub(crate) const LONGEST_INLINE: u32 = 8192;

// RPC-over-RDMA version two requires that both ends accept messages of `MIN_THRESHOLD_V2` bytes.
const _: () = assert!(INLINE >= MIN_THRESHOLD_V2);

/// Size of the send ring in bytes for a client that does not announce messages longer than
/// `INLINE`. Most responses are short. A response that finds no space in the ring waits.
const RING: usize = 16 * INLINE as usize;
/// Size of the send ring in bytes for a client that announces messages longer than `INLINE`. Such
/// messages contain the data of small READs.
const LONGER_RING: usize = CALLS as usize * INLINE as usize;
/// Minimum size of the send ring in bytes: space for four messages of the maximum length.
const LEAST_RING: usize = 4 * LONGEST_INLINE as usize;

/// Maximum number of calls that a client may have in flight.
const CALLS: u16 = 64;
/// Number of calls that a client may have in flight at first. The number grows if the client makes
/// many calls, and the connection then gets more Receives.
const FIRST_CALLS: u16 = 8;
/// A client may exceed its grant by this number of calls before its connection ends. A connection
/// also has this number of additional Receives, for calls that were answered but are not finished.
const SPARE: u16 = 16;
/// Maximum number of calls in flight to a client. Each call needs a Receive for its reply.
pub(crate) const CALLBACKS: u16 = 8;
/// The connection ends if calls to the client wait for their answers, but the client answers none
/// of them for this number of ticks (one minute). The RPC client gives up a single call earlier.
pub(crate) const CALLBACK_TICKS: u32 = 12;
/// Maximum number of Receives that wait to be posted again.
const RECV_BATCH: u16 = 8;
/// Number of bytes in the Receives and the send ring of a connection whose client makes few calls
/// and does not announce messages longer than `INLINE`.
// NO-OVERFLOW: All factors are small constants.
pub(crate) const IDLE: usize =
    (FIRST_CALLS + SPARE + CALLBACKS + RECV_BATCH) as usize * INLINE as usize + RING;
/// The calls of all connections together may hold an eighth of the host's memory, but at most
/// `MEMORY` bytes and at least `LEAST_MEMORY` bytes. `LEAST_MEMORY` exceeds the longest call with
/// its results. The calls of one connection may hold a quarter of the total.
pub(crate) const MEMORY: usize = 128 << 20;
pub(crate) const LEAST_MEMORY: usize = 16 << 20;
/// Maximum size in bytes of the pages that a connection keeps for later calls. All connections
/// together keep at most as many pages as the calls of one connection may hold.
pub(crate) const KEPT: usize = 4 << 20;
/// Maximum number of pieces of the client's memory in a transfer. Each segment is one piece. A
/// result in a Write chunk divides the rest of the reply, and so may divide a segment of the Reply
/// chunk into two pieces.
// CAST: `MAX_SEGMENTS` and `MAX_WRITES` are small.
const PIECES: u32 = (MAX_SEGMENTS + MAX_WRITES) as u32;
/// Limits on the connections of a listener.
pub(crate) const DOORWAY: Doorway = Doorway {
    connections: 512,
    of_one: 128,
    // CAST: `REQUESTS` is small.
    waiting_of_one: REQUESTS as u32 / 2,
};
/// Time limits of a connection. A connection that exceeds one of them is ended.
pub(crate) const PATIENCE: Patience = Patience {
    confirm: Millis::from_secs(10),
    silence: Millis::from_secs(60),
    answer: Millis::from_secs(30),
    transfer: Millis::from_secs(30),
    drain: Millis::from_secs(60),
    tick: Millis::from_secs(5),
    malformed: 16,
};
/// Interval in milliseconds at which this host tries again to process calls that wait for memory.
/// Calls of other connections hold that memory. Usually such a connection is woken earlier, when
/// memory is returned (`server::turns`).
pub(crate) const RETRY_MS: u64 = 100;
/// At least one of this number of consecutive work requests is signalled.
const SIGNAL_EVERY: u32 = 64;

/// The sizes of a connection, adapted to its device.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    queues: Queues,
    /// Size of a Receive buffer in bytes.
    receive: u32,
    regions: Option<Regions>,
}

/// The capabilities of the device that matter for a connection.
pub(crate) struct Device {
    pub(crate) sizes: Sizes,
    /// Maximum number of RDMA Reads in flight.
    pub(crate) reads: u8,
    pub(crate) is_iwarp: bool,
}

/// The regions that an iWARP device needs for the data of RDMA Reads.
#[derive(Clone, Copy)]
struct Regions {
    /// Number of pages of each region.
    pages: u32,
    /// Number of regions that cover the longest call.
    longest: u32,
}

impl Regions {
    /// Maximum number of pages of a region. The kernel's own code for Reads on iWARP has the same
    /// limit (`drivers/infiniband/core/rw.c`).
    const MOST: u32 = 256;

    /// Returns the size and the number of the regions for calls of `pages` pages. Returns `None` if
    /// the device cannot register memory in its send queue.
    fn on(device: &DeviceInfo, pages: u32) -> Option<Self> {
        let most = device.max_fast_reg_pages.min(pages).min(Self::MOST);
        (device.fast_reg && most != 0).then(|| Self {
            pages: most,
            longest: pages.div_ceil(most),
        })
    }
}

impl Sizes {
    /// Returns the sizes that fit the device, for calls and replies of `longest` bytes and Receives
    /// of `receive` bytes. A work request of the device has at most `elements` SGEs. Returns `None`
    /// if the device's queues are too small, or if the device needs regions and cannot register
    /// memory in its send queue.
    pub(crate) fn on(
        device: &DeviceInfo,
        elements: u32,
        longest: u32,
        receive: u32,
    ) -> Option<Self> {
        // CAST: This is a small number. One page is added, because the bytes may begin anywhere in
        // a page.
        let pages = (longest as usize).div_ceil(PAGE_SIZE).wrapping_add(1) as u32;
        let regions = match device.ends_early {
            true => Some(Regions::on(device, pages)?),
            false => None,
        };
        let wish = Queues {
            sends: queues::sends(pages, elements, PIECES, regions.map_or(0, |of| of.longest)),
            calls: CALLS.into(),
            // NO-OVERFLOW: All terms are small constants.
            extra: (SPARE + CALLBACKS + RECV_BATCH).into(),
        };
        let device = Limits {
            work_requests: device.max_qp_wr,
            completions: device.max_cqe,
        };
        let queues = wish.fit(&device)?;
        Some(Self {
            queues,
            receive,
            regions,
        })
    }

    /// Creates the regions for the data of RDMA Reads. At most `reads` Reads may be in flight.
    /// Returns `None` if the device needs no regions. May sleep.
    pub(crate) fn sinks(&self, pd: &Arc<Pd>, reads: u8) -> Result<Option<Arc<Sinks>>> {
        let Some(Regions { pages, longest }) = self.regions else {
            return Ok(None);
        };
        // Either each Read in flight uses at most one region, or all of them belong to one long
        // call and use its regions. So the Reads use at most as many regions as there are Reads, or
        // as the longest call has. The next call may already have prepared its regions. So the
        // regions of another longest call are added.
        // CAST, NO-OVERFLOW: All these numbers are small.
        let count = longest.max(reads.into()).wrapping_add(longest) as usize;
        let sinks = Sinks::new(pd, pages, count)?;
        Ok(Some(Arc::new(sinks, GFP_KERNEL)?))
    }

    /// Returns the sizes of the queue pair.
    pub(crate) fn queues(&self) -> QpConfig {
        QpConfig {
            send_bytes: match self.receive > INLINE {
                true => LONGER_RING,
                false => RING,
            },
            least_send_bytes: LEAST_RING,
            send_wrs: self.queues.sends,
            signal_every: SIGNAL_EVERY,
            message_wrs: 1,
            waiting_wrs: 1,
            // CAST: The initial number of Receives is at most `CALLS + SPARE + CALLBACKS`.
            recv_count: self.first_receives() as u16,
            recv_batch: RECV_BATCH,
            // CAST: The difference is at most `CALLS`.
            // NO-OVERFLOW: The number of all Receives includes the first Receives.
            recv_more: self.receives().wrapping_sub(self.first_receives()) as u16,
            recv_size: self.receive as usize,
        }
    }

    /// Returns the limits of the client's grant.
    pub(crate) fn grant(&self) -> GrantBounds {
        GrantBounds {
            least: self.first_calls(),
            most: self.queues.calls,
            reserved: CALLBACKS.into(),
            spare: SPARE.into(),
        }
    }

    fn first_calls(&self) -> u32 {
        self.queues.calls.min(FIRST_CALLS.into())
    }

    /// Returns the initial number of Receives of a connection.
    pub(crate) fn first_receives(&self) -> u32 {
        // NO-OVERFLOW: All terms are small constants.
        self.first_calls().wrapping_add((SPARE + CALLBACKS).into())
    }

    /// Returns the size of a Receive buffer in bytes.
    pub(crate) fn receive(&self) -> usize {
        self.receive as usize
    }

    /// Returns the maximum number of Receives of a connection, without the Receives that wait to be
    /// posted again.
    fn receives(&self) -> u32 {
        // NO-OVERFLOW: `receives` includes `RECV_BATCH`.
        self.queues.receives().wrapping_sub(RECV_BATCH.into())
    }

    /// Returns how many calls may wait for a thread: one for each Receive.
    pub(crate) fn inbox(&self) -> usize {
        // CAST: The number of Receives is small.
        self.queues.receives() as usize
    }

    /// Returns how many responses may wait for space in the send queue, see `Grant::wait`.
    pub(crate) fn answers(&self) -> usize {
        self.inbox()
    }

    /// Checks that the transfer of a call fits into the send queue.
    pub(crate) fn check<S>(&self, call: &Call<'_, S>, transfer: &Transfer) -> Result<(), Refusal> {
        self.queues.check(call, transfer.wrs())
    }
}
