// SPDX-License-Identifier: GPL-2.0

//! Limits on the number of log lines about one client address, and on the number of log lines about
//! all client addresses.
//!
//! Each connection of a client adds lines to the log. Without limits, a client could fill the log.
//! With only one limit for all clients, a client could use up the limit, and the lines about other
//! clients would be lost. So each address has its own limit: if a client exceeds it, only the lines
//! about this client are lost.

use crate::{
    responder::place::place_for,
    time::{
        Millis,
        Time, //
    }, //
};
use core::net::IpAddr;

/// Maximum number of client addresses for which lines are counted separately: the size of a
/// driver's table of [`OfClient`].
pub const CLIENTS: usize = 64;
/// The span of time for which the limits on log lines apply.
pub const SPAN: Millis = Millis::from_secs(5);
/// Maximum number of log lines about one client address in the span of time to which the limits
/// apply.
pub const OF_ONE: u32 = 20;
/// Maximum number of log lines about all clients in the span of time to which the limits apply.
pub const OF_ALL: u32 = 200;

/// A span of time, and the number of log lines that were written in this span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    begun: Time,
    lines: u32,
}

impl Window {
    /// Returns the time window to which a log line at the time `now` belongs: this window, or a new
    /// window if this window is over.
    fn at(self, now: Time) -> Self {
        match now.since(self.begun) >= SPAN || self.lines == 0 {
            true => Self {
                begun: now,
                lines: 0,
            },
            false => self,
        }
    }

    /// Counts one more log line in this window. Returns the new window, or `None` if this window
    /// already has `most` lines.
    fn with_line(self, most: u32) -> Option<Self> {
        let lines = self.lines.saturating_add(1);
        (lines <= most).then_some(Self { lines, ..self })
    }
}

/// A client address, and the number of log lines about this address. The driver keeps the addresses
/// in a slice of `Option<OfClient>`, which it passes to [`Lines::may_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfClient {
    client: IpAddr,
    window: Window,
}

/// Counts the log lines about all clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    all: Window,
}

impl Lines {
    /// Returns whether a line about this client may be written now. If it may be written, counts
    /// the line. A line that is not written does not count towards any limit.
    pub fn may_write(
        &mut self,
        clients: &mut [Option<OfClient>],
        client: IpAddr,
        now: Time,
    ) -> bool {
        let Some(all) = self.all.at(now).with_line(OF_ALL) else {
            return false;
        };
        let is_own = |one: &OfClient| one.client == client;
        let place = place_for(clients, is_own, |one| one.window.begun);
        let Some(place) = place else { return false };
        let window = match place {
            Some(one) if one.client == client => one.window,
            _ => Window::default(),
        };
        let Some(window) = window.at(now).with_line(OF_ONE) else {
            return false;
        };
        *place = Some(OfClient { client, window });
        self.all = all;
        true
    }
}
