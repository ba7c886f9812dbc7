// SPDX-License-Identifier: GPL-2.0

//! The name of this driver in sunrpc's types ([`Rdma`]).

/// Names the driver: `Xprt<Rdma>`, `Pinned<Rdma>`, `Lease<Rdma>`.
///
/// Every room can name it and is below [`client`](crate::client), which says what it does
/// (`impl Transport`) and has its data.
pub(crate) struct Rdma;
