// SPDX-License-Identifier: GPL-2.0

//! The type that stands for this driver in the types of the RPC server's contract.

/// The type of this driver. Its operations are in `service`.
pub(crate) struct Rdma;
