// SPDX-License-Identifier: GPL-2.0

//! The record of Calls whose failed RDMA operations broke connections, for all clients of a
//! listener.

use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::{
    responder::{
        breakers::{
            self,
            OfClient,
            CLIENTS, //
        },
        refusal::Fault, //
    },
    time::Time,
    Xid, //
};
use xprtrdma_svc::util::now_ms;

/// The Calls that are remembered because they broke connections.
pub(crate) struct Breakers {
    /// True if at least one Call is remembered because it broke a connection. The flag is read
    /// without a lock. So a Call that arrives while the flag changes may be admitted, although it
    /// broke connections before.
    any: AtomicBool,
    clients: Pin<KBox<SpinLock<KVec<Option<OfClient>>>>>,
}

impl Breakers {
    pub(crate) fn new() -> Result<Self> {
        let clients = KVec::from_elem(None, CLIENTS, GFP_KERNEL)?;
        let lock = new_spinlock!(clients, "Breakers::clients");
        Ok(Self {
            any: AtomicBool::new(false),
            clients: KBox::pin_init(lock, GFP_KERNEL)?,
        })
    }

    /// Records that the Call with this xid broke a connection of the client.
    #[cold]
    pub(crate) fn broke(&self, client: IpAddr, xid: Xid) {
        let now = Time::from_millis(now_ms());
        breakers::broke(&mut self.clients.lock(), client, xid, now);
        self.any.store(true, Relaxed);
    }

    /// Checks that the Call of the client with this xid may be processed. Returns a [`Fault`] if
    /// the Call must be refused because it broke connections.
    #[inline(always)]
    pub(crate) fn check(&self, client: &SocketAddr, xid: Xid) -> Result<(), Fault> {
        match self.any.load(Relaxed) {
            false => Ok(()),
            true => self.look(client, xid),
        }
    }

    #[cold]
    fn look(&self, client: &SocketAddr, xid: Xid) -> Result<(), Fault> {
        let (clients, now) = (self.clients.lock(), Time::from_millis(now_ms()));
        if breakers::are_forgotten(&clients, now) {
            self.any.store(false, Relaxed);
        }
        breakers::check(&clients, client.ip(), xid, now)
    }
}
