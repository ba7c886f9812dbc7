// SPDX-License-Identifier: GPL-2.0

//! The driver's state that all transports to the same server share ([`Server`]).

use core::{
    any::Any,
    marker::PhantomData,
    net::SocketAddr, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
};

/// Identifies a server that has transports: the number of the network namespace, and the server's
/// address and port.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    net: u32,
    peer: SocketAddr,
}

type Data = Arc<dyn Any + Send + Sync>;

struct Entry {
    key: Key,
    users: usize,
    data: Data,
}

/// The shared state of all servers that have transports.
#[pin_data]
pub(crate) struct Servers {
    #[pin]
    entries: SpinLock<KVec<Entry>>,
}

impl Servers {
    /// Creates an empty list of servers. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                entries <- new_spinlock!(KVec::new(), "Servers::entries"),
            }),
            GFP_KERNEL,
        )
    }
}

/// A counted reference to the object of type `T` that all transports to the same server share. The
/// object is added to the list of servers when the first reference is created, and removed when the
/// last reference is dropped.
///
/// # Examples
///
/// ```
/// # use core::net::SocketAddr;
/// # use kernel::{prelude::*, sync::{atomic::{Atomic, Relaxed}, Arc}};
/// # use xprtrdma_base::net::Net;
/// # use xprtrdma_sunrpc::{common::Common, servers::Server};
/// /// Counts the connections to a server over all of its transports.
/// fn count(common: &Common, net: &Net, peer: SocketAddr) -> Result<Server<Atomic<u32>>> {
///     let server = common.server(net, peer, Arc::new(Atomic::new(0u32), GFP_KERNEL)?)?;
///     if let Some(connections) = server.shared() {
///         connections.add(1, Relaxed);
///     }
///     Ok(server)
/// }
/// ```
pub struct Server<T> {
    servers: Arc<Servers>,
    key: Key,
    data: Data,
    of: PhantomData<fn() -> T>,
}

impl<T: Any + Send + Sync> Server<T> {
    /// Creates a reference to the object that belongs to the server at address `peer` in network
    /// namespace `net`. If no other reference exists, `fresh` becomes this object. Returns `ENOMEM`
    /// if no memory is available. Does not sleep.
    pub(crate) fn new(
        servers: &Arc<Servers>,
        net: u32,
        peer: SocketAddr,
        fresh: Arc<T>,
    ) -> Result<Self> {
        let key = Key { net, peer };
        let mut entries = servers.entries.lock();
        let data: Data = match entries.iter_mut().find(|entry| entry.key == key) {
            Some(entry) => {
                // NO-OVERFLOW: Each counted `Server` occupies memory, so fewer than 2^64 of them
                // exist.
                entry.users = entry.users.wrapping_add(1);
                entry.data.clone()
            }
            None => {
                let entry = Entry {
                    key,
                    users: 1,
                    data: fresh,
                };
                let data = entry.data.clone();
                entries.push(entry, GFP_ATOMIC)?;
                data
            }
        };
        Ok(Self {
            servers: servers.clone(),
            key,
            data,
            of: PhantomData,
        })
    }

    /// Returns the server's address.
    pub fn peer(&self) -> SocketAddr {
        self.key.peer
    }

    /// Returns the shared object, or `None` if the object of this server has another type than `T`.
    pub fn shared(&self) -> Option<&T> {
        (*self.data).downcast_ref()
    }
}

impl<T> Drop for Server<T> {
    fn drop(&mut self) {
        self.servers.entries.lock().retain(|entry| {
            if entry.key == self.key {
                // NO-OVERFLOW: The counter includes this `Server`, so it is at least one.
                entry.users = entry.users.wrapping_sub(1);
            }
            // This closure cannot free the object under the lock, because `self` still refers to
            // the object.
            entry.users != 0
        });
    }
}
