// SPDX-License-Identifier: GPL-2.0

//! Keepalive: detection of a dead peer, without harm to a slow one.
//!
//! A reliable connection notices a dead host only when data is sent. So the driver sends a probe,
//! an RDMA Write of zero bytes. The peer's *adapter* acknowledges the probe by itself: the probe
//! needs no credit, no Receive and no software of the server. So a server that is busy for minutes
//! answers every probe and keeps its connection. If calls wait for replies, a dead host is found
//! within twice `busy_after` plus `timeout`.
//!
//! Over iWARP the completion of a probe proves nothing: an RDMA Write completes when TCP has
//! accepted the data (RFC 5040, 5.5). So over iWARP a dead host is found later, when the
//! retransmissions of TCP time out. With several rails silence is noticed sooner
//! ([`Rails::watch`](crate::rail::Rails::watch)).
//!
//! If this host was suspended or stalled, it checks late. The probe is then long overdue, although
//! its answer may have arrived. So the probe gets its full time limit once more.
//!
//! A Responder need not accept RDMA Writes from a Requester: in the model of RFC 8166, section 3.1,
//! a Requester initiates none. If a Responder refuses a probe, it gets no further probes
//! ([`Peer`](super::peer::Peer)). RPC timers then detect a silent server
//! ([`unserved`](super::unserved)), and a dead host is detected when data is sent.

use crate::time::{
    Millis,
    Time, //
};

/// When to probe the peer, and when to end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveConfig {
    /// How long the peer must be silent before a probe is sent, if a reply is outstanding.
    pub busy_after: Millis,
    /// How long the peer must be silent before a probe is sent, if the connection is idle.
    pub idle_after: Millis,
    /// How long a probe may stay unanswered before the peer counts as dead.
    pub timeout: Millis,
}

impl Default for KeepaliveConfig {
    /// The driver probes after five seconds of silence if a reply is outstanding, and after thirty
    /// seconds if not. The answer may take ten seconds.
    fn default() -> Self {
        Self {
            busy_after: Millis::from_secs(5),
            idle_after: Millis::from_secs(30),
            timeout: Millis::from_secs(10),
        }
    }
}

/// What the driver has observed on a connection. The driver reads these values without a lock, each
/// time that a deadline has passed ([`Keepalive::deadline`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// When the peer was last known to be alive: the time of the last Receive, or of the last
    /// successful signalled completion.
    pub last_rx: Time,
    /// When the upper layer last used the connection for a Call, a Reply or a callback.
    pub used: Time,
    /// Whether a reply is outstanding.
    pub busy: bool,
}

/// The action that the keepalive requests now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No action is needed; check again at [`Keepalive::deadline`].
    Fine,
    /// The driver must post one probe.
    Probe,
    /// The probe stayed unanswered: the peer is gone.
    Dead,
}

/// How long a probe may stay unanswered after a sign that the peer may be out of reach. The cause
/// of the sign may be a short disturbance: a neighbour entry changed for some milliseconds, for
/// example. If the probe is lost in the disturbance, the device retransmits it after its ACK
/// timeout, which is about half a second on RoCE. The limit leaves time for two retransmissions.
pub const SUSPICION: Millis = Millis::new(1500);

/// A probe that has been sent and not answered.
#[derive(Clone, Copy, Debug)]
struct Probe {
    sent: Time,
    /// How long the probe may stay unanswered, counted from `since`.
    limit: Millis,
    since: Time,
    /// Whether a sign was seen that the peer may be out of reach.
    suspicious: bool,
    /// Whether there was a sign of trouble after the probe was sent. If so, the answer to the probe
    /// proves nothing: it may have been sent before the trouble began.
    doubted: bool,
    /// Whether the probe received more time, because this host checked the connection late.
    excused: bool,
}

impl Probe {
    const fn due(&self) -> Time {
        self.since.after(self.limit)
    }
}

/// The keepalive state of one connection.
#[derive(Clone, Debug)]
pub struct Keepalive {
    config: KeepaliveConfig,
    last_rx: Time,
    /// Time at which the driver last called [`Keepalive::check`].
    looked: Time,
    busy: bool,
    probe: Option<Probe>,
    /// Whether the last answer to a probe may have been sent before there was a sign that the peer
    /// is out of reach. Such an answer proves nothing, so a new probe is due.
    doubtful: bool,
}

impl Keepalive {
    /// Returns the state of a connection that was established at `now`.
    pub const fn new(config: KeepaliveConfig, now: Time) -> Self {
        Self {
            config,
            last_rx: now,
            looked: now,
            busy: false,
            probe: None,
            doubtful: false,
        }
    }

    /// Returns the time at which [`Keepalive::check`] must be called next.
    ///
    /// No event reports that an idle connection has become busy. So the check runs at least once in
    /// every `busy_after`.
    pub fn deadline(&self) -> Time {
        self.due().min(self.looked.after(self.config.busy_after))
    }

    /// Records `activity`, and decides what to do.
    pub fn check(&mut self, activity: Activity, now: Time) -> Verdict {
        self.busy = activity.busy;
        self.looked = now;
        self.received(activity.last_rx.min(now));
        if now < self.due() {
            return Verdict::Fine;
        }
        if core::mem::take(&mut self.doubtful) {
            return self.suspect(now);
        }
        let Some(probe) = &mut self.probe else {
            return self.probe(now);
        };
        // If this host stalled, an answer may have arrived that the driver has not processed yet.
        let late = now.since(probe.due()) >= probe.limit;
        if late && !probe.excused {
            probe.excused = true;
            probe.since = now;
            return Verdict::Fine;
        }
        Verdict::Dead
    }

    /// Asks for an early probe, because an RPC timer fired.
    ///
    /// Returns [`Verdict::Fine`] if a probe is already in flight.
    pub fn probe(&mut self, now: Time) -> Verdict {
        if self.probe.is_some() {
            return Verdict::Fine;
        }
        self.probe = Some(Probe {
            sent: now,
            limit: self.config.timeout,
            since: now,
            suspicious: false,
            doubted: false,
            excused: false,
        });
        Verdict::Probe
    }

    /// Asks for an immediate probe with a short time limit, because there was a sign that the peer
    /// may be out of reach.
    ///
    /// If a probe is already in flight, returns [`Verdict::Fine`] and shortens the time limit of
    /// that probe. Its answer may be older than the sign. So [`Keepalive::check`] asks for a second
    /// probe after this answer.
    pub fn suspect(&mut self, now: Time) -> Verdict {
        let verdict = self.probe(now);
        if let Some(probe) = &mut self.probe {
            probe.doubted = verdict == Verdict::Fine;
            if now.after(SUSPICION) < probe.due() {
                probe.since = now;
                probe.limit = SUSPICION;
                probe.suspicious = true;
            }
        }
        verdict
    }

    /// Records that the probe completed successfully: the peer's host is alive.
    pub fn answered(&mut self, now: Time) {
        let probe = self.probe.take();
        self.doubtful = probe.is_some_and(|probe| probe.doubted);
        self.last_rx = self.last_rx.max(now);
    }

    /// Records that the probe was not sent, because the send queue is full. The queued work
    /// requests replace the probe: the completion of one of them proves that the peer is alive. So
    /// the usual time limit applies, even if the probe had a short one, and any received message
    /// counts as an answer.
    pub fn not_sent(&mut self) {
        if let Some(probe) = &mut self.probe {
            probe.limit = self.config.timeout;
            probe.suspicious = false;
        }
    }

    /// Returns whether a probe is in flight.
    pub const fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Returns whether the probe in flight has a short time limit because there was a sign that the
    /// peer may be out of reach. Returns false if no probe is in flight.
    pub fn is_suspicious(&self) -> bool {
        self.probe.is_some_and(|probe| probe.suspicious)
    }

    /// Returns how long the probe in flight has been unanswered; zero if no probe is in flight.
    pub fn unanswered(&self, now: Time) -> Millis {
        let unanswered = self.probe.map(|probe| now.since(probe.sent));
        unanswered.unwrap_or_default()
    }

    fn received(&mut self, last_rx: Time) {
        self.last_rx = self.last_rx.max(last_rx);
        // A message that was received after the probe was posted counts as an answer, unless there
        // is a sign that this host's packets do not reach the peer.
        let answers = |probe: Probe| last_rx > probe.sent && !probe.suspicious;
        if self.probe.is_some_and(answers) {
            self.probe = None;
        }
    }

    /// Returns when the keepalive must act, unless a message is received before that time.
    fn due(&self) -> Time {
        match self.probe {
            Some(probe) => probe.due(),
            None if self.doubtful => self.looked,
            None if self.busy => self.last_rx.after(self.config.busy_after),
            None => self.last_rx.after(self.config.idle_after),
        }
    }
}
