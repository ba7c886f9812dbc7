// SPDX-License-Identifier: GPL-2.0

//! The type that represents this driver in the interface to the RPC server.

/// The type of this driver. The driver's operations are in the module `service`.
pub(crate) struct Rdma;
