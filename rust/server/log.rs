// SPDX-License-Identifier: GPL-2.0

//! Limits on the number of log lines about the clients of a listener.

use crate::count;
use core::net::IpAddr;
use kernel::{
    new_spinlock,
    prelude::*,
    sync::SpinLock, //
};
use xprtrdma_proto::{
    served::lines::{
        Lines,
        OfClient,
        CLIENTS, //
    },
    time::Time, //
};
use xprtrdma_svc::util::now_ms;

/// The counts of recent log lines about the clients of a listener.
pub(crate) struct Log(Pin<KBox<SpinLock<State>>>);

struct State {
    all: Lines,
    clients: KVec<Option<OfClient>>,
}

impl Log {
    pub(crate) fn new() -> Result<Self> {
        let state = State {
            all: Lines::default(),
            clients: KVec::from_elem(None, CLIENTS, GFP_KERNEL)?,
        };
        let lock = new_spinlock!(state, "Log::state");
        Ok(Self(KBox::pin_init(lock, GFP_KERNEL)?))
    }

    /// Returns whether a line about this client may be written to the log now. If the line may not
    /// be written, counts the line as left out.
    pub(crate) fn may_write(&self, client: IpAddr) -> bool {
        let now = Time::from_millis(now_ms());
        let state = &mut *self.0.lock();
        let may = state.all.may_write(&mut state.clients, client, now);
        if !may {
            count::LINES.add();
        }
        may
    }
}
