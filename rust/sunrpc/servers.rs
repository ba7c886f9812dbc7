// SPDX-License-Identifier: GPL-2.0

//! The state that the transports of one server share ([`Server`]): an object of the driver.

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

/// A server that has transports: a network namespace, by number, and an address with its port.
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

/// The servers that have transports.
#[pin_data]
pub(crate) struct Servers {
    #[pin]
    entries: SpinLock<KVec<Entry>>,
}

impl Servers {
    /// An empty list. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                entries <- new_spinlock!(KVec::new(), "Servers::entries"),
            }),
            GFP_KERNEL,
        )
    }
}

/// A transport's share in the object of type `T` that the transports of its server have in common.
/// The object is made with the first share and dropped with the last.
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
    /// Makes a share in the object of the server with this address, in the network namespace with
    /// this number. The object is `fresh` if no other share exists. `ENOMEM`. Does not sleep.
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
                // NO-OVERFLOW: Each user has a share in memory.
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

    /// The address.
    pub fn peer(&self) -> SocketAddr {
        self.key.peer
    }

    /// The object; `None` if the shares of the server are of another type.
    pub fn shared(&self) -> Option<&T> {
        (*self.data).downcast_ref()
    }
}

impl<T> Drop for Server<T> {
    fn drop(&mut self) {
        self.servers.entries.lock().retain(|entry| {
            if entry.key == self.key {
                // NO-OVERFLOW: This share was counted.
                entry.users = entry.users.wrapping_sub(1);
            }
            // The object is not dropped here, as this share still refers to it.
            entry.users != 0
        });
    }
}
