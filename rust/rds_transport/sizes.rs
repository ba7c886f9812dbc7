// SPDX-License-Identifier: GPL-2.0

//! Sizes and bounds.

use xprtrdma_rdma::qp::QpConfig;
use xprtrdma_rds_proto::header::{
    FRAGMENT_BYTES,
    HEADER_BYTES, //
};

/// Bytes of the longest frame.
pub(crate) const FRAME: usize = HEADER_BYTES + FRAGMENT_BYTES as usize;
/// Receives that are kept posted.
pub(crate) const RECEIVES: u16 = 128;
/// Receives that may wait to be posted again.
const RECV_BATCH: u16 = 16;
/// Frames that may be in the send queue.
const FRAMES: usize = 64;
/// Work requests of the send queue: more than those of the longest operation on a device of one
/// element, and the frames.
const SEND_WRS: u32 = 512;
/// Work requests of the longest operation whose memory is not copied.
pub(crate) const LENT_WRS: u32 = 400;
/// Bytes of the longest operation.
pub(crate) const OPERATION: u32 = (1 << 20) + FRAGMENT_BYTES;
/// Regions of all programs (RDS-56).
pub(crate) const REGIONS: u32 = 2048;
/// Connection requests that wait.
pub(crate) const REQUESTS: usize = 64;
/// How long a step of the connection manager may take.
pub(crate) const STEP_MS: u32 = 5000;
/// Retries of a device before a connection is declared dead.
pub(crate) const RETRIES: u8 = 1;

pub(crate) const QUEUES: QpConfig = QpConfig {
    send_bytes: FRAMES * (FRAME + 64),
    least_send_bytes: 8 * (FRAME + 64),
    send_wrs: SEND_WRS,
    signal_every: 16,
    message_wrs: 1,
    waiting_wrs: 1,
    recv_count: RECEIVES,
    recv_batch: RECV_BATCH,
    recv_size: FRAME,
};
