// SPDX-License-Identifier: GPL-2.0

//! A simulated driver that needs no kernel: it consists of a connection's state machine, a clock,
//! and the steps of a connection attempt.

use xprtrdma_proto::{
    conn::{
        Accepted,
        Action,
        Activity,
        CmEvent,
        Config,
        Conn,
        Epoch,
        Event,
        Phase, //
    },
    inbound::RemoteErrorKind,
    time::{
        Millis,
        Time, //
    },
    v2::negotiate::{
        ProbeAnswer,
        VersionPolicy, //
    },
};

/// An ordinary server's answer to the connection request.
pub const ACCEPT: CmEvent = CmEvent::Established(Accepted {
    peer_read_depth: Some(16),
});

/// A simulated driver: the connection's state machine, and the test clock.
pub struct Rig {
    /// The connection's state machine, which is under test.
    pub conn: Conn,
    /// The time of the test clock.
    pub now: Time,
    /// True if the callers of the transport give up after a failed connection attempt.
    pub trial: bool,
}

impl Rig {
    /// The phases that a connection attempt has in every configuration, in this order.
    pub const STAGES: [Phase; 4] = [
        Phase::Address,
        Phase::Route,
        Phase::QueuePair,
        Phase::Connecting,
    ];

    /// Creates a simulated driver with a new transport.
    pub fn new(config: Config) -> Self {
        Self {
            conn: Conn::new(config, 1),
            now: Time::from_millis(1_000_000),
            trial: true,
        }
    }

    /// Creates a simulated driver that prefers version 2.
    pub fn v2() -> Self {
        Self::new(Config {
            version: VersionPolicy::PreferV2,
            ..Config::default()
        })
    }

    /// Passes an event to the state machine. Removes all actions from the queue of the state
    /// machine, and returns them.
    pub fn event(&mut self, event: Event) -> Vec<Action> {
        self.conn.handle(event, self.now);
        self.drain()
    }

    /// Returns true if this connection is established.
    pub fn is_up(&self, epoch: Epoch) -> bool {
        epoch == self.conn.epoch() && self.conn.phase() == Phase::Up
    }

    /// Removes all actions from the queue of the state machine, and returns them.
    pub fn drain(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.conn.poll_action() {
            actions.push(action);
        }
        actions
    }

    /// Passes an event of the connection manager for the current epoch to the state machine.
    /// Returns all actions from the queue of the state machine.
    pub fn cm(&mut self, event: CmEvent) -> Vec<Action> {
        self.event(Event::Cm(self.epoch(), event))
    }

    /// Passes a tick to the state machine, and reports that the connection is healthy and in use.
    pub fn tick(&mut self) -> Vec<Action> {
        self.look(self.now, self.now, false)
    }

    /// Passes a tick to the state machine, with these observations of the driver.
    pub fn look(&mut self, last_rx: Time, used: Time, busy: bool) -> Vec<Action> {
        self.event(Event::Tick(Activity {
            last_rx,
            used,
            busy,
        }))
    }

    /// Advances the time.
    pub fn advance(&mut self, ms: u64) {
        self.now = self.now.after(Millis::new(ms));
    }

    /// Returns the current epoch, which identifies the current attempt or connection.
    pub fn epoch(&self) -> Epoch {
        self.conn.epoch()
    }

    /// Returns how long an attempt must wait if it is requested now.
    pub fn delay(&self) -> Millis {
        let mut conn = self.conn.clone();
        let event = Event::Start {
            timeout: None,
            trial: self.trial,
        };
        conn.handle(event, self.now);
        match (conn.phase(), conn.deadline()) {
            (Phase::Waiting, Some(start)) => start.since(self.now),
            _ => Millis::default(),
        }
    }

    /// Starts a connection attempt when the back-off has passed. Continues the attempt until it is
    /// in the phase `stage`.
    pub fn reach(&mut self, stage: Phase) {
        let delay = self.delay();
        self.now = self.now.after(delay);
        self.event(Event::Start {
            timeout: None,
            trial: self.trial,
        });
        while self.conn.phase() != stage {
            match self.conn.phase() {
                Phase::Address => self.cm(CmEvent::AddrResolved),
                Phase::Route => self.cm(CmEvent::RouteResolved),
                Phase::QueuePair => self.event(Event::QpCreated(self.epoch())),
                Phase::Connecting => self.cm(ACCEPT),
                _ => return,
            };
        }
    }

    /// Connects, and returns the limit that the state machine sets for the inline size, if there is
    /// such a limit.
    pub fn connect(&mut self) -> Option<u32> {
        self.reach(Phase::QueuePair);
        let actions = self.event(Event::QpCreated(self.epoch()));
        self.cm(ACCEPT);
        let refusal = RemoteErrorKind::Version { low: 1, high: 1 };
        self.event(Event::VersionAnswer(
            self.epoch(),
            ProbeAnswer::Error(refusal),
        ));
        assert!(self.is_up(self.epoch()));
        actions.iter().find_map(|action| match *action {
            Action::Connect { inline_cap, .. } => inline_cap,
            _ => None,
        })
    }

    /// Makes one attempt that finds no route.
    pub fn fail_once(&mut self) {
        self.reach(Phase::Route);
        self.cm(CmEvent::RouteError);
        self.event(Event::TornDown(self.epoch()));
        assert_eq!(self.conn.phase(), Phase::Down);
    }

    /// Returns the total time limit, in milliseconds, of an attempt that starts now.
    pub fn start_bound(&mut self) -> u64 {
        self.trial = false;
        self.reach(Phase::Connecting);
        let deadline = self.conn.deadline();
        deadline.map_or(0, |deadline| deadline.since(self.now).get())
    }
}
