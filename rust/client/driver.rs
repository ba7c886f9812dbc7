// SPDX-License-Identifier: GPL-2.0

//! The marker type that stands for this driver in sunrpc's generic types ([`Rdma`]).

/// The type parameter with which this driver uses sunrpc's generic types: `Xprt<Rdma>`,
/// `Pinned<Rdma>`, `Lease<Rdma>`.
///
/// The type has a module of its own, so that every other module can name it. The module
/// [`client`](crate::client) implements `Transport` for this type and defines the data of a
/// transport. That module depends on all other modules.
pub(crate) struct Rdma;
