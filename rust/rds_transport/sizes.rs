// SPDX-License-Identifier: GPL-2.0

//! The sizes and limits of RDS connections.

use xprtrdma_rdma::qp::QpConfig;
use xprtrdma_rds_proto::header::{
    FRAGMENT_BYTES,
    HEADER_BYTES, //
};

/// Maximum length of a frame, in bytes.
pub(crate) const FRAME: usize = HEADER_BYTES + FRAGMENT_BYTES as usize;
/// Number of Receives that are kept posted.
pub(crate) const RECEIVES: u16 = 128;
/// Maximum number of Receives that wait to be posted again.
const RECV_BATCH: u16 = 16;
/// Maximum number of frames in the send queue.
const FRAMES: usize = 64;
/// Number of work requests in the send queue. The number suffices for all frames and for the
/// longest operation, even if the device supports only one SGE per work request.
const SEND_WRS: u32 = 512;
/// Maximum number of work requests for an operation that accesses the program's memory directly.
pub(crate) const LENT_WRS: u32 = 400;
/// Maximum length of an operation, in bytes.
pub(crate) const OPERATION: u32 = (1 << 20) + FRAGMENT_BYTES;
/// Maximum number of regions of all programs (RDS-56).
pub(crate) const REGIONS: u32 = 2048;
/// Maximum number of connection requests that wait to be accepted.
pub(crate) const REQUESTS: usize = 64;
/// Maximum duration of a step of connection setup, in milliseconds.
pub(crate) const STEP_MS: u32 = 5000;
/// Number of times that a device repeats a message before the connection fails.
pub(crate) const RETRIES: u8 = 1;

pub(crate) const QUEUES: QpConfig = QpConfig {
    send_bytes: FRAMES * (FRAME + 64),
    least_send_bytes: 8 * (FRAME + 64),
    send_wrs: SEND_WRS,
    signal_every: 16,
    message_wrs: 1,
    waiting_wrs: 16,
    recv_count: RECEIVES,
    recv_batch: RECV_BATCH,
    recv_more: 0,
    recv_size: FRAME,
};
