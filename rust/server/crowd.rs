// SPDX-License-Identifier: GPL-2.0

//! The connections of a listener, from their requests on, and how each of them ends.

use crate::{
    breakers::Breakers,
    count,
    driver::Rdma,
    memory::Account,
    sizes::DOORWAY, //
};
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
        Entry, //
    }, //
};
use xprtrdma_svc::inbox::Inbox;

/// What is needed to end a connection, and what is known of its end.
pub(crate) struct Ending {
    peer: IpAddr,
    /// The memory that all connections of the address hold.
    address: Arc<Account>,
    /// A message has arrived since the last tick.
    heard: AtomicBool,
    /// At the last tick nothing was under way, and nothing had come since the one before.
    is_idle: AtomicBool,
    has_ended: AtomicBool,
    state: Pin<KBox<SpinLock<State>>>,
}

struct State {
    /// Why the connection ends, once it does; the first cause is the one that the log tells.
    cause: Option<Cause>,
    /// The inbox of the connection, as soon as the connection is accepted.
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
            address: Account::new()?,
            heard: AtomicBool::new(false),
            is_idle: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            state: KBox::pin_init(new_spinlock!(state, "Ending::state"), GFP_KERNEL)?,
        };
        Ok(UniqueArc::new(ending, GFP_KERNEL)?)
    }

    /// Returns the memory that all connections of the address hold.
    pub(crate) fn address(&self) -> &Arc<Account> {
        &self.address
    }

    /// Connects it to an accepted connection. If that has ended before, it is closed now.
    pub(crate) fn accepted(&self, inbox: Inbox<Rdma>) {
        let mut state = self.state.lock();
        state.inbox = Some(inbox.clone());
        let has_ended = state.cause.is_some();
        drop(state);
        if has_ended {
            inbox.close();
        }
    }

    /// Closes the connection.
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

    /// Returns whether the connection has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Relaxed)
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

    /// Ends the time between two ticks: returns whether a message came, and notes whether the
    /// connection is idle, if nothing of it is under way.
    pub(crate) fn ticked(&self, under_way: bool) -> bool {
        let heard = self.heard.swap(false, Relaxed);
        self.is_idle.store(!heard && !under_way, Relaxed);
        heard
    }

    /// Returns whether the connection looks idle. If a call comes now, the client sends it again.
    fn is_idle(&self) -> bool {
        self.is_idle.load(Relaxed) && !self.heard.load(Relaxed)
    }

    fn counts(&self) -> bool {
        !self.has_ended()
    }
}

/// The connections of a listener.
pub(crate) struct Crowd {
    /// Connections in the order of their requests. The vector does not grow beyond its capacity.
    all: Pin<KBox<SpinLock<KVec<Arc<Ending>>>>>,
    breakers: Breakers,
}

/// The place of a connection in the crowd: it leaves when this is dropped.
pub(crate) struct Seat {
    crowd: Arc<Crowd>,
    pub(crate) ending: Arc<Ending>,
}

impl Crowd {
    pub(crate) fn new() -> Result<Arc<Self>> {
        // Connections that have ended may still have their places.
        let most = (DOORWAY.connections as usize).saturating_mul(2);
        let all = KVec::with_capacity(most, GFP_KERNEL)?;
        let lock = new_spinlock!(all, "Crowd::all");
        let crowd = Self {
            all: KBox::pin_init(lock, GFP_KERNEL)?,
            breakers: Breakers::new()?,
        };
        Ok(Arc::new(crowd, GFP_KERNEL)?)
    }

    /// Finds a place for a request, perhaps that of an idle connection. `None`: all are taken.
    pub(crate) fn enter(self: &Arc<Self>, peer: &SocketAddr) -> Option<Seat> {
        let peer = peer.ip();
        let mut ending = Ending::new(peer).ok()?;
        let mut all = self.all.lock();
        let mut found = door::Crowd {
            connections: 0,
            of_one: 0,
            idle_of_one: false,
            idle: false,
        };
        if let Some(other) = all.iter().find(|other| other.peer == peer) {
            ending.address = other.address.clone();
        }
        let ending = Arc::from(ending);
        for other in all.iter().filter(|other| other.counts()) {
            let (own, idle) = (other.peer == peer, other.is_idle());
            // NO-OVERFLOW: The length of a list in memory is below the maximum.
            found.connections = found.connections.wrapping_add(1);
            found.of_one = found.of_one.wrapping_add(own.into());
            found.idle |= idle;
            found.idle_of_one |= idle && own;
        }
        let entry = DOORWAY.enter(&found);
        if entry == Entry::Full {
            count::REJECTED.add();
            return None;
        }
        let leaves = match entry {
            Entry::InPlaceOfOwn | Entry::InPlaceOfAny => {
                let may = |other: &&Arc<Ending>| {
                    let own = other.peer == peer || entry == Entry::InPlaceOfAny;
                    other.counts() && other.is_idle() && own
                };
                // Takes the newest connection that may be ended.
                all.iter().rev().find(may).cloned()
            }
            Entry::Free | Entry::Full => None,
        };
        let pushed = all.push_within_capacity(ending.clone());
        drop(all);
        // The list may be full of connections that have ended and are not closed yet.
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
    /// Returns the calls that broke connections of the listener.
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
        drop(all);
        drop(left);
    }
}
