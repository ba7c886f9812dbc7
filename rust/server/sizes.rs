// SPDX-License-Identifier: GPL-2.0

//! Sizes and bounds.

use xprtrdma_proto::responder::grant::GrantBounds;
use xprtrdma_rdma::qp::QpConfig;

/// Requests that wait for a thread at one listener.
pub(crate) const REQUESTS: usize = 64;

/// Bytes of the longest message in either direction.
pub(crate) const INLINE: u32 = 4096;

/// Calls that a client may have in flight.
const CALLS: u16 = 64;
/// Calls above the grant that are forgiven, and Receives whose calls are answered but not over.
const SPARE: u16 = 16;
/// Receives that may wait to be posted again.
const RECV_BATCH: u16 = 8;
/// Work requests of the send queue.
const SEND_WRS: u32 = 1024;
/// Work requests of one call or reply. More might wait for ever: some of the queue may stay taken
/// until more is posted.
pub(crate) const TRANSFER_WRS: u32 = SEND_WRS / 4 * 3;
/// Bytes that RDMA Reads of a connection may bring at a time.
pub(crate) const READ_BYTES: u32 = 16 << 20;
/// Work requests in a row of which one is signalled.
const SIGNAL_EVERY: u32 = 16;

pub(crate) const GRANT: GrantBounds = GrantBounds {
    least: CALLS as u32,
    most: CALLS as u32,
    reserved: 0,
    spare: SPARE as u32,
};

/// Receives that are kept posted, without those of calls in process.
pub(crate) const RECEIVES: u32 = CALLS as u32 + SPARE as u32;

/// Calls that may wait for a thread: every Receive there is.
pub(crate) const INBOX: usize = RECEIVES as usize + RECV_BATCH as usize;

/// Answers that may wait for room in the send queue: see `Grant::wait`.
pub(crate) const ANSWERS: usize = RECEIVES as usize;

pub(crate) const QUEUES: QpConfig = QpConfig {
    // Answers to all calls, twice: a client that takes none of them loses the connection.
    send_bytes: 2 * CALLS as usize * INLINE as usize,
    least_send_bytes: 8 * INLINE as usize,
    send_wrs: SEND_WRS,
    signal_every: SIGNAL_EVERY,
    message_wrs: 1,
    waiting_wrs: 1,
    recv_count: CALLS + SPARE,
    recv_batch: RECV_BATCH,
    recv_size: INLINE as usize,
};
