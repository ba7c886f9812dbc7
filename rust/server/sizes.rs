// SPDX-License-Identifier: GPL-2.0

//! Sizes and bounds.

use crate::reverse;
use xprtrdma_proto::{
    responder::{
        call::Call,
        grant::GrantBounds,
        refusal::Refusal, //
    },
    served::{
        door::Doorway,
        life::Patience,
        queues::{
            Limits,
            Queues, //
        }, //
    },
    threshold::MIN_THRESHOLD_V2,
    time::Millis, //
};
use xprtrdma_rdma::{
    device::DeviceInfo,
    qp::QpConfig,
    transfer::Transfer, //
};
use xprtrdma_svc::sysctl;

/// Requests that wait for a thread at one listener.
pub(crate) const REQUESTS: usize = 64;

/// RDMA Reads that a connection has under way at most.
pub(crate) const READS: u8 = 16;
/// What the sysctls show.
pub(crate) const SHOWN: sysctl::Sizes = sysctl::Sizes {
    requests: CALLS as u32,
    request_size: INLINE,
    reads: READS as u32,
};

/// Bytes of the longest message in either direction.
pub(crate) const INLINE: u32 = 4096;

// A client of version two may send that much to a server that may speak it, and takes it.
const _: () = assert!(INLINE >= MIN_THRESHOLD_V2);

/// Calls that a client may have in flight.
const CALLS: u16 = 64;
/// Number of calls above the grant that do not end the connection, and of Receives whose calls are
/// answered but not over.
const SPARE: u16 = 16;
/// Receives for replies to calls of ours.
const CALLBACKS: u16 = reverse::CALLS;
/// Receives that may wait to be posted again.
const RECV_BATCH: u16 = 8;
/// Work requests of the send queue.
const SEND_WRS: u32 = 1024;
/// Bytes of messages that an idle connection keeps: its Receives, and the ring of its answers.
// NO-OVERFLOW: Small constants.
pub(crate) const IDLE: usize =
    (CALLS + SPARE + CALLBACKS + RECV_BATCH + CALLS) as usize * INLINE as usize;
/// Bytes that the calls of all connections may hold at most, and at least: more than the longest
/// call and its results. A connection may have a quarter of that.
pub(crate) const MEMORY: usize = 128 << 20;
pub(crate) const LEAST_MEMORY: usize = 16 << 20;
/// How many connections a listener may have.
pub(crate) const DOORWAY: Doorway = Doorway {
    // CAST: A small number.
    waiting: REQUESTS as u32,
    connections: 512,
    of_one: 128,
};
/// How long things may take.
pub(crate) const PATIENCE: Patience = Patience {
    confirm: Millis::from_secs(10),
    silence: Millis::from_secs(60),
    answer: Millis::from_secs(30),
    transfer: Millis::from_secs(30),
    tick: Millis::from_secs(5),
    malformed: 16,
};
/// Milliseconds until a call looks again for memory that other connections hold.
pub(crate) const RETRY_MS: u64 = 100;
/// Work requests in a row of which one is signalled.
const SIGNAL_EVERY: u32 = 16;

/// The sizes of a connection on its device.
#[derive(Clone, Copy)]
pub(crate) struct Sizes(Queues);

impl Sizes {
    /// Returns the sizes that fit the device. `None`: it is too small.
    pub(crate) fn on(device: &DeviceInfo) -> Option<Self> {
        let wish = Queues {
            sends: SEND_WRS,
            calls: CALLS.into(),
            // NO-OVERFLOW: Small constants.
            extra: (SPARE + CALLBACKS + RECV_BATCH).into(),
        };
        let device = Limits {
            work_requests: device.max_qp_wr,
            completions: device.max_cqe,
        };
        wish.fit(&device).map(Self)
    }

    /// Returns the sizes of the queue pair.
    pub(crate) fn queues(&self) -> QpConfig {
        QpConfig {
            // Room for the longest answers to all calls. An answer that finds no room waits.
            send_bytes: CALLS as usize * INLINE as usize,
            least_send_bytes: 8 * INLINE as usize,
            send_wrs: self.0.sends,
            signal_every: SIGNAL_EVERY,
            message_wrs: 1,
            waiting_wrs: 1,
            // CAST: At most `CALLS + SPARE + CALLBACKS`.
            recv_count: self.receives() as u16,
            recv_batch: RECV_BATCH,
            recv_size: INLINE as usize,
        }
    }

    /// Returns the bounds of the client's grant.
    pub(crate) fn grant(&self) -> GrantBounds {
        GrantBounds {
            least: self.0.calls,
            most: self.0.calls,
            reserved: CALLBACKS.into(),
            spare: SPARE.into(),
        }
    }

    /// Returns the Receives that are kept posted, without those of calls in process.
    pub(crate) fn receives(&self) -> u32 {
        // NO-OVERFLOW: A few more than the calls.
        self.0.receives().wrapping_sub(RECV_BATCH.into())
    }

    /// Returns how many calls may wait for a thread: every Receive there is.
    pub(crate) fn inbox(&self) -> usize {
        // CAST: A small number.
        self.0.receives() as usize
    }

    /// Returns how many answers may wait for room in the send queue: see `Grant::wait`.
    pub(crate) fn answers(&self) -> usize {
        self.inbox()
    }

    /// Checks that the transfer of a call fits into the send queue.
    pub(crate) fn check<S>(&self, call: &Call<'_, S>, transfer: &Transfer) -> Result<(), Refusal> {
        self.0.check(call, transfer.wrs())
    }
}
