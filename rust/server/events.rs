// SPDX-License-Identifier: GPL-2.0

//! How a connection ends.

use crate::{
    driver::Rdma,
    sizes::INLINE, //
};
use core::{
    net::SocketAddr,
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use xprtrdma_proto::served::{
    accept::{
        accept,
        Accepted,
        Own,
        Request, //
    },
    cause::Cause, //
};
use xprtrdma_rdma::cm::{
    listen::RequestInfo,
    CmEvent,
    CmHandler, //
};
use xprtrdma_svc::inbox::Inbox;

/// What happens to a connection from its request on.
pub(crate) struct Events {
    pub(crate) peer: SocketAddr,
    /// What was agreed on with the client.
    pub(crate) agreed: Accepted,
    /// The client has confirmed the connection.
    is_established: AtomicBool,
    state: Pin<KBox<SpinLock<State>>>,
}

struct State {
    /// Why the connection ends, once it does; the first cause is the one that the log tells.
    cause: Option<Cause>,
    /// Of an accepted connection.
    inbox: Option<Inbox<Rdma>>,
}

impl Events {
    /// Makes the events of a request, if it can be accepted.
    pub(crate) fn of_request(request: &RequestInfo<'_>) -> Option<Arc<Self>> {
        let own = Own {
            receive_size: INLINE,
            send_size: INLINE,
            invalidates: false,
            reads: READS,
        };
        let agreed = accept(
            &own,
            &Request {
                private_data: request.private_data,
                reads: request.reads,
            },
        )
        .ok()?;
        let state = State {
            cause: None,
            inbox: None,
        };
        let events = Self {
            peer: request.peer,
            agreed,
            is_established: AtomicBool::new(false),
            state: KBox::pin_init(new_spinlock!(state, "Events::state"), GFP_KERNEL).ok()?,
        };
        Arc::new(events, GFP_KERNEL).ok()
    }

    /// Connects the events to an accepted connection. If it has ended before, it is closed now.
    pub(crate) fn accepted(&self, inbox: Inbox<Rdma>) {
        let mut state = self.state.lock();
        state.inbox = Some(inbox.clone());
        let has_ended = state.cause.is_some();
        drop(state);
        if has_ended {
            inbox.close();
        }
    }

    /// Ends the connection.
    pub(crate) fn end(&self, cause: Cause) {
        let mut state = self.state.lock();
        state.cause.get_or_insert(cause);
        let inbox = state.inbox.clone();
        drop(state);
        if let Some(inbox) = inbox {
            inbox.close();
        }
    }

    /// Returns whether the client has confirmed the connection.
    pub(crate) fn is_established(&self) -> bool {
        self.is_established.load(Relaxed)
    }

    /// Returns why the connection has ended.
    pub(crate) fn cause(&self) -> Cause {
        self.state.lock().cause.unwrap_or(Cause::Stopped)
    }
}

/// RDMA Reads that a connection has under way at most.
const READS: u8 = 16;

impl CmHandler for Events {
    fn event(&self, event: CmEvent<'_>) {
        match event {
            CmEvent::Established { .. } => self.is_established.store(true, Relaxed),
            CmEvent::ConnectError(_) | CmEvent::Unreachable(_) | CmEvent::Rejected { .. } => {
                self.end(Cause::HalfOpen);
            }
            CmEvent::Disconnected | CmEvent::TimewaitExit => self.end(Cause::Left),
            CmEvent::AddrChange => self.end(Cause::Address),
            CmEvent::DeviceRemoval => self.end(Cause::Device),
            _ => {}
        }
    }
}
