// SPDX-License-Identifier: GPL-2.0

//! How many connections there may be: in all, of one client, and before they are accepted.
//!
//! A connection costs memory before anything is known of the client. At a bound the newest idle one
//! goes, never one with Calls in process: a client that floods shuts itself out, not others.

/// The bounds of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorway {
    /// Requests that wait for a thread.
    pub waiting: u32,
    /// Connections in all.
    pub connections: u32,
    /// Connections of one address.
    pub of_one: u32,
}

/// The number of connections when a request arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowd {
    /// Connections in all, half open ones included.
    pub connections: u32,
    /// Connections of the request's address.
    pub of_one: u32,
    /// There is an idle connection of this address.
    pub idle_of_one: bool,
    /// There is an idle connection of any address.
    pub idle: bool,
}

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Take it.
    Free,
    /// Accept it, and close the newest idle connection of its address.
    InPlaceOfOwn,
    /// Accept it, and close the newest idle connection of all.
    InPlaceOfAny,
    /// Reject it.
    Full,
}

impl Doorway {
    /// True if one more request may wait.
    #[inline]
    pub const fn queues(&self, waiting: u32) -> bool {
        waiting < self.waiting
    }

    /// Decides whether a request gets a connection.
    pub const fn enter(&self, crowd: &Crowd) -> Entry {
        let own_full = crowd.of_one >= self.of_one;
        let full = crowd.connections >= self.connections;
        match (own_full, full) {
            (false, false) => Entry::Free,
            // Closing an idle connection of its own address makes room under both bounds.
            _ if crowd.idle_of_one => Entry::InPlaceOfOwn,
            (false, true) if crowd.idle => Entry::InPlaceOfAny,
            _ => Entry::Full,
        }
    }
}
