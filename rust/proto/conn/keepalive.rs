// SPDX-License-Identifier: GPL-2.0

//! Keepalive: detection of a dead peer, without harm to a slow one.
//!
//! A reliable connection notices a dead host only when it sends something. The probe is a work
//! request that the peer's *adapter* acknowledges by itself, without a credit, a Receive or the
//! server's software (the driver uses an RDMA Write of zero bytes). So a server that is busy for
//! minutes answers every probe and keeps its connection. A host that is gone is found within twice
//! `busy_after` and `timeout`.
//!
//! Over iWARP the probe proves nothing: an RDMA Write has ended when TCP has it (RFC 5040, 5.5).
//! But it is data that TCP sends again and again, and so TCP finds the host gone, when it gives up.
//! With several rails silence is noticed sooner ([`Rails::watch`](crate::rail::Rails::watch)).

use crate::time::{
    Millis,
    Time, //
};

/// When to probe and when to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveConfig {
    /// Silence after which a probe goes out while a reply is outstanding.
    pub busy_after: Millis,
    /// Silence after which a probe goes out on an idle connection.
    pub idle_after: Millis,
    /// How long a probe may stay unanswered before the peer counts as dead.
    pub timeout: Millis,
}

impl Default for KeepaliveConfig {
    /// Five seconds when busy, thirty when idle, five for the answer.
    fn default() -> Self {
        Self {
            busy_after: Millis::from_secs(5),
            idle_after: Millis::from_secs(30),
            timeout: Millis::from_secs(5),
        }
    }
}

/// What the driver saw on the connection, read without a lock when a deadline has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When the peer was last known to be alive: a Receive, or a successful signalled completion.
    pub last_rx: Time,
    /// When the upper layer last used the connection: a Call, a Reply, a callback.
    pub used: Time,
    /// Whether a reply is outstanding.
    pub busy: bool,
}

/// What has to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing; look again at [`Keepalive::deadline`].
    Fine,
    /// Post one probe.
    Probe,
    /// The probe stayed unanswered: the peer is gone.
    Dead,
}

/// The keepalive state of one connection.
#[derive(Clone, Debug)]
pub struct Keepalive {
    config: KeepaliveConfig,
    last_rx: Time,
    /// When the driver last called [`Keepalive::check`].
    looked: Time,
    busy: bool,
    /// When the outstanding probe was sent, if one is.
    probing: Option<Time>,
}

impl Keepalive {
    /// The state of a connection that was established at `now`.
    pub const fn new(config: KeepaliveConfig, now: Time) -> Self {
        Self {
            config,
            last_rx: now,
            looked: now,
            busy: false,
            probing: None,
        }
    }

    /// When [`Keepalive::check`] must be called next.
    ///
    /// No event says that an idle connection becomes busy, so the check runs every `busy_after`.
    pub fn deadline(&self) -> Time {
        self.due().min(self.looked.after(self.config.busy_after))
    }

    /// Takes note of `activity` and decides what to do.
    pub fn check(&mut self, activity: Activity, now: Time) -> Verdict {
        self.busy = activity.busy;
        self.looked = now;
        self.received(activity.last_rx.min(now));
        if now < self.due() {
            return Verdict::Fine;
        }
        match self.probing {
            Some(_) => Verdict::Dead,
            None => self.probe(now),
        }
    }

    /// Asks for an early probe, because an RPC timer fired.
    ///
    /// Returns [`Verdict::Fine`] when one is already under way.
    pub fn probe(&mut self, now: Time) -> Verdict {
        if self.probing.is_some() {
            return Verdict::Fine;
        }
        self.probing = Some(now);
        Verdict::Probe
    }

    /// The probe completed successfully: the peer's host is alive.
    pub fn answered(&mut self, now: Time) {
        self.probing = None;
        self.last_rx = self.last_rx.max(now);
    }

    /// For how long a probe has stayed unanswered; nothing if none is under way.
    pub fn unanswered(&self, now: Time) -> Millis {
        let sent = self.probing.map(|sent| now.since(sent));
        sent.unwrap_or_default()
    }

    fn received(&mut self, last_rx: Time) {
        self.last_rx = self.last_rx.max(last_rx);
        // Anything received after the probe was posted is as good as its answer.
        if self.probing.is_some_and(|sent| last_rx > sent) {
            self.probing = None;
        }
    }

    /// When something has to be done, unless something is received before.
    fn due(&self) -> Time {
        match self.probing {
            Some(sent) => sent.after(self.config.timeout),
            None if self.busy => self.last_rx.after(self.config.busy_after),
            None => self.last_rx.after(self.config.idle_after),
        }
    }
}
