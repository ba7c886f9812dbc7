// SPDX-License-Identifier: GPL-2.0

//! Limits on the number of connections: in total, and from one client address. The connection
//! requests that wait to be accepted are limited as well.
//!
//! The limits are needed, because a connection costs memory before anything is known about the
//! client. If a limit on connections is reached, the server may close an idle connection in favour
//! of the new one:
//!
//! - It closes the newest idle connection from the client address of the request.
//! - If that address has no idle connection, and only the limit on all connections is reached, it
//!   may close an idle connection from another client address. That address must have more
//!   connections than the address of the request.
//!
//! So clients that flood the server with connections lose their own connections. The server never
//! closes a connection with Calls in progress.

/// The limits of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorway {
    /// Maximum number of connections in total.
    pub connections: u32,
    /// Maximum number of connections from one client address.
    pub of_one: u32,
    /// Maximum number of connection requests from one client address that wait for a thread.
    pub waiting_of_one: u32,
}

/// The connections and connection requests that exist when a new request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Connections in total, half-open connections included.
    pub connections: u32,
    /// Connections from the client address of the request.
    pub of_one: u32,
    /// Connection requests that wait for a thread, and that come from the same client address as
    /// the new request. A request that has ended counts until it is dropped.
    pub waiting_of_one: u32,
    /// Whether at least one connection from the client address of the request is idle.
    pub idle_of_one: bool,
    /// Whether another client address has an idle connection, and has more connections than the
    /// client address of the request.
    pub idle: bool,
}

/// A connection or a connection request that exists when a new request arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Other {
    /// Whether it comes from the same client address as the new request.
    pub is_own: bool,
    /// Whether a thread has accepted it.
    pub is_accepted: bool,
    /// Whether it has ended. A request ends if its client gives it up.
    pub has_ended: bool,
    /// Whether it is an idle connection.
    pub is_idle: bool,
    /// Whether its client address has more connections than the client address of the new request.
    pub has_more: bool,
}

impl Other {
    /// Returns whether the new connection may replace this one. `entry` is the decision about the
    /// new request.
    pub const fn may_leave(&self, entry: Entry) -> bool {
        let is_idle = self.is_idle && !self.has_ended;
        match entry {
            Entry::InPlaceOfOwn => is_idle && self.is_own,
            Entry::InPlaceOfAny => is_idle && self.has_more,
            Entry::Free | Entry::Full => false,
        }
    }
}

impl Crowd {
    /// Counts a connection or a connection request.
    pub fn add(&mut self, other: &Other) {
        // A request keeps its place in the queue until it is dropped, even if it has ended.
        let waits = other.is_own && !other.is_accepted;
        self.waiting_of_one = self.waiting_of_one.saturating_add(waits.into());
        if other.has_ended {
            return;
        }
        self.connections = self.connections.saturating_add(1);
        self.of_one = self.of_one.saturating_add(other.is_own.into());
        self.idle_of_one |= other.may_leave(Entry::InPlaceOfOwn);
        self.idle |= other.may_leave(Entry::InPlaceOfAny);
    }
}

/// The decision about a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The request is accepted.
    Free,
    /// The request is accepted, and the newest idle connection from the same client address is
    /// closed.
    InPlaceOfOwn,
    /// The request is accepted. Another client address, which has more connections than the client
    /// address of the request, loses its newest idle connection.
    InPlaceOfAny,
    /// The request is rejected.
    Full,
}

impl Doorway {
    /// Decides whether a request gets a connection.
    pub const fn enter(&self, crowd: &Crowd) -> Entry {
        if crowd.waiting_of_one >= self.waiting_of_one {
            return Entry::Full;
        }
        let own_full = crowd.of_one >= self.of_one;
        let full = crowd.connections >= self.connections;
        match (own_full, full) {
            (false, false) => Entry::Free,
            // An idle connection from the same address counts towards both limits. So after it is
            // closed, both limits allow a new connection.
            _ if crowd.idle_of_one => Entry::InPlaceOfOwn,
            (false, true) if crowd.idle => Entry::InPlaceOfAny,
            _ => Entry::Full,
        }
    }
}
