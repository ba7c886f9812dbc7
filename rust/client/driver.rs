// SPDX-License-Identifier: GPL-2.0

//! The marker type that stands for this driver in sunrpc's generic types ([`Rdma`]).

/// Marks sunrpc's generic types as this driver's: `Xprt<Rdma>`, `Pinned<Rdma>`, `Lease<Rdma>`.
///
/// Every module can name this type. The module [`client`](crate::client), which is above the
/// others, implements `Transport` for it and defines its data.
pub(crate) struct Rdma;
