// SPDX-License-Identifier: GPL-2.0

//! What the transports of one server share ([`Server`]): a word of the driver's.

use core::net::SocketAddr;
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

struct Entry {
    key: Key,
    users: usize,
    word: u64,
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

    fn with<R>(&self, key: Key, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.entries
            .lock()
            .iter_mut()
            .find(|entry| entry.key == key)
            .map(f)
    }
}

/// The share of one transport in the word of its server. The word is zero at first, and forgotten
/// with the last share.
pub struct Server {
    servers: Arc<Servers>,
    key: Key,
}

impl Server {
    /// A share in the word of the server with this address, in the network namespace of this
    /// number. `ENOMEM`. Does not sleep.
    pub(crate) fn new(servers: &Arc<Servers>, net: u32, peer: SocketAddr) -> Result<Self> {
        let key = Key { net, peer };
        let mut entries = servers.entries.lock();
        match entries.iter_mut().find(|entry| entry.key == key) {
            // NO-OVERFLOW: Each user has a share in memory.
            Some(entry) => entry.users = entry.users.wrapping_add(1),
            None => entries.push(
                Entry {
                    key,
                    users: 1,
                    word: 0,
                },
                GFP_ATOMIC,
            )?,
        }
        Ok(Self {
            servers: servers.clone(),
            key,
        })
    }

    /// The address.
    pub fn peer(&self) -> SocketAddr {
        self.key.peer
    }

    /// The word. Does not sleep.
    pub fn get(&self) -> u64 {
        self.servers.with(self.key, |entry| entry.word).unwrap_or(0)
    }

    /// Changes the word for all that have a share. Does not sleep.
    pub fn set(&self, word: u64) {
        self.servers.with(self.key, |entry| entry.word = word);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.servers.entries.lock().retain(|entry| {
            if entry.key == self.key {
                // NO-OVERFLOW: This share was counted.
                entry.users = entry.users.wrapping_sub(1);
            }
            entry.users != 0
        });
    }
}
