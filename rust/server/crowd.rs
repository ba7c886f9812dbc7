// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener, starting with their connection requests, and the reasons why
//! connections end.

use crate::{
    breakers::Breakers,
    count,
    driver::Rdma,
    log::Log,
    sizes::DOORWAY,
    sweep::Sweeper, //
};
use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock,
        UniqueArc, //
    }, //
};
use xprtrdma_proto::served::{
    cause::Cause,
    door::{
        self,
        Entry,
        Other, //
    }, //
};
use xprtrdma_svc::inbox::Inbox;

/// The state that is needed to end a connection, and the cause of its end.
pub(crate) struct Ending {
    peer: IpAddr,
    /// Number of connections from this client address to this listener, including connections that
    /// wait to be accepted. Changed only with the lock of [`Crowd::all`] held.
    connections: Arc<AtomicU32>,
    /// Whether a message has arrived since the last tick (periodic check).
    heard: AtomicBool,
    /// Whether the connection was idle at the last tick. It was idle if it was not busy
    /// (`Progress::is_busy`) and no message had arrived since the tick before.
    is_idle: AtomicBool,
    has_ended: AtomicBool,
    /// Whether a thread has accepted the connection.
    is_accepted: AtomicBool,
    state: Pin<KBox<SpinLock<State>>>,
}

struct State {
    /// Why the connection ends; `None` until it ends. Only the first cause is kept and logged.
    cause: Option<Cause>,
    /// The inbox of the connection; `None` until the connection is accepted.
    inbox: Option<Inbox<Rdma>>,
}

impl Ending {
    fn new(peer: IpAddr) -> Result<UniqueArc<Self>> {
        let state = State {
            cause: None,
            inbox: None,
        };
        let ending = Self {
            peer,
            connections: Arc::new(AtomicU32::new(0), GFP_KERNEL)?,
            heard: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            is_accepted: AtomicBool::new(false),
            state: KBox::pin_init(new_spinlock!(state, "Ending::state"), GFP_KERNEL)?,
        };
        Ok(UniqueArc::new(ending, GFP_KERNEL)?)
    }

    /// Stores the inbox of an accepted connection. If the connection has already ended, closes the
    /// inbox immediately.
    pub(crate) fn accepted(&self, inbox: Inbox<Rdma>) {
        let mut state = self.state.lock();
        state.inbox = Some(inbox.clone());
        self.is_accepted.store(true, Relaxed);
        let has_ended = state.cause.is_some();
        drop(state);
        if has_ended {
            inbox.close();
        }
    }

    /// Ends the connection. Records `cause` if no cause was recorded before.
    pub(crate) fn end(&self, cause: Cause) {
        let mut state = self.state.lock();
        if state.cause.is_none() {
            state.cause = Some(cause);
            count::ended(cause);
        }
        let inbox = state.inbox.clone();
        drop(state);
        self.has_ended.store(true, Relaxed);
        if let Some(inbox) = inbox {
            inbox.close();
        }
    }

    /// Returns true if the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
    }

    /// Returns true if a thread has accepted the connection.
    pub(crate) fn is_accepted(&self) -> bool {
        self.is_accepted.load(Relaxed)
    }

    /// Returns why the connection has ended.
    pub(crate) fn cause(&self) -> Cause {
        self.state.lock().cause.unwrap_or(Cause::Stopped)
    }

    /// Records that a message has arrived.
    #[inline]
    pub(crate) fn heard(&self) {
        self.heard.store(true, Relaxed);
    }

    /// Records that a periodic check (tick) takes place. Returns whether a message arrived since
    /// the last tick. If no message arrived and the connection is not busy, marks it as idle.
    pub(crate) fn ticked(&self, is_busy: bool) -> bool {
        let heard = self.heard.swap(false, Relaxed);
        self.is_idle.store(!heard && !is_busy, Relaxed);
        heard
    }

    /// Returns true if the connection seems idle. This can be wrong, because a call may just be
    /// arriving. If the connection is closed nevertheless, the client sends the call again on its
    /// next connection.
    fn is_idle(&self) -> bool {
        self.is_idle.load(Relaxed) && !self.heard.load(Relaxed)
    }
}

/// The connections of a listener.
pub(crate) struct Crowd {
    /// The connections in the order of their requests. The vector does not grow beyond its
    /// capacity.
    all: Pin<KBox<SpinLock<KVec<Arc<Ending>>>>>,
    breakers: Breakers,
    log: Log,
    sweeper: Arc<Sweeper>,
}

/// The membership of a connection in the list of its listener's connections. Dropping this object
/// removes the connection from the list.
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    pub(crate) ending: Arc<Ending>,
}

impl Crowd {
    pub(crate) fn new(sweeper: Arc<Sweeper>) -> Result<Arc<Self>> {
        // The list has extra capacity, because connections that have ended may still be in the
        // list.
        let most = (DOORWAY.connections as usize).saturating_mul(2);
        let all = KVec::with_capacity(most, GFP_KERNEL)?;
        let lock = new_spinlock!(all, "Crowd::all");
        let crowd = Self {
            all: KBox::pin_init(lock, GFP_KERNEL)?,
            breakers: Breakers::new()?,
            log: Log::new()?,
            sweeper,
        };
        Ok(Arc::new(crowd, GFP_KERNEL)?)
    }

    /// Requests that connection requests that have ended are dropped soon.
    pub(crate) fn sweep(&self) {
        self.sweeper.sweep();
    }

    /// Returns whether a line about this client may be written to the log now.
    pub(crate) fn may_log(&self, peer: &SocketAddr) -> bool {
        self.log.may_write(peer.ip())
    }

    /// Adds the connection of a connection request. May end an idle connection to make space.
    /// Returns `None` if too many connections exist.
    pub(crate) fn enter(self: &Arc<Self>, peer: &SocketAddr) -> Option<Seat> {
        let peer = peer.ip();
        let mut ending = Ending::new(peer).ok()?;
        let mut all = self.all.lock();
        if let Some(other) = all.iter().find(|other| other.peer == peer) {
            ending.connections = other.connections.clone();
        }
        let ending: Arc<Ending> = Arc::from(ending);
        let own_connections = ending.connections.load(Relaxed);
        let describe = |other: &Ending| Other {
            is_own: other.peer == peer,
            is_accepted: other.is_accepted(),
            has_ended: other.has_ended(),
            is_idle: other.is_idle(),
            has_more: other.connections.load(Relaxed) > own_connections,
        };
        let mut found = door::Crowd::default();
        for other in all.iter() {
            found.add(&describe(other));
        }
        let entry = DOORWAY.enter(&found);
        if entry == Entry::Full {
            count::REJECTED.add();
            return None;
        }
        // The newest connection that may be ended is chosen.
        let may_leave = |other: &&Arc<Ending>| describe(other).may_leave(entry);
        let leaves = all.iter().rev().find(may_leave).cloned();
        let pushed = all.push_within_capacity(ending.clone());
        if pushed.is_ok() {
            ending.connections.fetch_add(1, Relaxed);
        }
        drop(all);
        // The list may be full because connections that have ended are not removed yet.
        pushed.inspect_err(|_| count::REJECTED.add()).ok()?;
        if let Some(other) = leaves {
            other.end(Cause::Crowded);
        }
        Some(Seat {
            crowd: self.clone(),
            ending,
        })
    }
}

impl Seat {
    /// Returns the connections of the listener.
    pub(crate) fn crowd(&self) -> &Crowd {
        &self.crowd
    }

    /// Returns the listener's record of Calls that broke connections.
    pub(crate) fn breakers(&self) -> &Breakers {
        &self.crowd.breakers
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut all = self.crowd.all.lock();
        let at = all
            .iter()
            .position(|other| Arc::ptr_eq(other, &self.ending));
        let left = at.and_then(|at| all.remove(at).ok());
        self.ending.connections.fetch_sub(1, Relaxed);
        drop(all);
        drop(left);
    }
}
