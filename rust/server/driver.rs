// SPDX-License-Identifier: GPL-2.0

//! The name of the driver in the types of the RPC server's contract.

/// Its operations are in `service`.
pub(crate) struct Rdma;
