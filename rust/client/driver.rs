// SPDX-License-Identifier: GPL-2.0

//! The marker type that stands for this driver in sunrpc's generic types ([`Rdma`]).

/// The type parameter with which this driver uses sunrpc's generic types: `Xprt<Rdma>`,
/// `Pinned<Rdma>`, `Lease<Rdma>`.
///
/// Every module can name this type. The module [`client`](crate::client), which depends on all
/// other modules, implements `Transport` for this type and defines the data of a transport.
pub(crate) struct Rdma;
