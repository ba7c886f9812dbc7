// SPDX-License-Identifier: GPL-2.0

//! Fuzzes a transport that may use version 2. The peer sends arbitrary messages on several
//! connections, one after the other.
//!
//! A small driver handles each message as the module does. While the version probe is in flight, a
//! message goes to the version negotiation. Otherwise the message goes to the call with its xid.
//! After each message the target checks that the driver's decisions follow from the 32-bit words of
//! the message.

use super::source::Source;
use xprtrdma_proto::{
    classify,
    conn::{
        Accepted,
        Action,
        Activity,
        Cause,
        CmEvent,
        Config,
        Conn,
        Epoch,
        Event,
        Phase, //
    },
    credit::ForwardCredits,
    header::{
        RefusalKind,
        ReverseReplyHeader,
        ERROR_LEN, //
    },
    inbound::{
        RemoteErrorKind,
        Reply, //
    },
    judge::{
        judge,
        Accept, //
    },
    limit::{
        DiscardLimit,
        Reaction,
        Strikes,
        CALL_STRIKES,
        DEFAULT_DISCARD_LIMIT, //
    },
    predict::{
        call_xid,
        predicted,
        Expected, //
    },
    probing::{
        arrived,
        Arrival, //
    },
    threshold::MIN_THRESHOLD,
    time::{
        Millis,
        Time, //
    },
    v2::{
        negotiate::{
            Known,
            ProbeAnswer,
            VersionPolicy,
            DOUBT, //
        },
        probe,
        refusals::{
            Refusals,
            MAX_REFUSALS, //
        }, //
    },
    Counter,
    Credits,
    Handle,
    Inbound,
    Offer,
    Refusal,
    Segment,
    Verdict,
    Version,
    Xid, //
};

const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;
const OPTIONAL: u32 = 5;
const CALL: u32 = 0;
const REPLY: u32 = 1;
const BAD_HEADER: u32 = 2;
const INVAL_OPTION: u32 = 3;

/// The xid of every version probe.
const PROBE: u32 = 0x7072_6f62;
/// The xid of the first call.
const FIRST: u32 = 0x0101_0000;

const WRITE: [Segment; 1] = [segment(0x0204, 8192)];
const WHOLE: [Segment; 1] = [segment(0x0306, 32768)];

/// The longest RPC message without the data in the Write chunk.
const NON_DATA: u32 = 200;

const fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle: Handle(handle),
        length,
        offset: (handle as u64) << 32,
    }
}

/// The chunks that a call offers.
#[derive(Clone, Copy)]
enum Shape {
    Inline,
    Write,
    Reply,
}

impl Shape {
    const fn expected(self) -> Expected<'static> {
        match self {
            Self::Inline => Expected::Inline,
            Self::Write => Expected::Write(&WRITE[0], NON_DATA),
            Self::Reply => Expected::Reply(&WHOLE[0]),
        }
    }
}

/// A call that waits for its reply.
struct Waiting {
    xid: u32,
    shape: Shape,
    strikes: Strikes,
    bad_replies: u8,
}

/// The driver's state of a connection.
struct Link {
    epoch: Epoch,
    /// Whether the connection is established, so that messages can arrive.
    connected: bool,
    probing: bool,
    /// The answer to the version probe, once it has arrived.
    answer: Option<ProbeAnswer>,
    version: Option<Version>,
    credits: ForwardCredits,
    refusals: Refusals,
    /// Number of refusals whose Send has not completed.
    under_way: u32,
    discards: DiscardLimit,
    /// Number of dropped messages, and of malformed messages that were refused.
    dropped: u32,
    calls: Vec<Waiting>,
}

struct Side {
    conn: Conn,
    policy: VersionPolicy,
    slots: u32,
    backchannel: bool,
    now: Time,
    link: Option<Link>,
    /// Whether the peer has said that it does not support version 2.
    lacking: bool,
    /// Time at which the peer last gave a reason to doubt that it supports version 2.
    doubted: Option<Time>,
    /// What the transports to the server have told each other.
    shared: Known,
    /// The calls that wait for a connection or for a credit.
    unsent: Vec<Waiting>,
    next: u32,
}

/// The effects that a received message had.
#[derive(Default)]
struct Effects {
    completed: Vec<u32>,
    /// Whether the message was dropped. A message that was refused as malformed counts as dropped.
    dropped: bool,
    /// Whether a call failed because of its bad replies.
    given_up: bool,
    granted: Option<u32>,
    refused: Option<Refusal>,
    answered: Option<ProbeAnswer>,
    lost: Option<Cause>,
}

pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let choice = source.u8();
    let policy = match choice & 7 {
        0 => VersionPolicy::V1Only,
        1 => VersionPolicy::V2Only,
        _ => VersionPolicy::PreferV2,
    };
    let config = Config {
        version: policy,
        ..Config::default()
    };
    let mut side = Side {
        conn: Conn::new(config, u64::from(choice)),
        policy,
        slots: 1 + u32::from(choice >> 4),
        backchannel: choice & 8 != 0,
        now: Time::from_millis(1_000_000),
        link: None,
        lacking: false,
        doubted: None,
        shared: Known::Nothing,
        unsent: Vec::new(),
        next: FIRST,
    };
    while !source.is_empty() {
        side.step(&mut source);
    }
}

impl Side {
    fn step(&mut self, source: &mut Source<'_>) {
        match source.below(10) {
            0 | 1 => self.advance(),
            2 => self.call(source),
            3 => self.other_event(source),
            _ if self.link.as_ref().is_some_and(|link| link.connected) => {
                let message = self.message(source);
                self.received(&message);
            }
            _ => self.advance(),
        }
    }

    /// Passes an event to the connection's state machine, and performs the actions that follow.
    fn event(&mut self, event: Event) {
        let before = (self.conn.phase(), self.conn.version_known());
        self.conn.handle(event, self.now);
        if self.conn.version_known() != before.1 {
            // What is known about the peer's support for version 2 changes only in two cases:
            // during a negotiation, and if the peer refuses the agreed version.
            let broken = matches!(event, Event::Lost(_, Cause::VersionRefused));
            assert!(before.0 == Phase::Negotiating || broken);
            if broken {
                self.doubted = Some(self.now);
            }
        }
        while let Some(action) = self.conn.poll_action() {
            self.perform(action);
        }
    }

    /// Passes to the state machine the event for which its current phase waits.
    fn advance(&mut self) {
        let epoch = self.conn.epoch();
        match self.conn.phase() {
            Phase::Address => self.event(Event::Cm(epoch, CmEvent::AddrResolved)),
            Phase::Route => self.event(Event::Cm(epoch, CmEvent::RouteResolved)),
            Phase::QueuePair => self.event(Event::QpCreated(epoch)),
            Phase::Connecting => {
                if let Some(link) = &mut self.link {
                    link.connected = true;
                }
                self.event(Event::Cm(
                    epoch,
                    CmEvent::Established(Accepted {
                        peer_read_depth: None,
                    }),
                ));
            }
            Phase::Waiting => self.pass_to_deadline(),
            Phase::Closing => self.event(Event::TornDown(epoch)),
            Phase::Down | Phase::Stopped => {
                self.learn_version();
                self.event(Event::Start {
                    timeout: None,
                    trial: false,
                });
            }
            // The Send of a refusal completes.
            Phase::Negotiating | Phase::Up => {
                if let Some(link) = &mut self.link {
                    if link.under_way > 0 {
                        link.under_way -= 1;
                        link.refusals.end();
                    }
                }
            }
        }
    }

    fn pass_to_deadline(&mut self) {
        self.now = self.conn.deadline().unwrap_or(self.now).max(self.now);
        let tick = Event::Tick(Activity {
            last_rx: self.now,
            used: self.now,
            busy: true,
        });
        // A late tick extends an attempt at most once. A copy of the state machine shows whether
        // this tick ends the attempt.
        let mut after = self.conn.clone();
        after.handle(tick, self.now);
        if after.phase() != self.conn.phase() {
            self.doubt_silence();
        }
        self.event(tick);
    }

    fn other_event(&mut self, source: &mut Source<'_>) {
        let epoch = self.conn.epoch();
        match source.below(9) {
            0 => self.pass_to_deadline(),
            1 => self.now = self.now.after(Millis::from_secs(u64::from(source.u8()))),
            2 => self.now = self.now.after(DOUBT),
            3 => {
                self.doubt_silence();
                self.event(Event::Cm(epoch, CmEvent::Disconnected));
            }
            4 => self.event(Event::Cm(epoch, CmEvent::DeviceRemoval)),
            5 => self.event(Event::Close(Cause::Forced)),
            6 => {
                if let Some(link) = &mut self.link {
                    link.discards.tick(self.now);
                    // The tick may lower the module's count of dropped messages. So the test starts
                    // its own count at zero again.
                    link.dropped = 0;
                }
            }
            7 => {
                let known = match source.below(3) {
                    0 => Known::Nothing,
                    1 => Known::Lacking,
                    _ => Known::Doubtful(self.now),
                };
                self.shared = self.shared.together(known);
                self.learn_version();
            }
            _ => self.event(Event::Replied(epoch)),
        }
    }

    /// Passes to the state machine what all transports together know about whether the server
    /// supports version 2. The state machine accepts this knowledge only while it has neither an
    /// attempt nor a connection.
    fn learn_version(&mut self) {
        let before = self.conn.version_known();
        self.conn.learn_version(self.shared);
        if matches!(self.conn.phase(), Phase::Down | Phase::Waiting) {
            assert_eq!(self.conn.version_known(), self.shared);
            self.lacking |= self.shared == Known::Lacking;
            if let Known::Doubtful(since) = self.shared {
                self.doubted = self.doubted.max(Some(since));
            }
        } else {
            assert_eq!(self.conn.version_known(), before);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::ResolveAddr { epoch, .. } => {
                assert!(self.link.is_none());
                self.link = Some(Link {
                    epoch,
                    connected: false,
                    probing: false,
                    answer: None,
                    version: None,
                    credits: ForwardCredits::new(self.slots),
                    refusals: Refusals::default(),
                    under_way: 0,
                    discards: DiscardLimit::new(DEFAULT_DISCARD_LIMIT, self.now),
                    dropped: 0,
                    calls: Vec::new(),
                });
            }
            Action::SendVersionProbe { epoch } => self.probe(epoch),
            Action::Established { epoch, version, .. } => {
                self.established(epoch, version);
                self.tell_others();
            }
            Action::Fail { .. } => self.tell_others(),
            Action::TearDown { epoch } | Action::Disconnect { epoch, .. } => {
                let link = self.link.take().expect("a connection");
                assert_eq!(link.epoch, epoch);
                self.unsent.extend(link.calls);
                self.tell_others();
            }
            Action::ResolveRoute { .. }
            | Action::CreateQp { .. }
            | Action::Connect { .. }
            | Action::Keepalive { .. } => {}
        }
    }

    /// Tells the other transports what this transport knows about whether the server supports
    /// version 2. Called at the end of an attempt or of a connection.
    fn tell_others(&mut self) {
        self.shared = self.shared.together(self.conn.version_known());
    }

    /// Sends the version probe. At most one version probe is sent on a connection, and none to a
    /// server that is known not to support version 2.
    fn probe(&mut self, epoch: Epoch) {
        let Some(link) = &mut self.link else {
            panic!("a probe without a connection");
        };
        assert_eq!(link.epoch, epoch);
        assert!(!link.probing && link.answer.is_none() && link.version.is_none());
        assert_ne!(self.policy, VersionPolicy::V1Only);
        if self.policy == VersionPolicy::PreferV2 {
            assert!(!self.lacking);
            assert!(self
                .doubted
                .is_none_or(|since| self.now.since(since) >= DOUBT));
        }
        link.probing = true;
        let mut call = [0; probe::LEN];
        let encoded = probe::encode(Xid(PROBE), link.credits.request(), &mut call);
        assert_eq!(encoded, Ok(call.len()));
        assert!(call.len() as u32 <= MIN_THRESHOLD);
        // The peer must recognize the probe as a Call with the xid of the probe.
        assert!(matches!(
            classify(&call, Version::V2, true),
            Inbound::ReverseCall(call) if call.xid == Xid(PROBE)
        ));
    }

    /// Handles the establishment of a connection. The answer to the probe must have determined the
    /// version.
    fn established(&mut self, epoch: Epoch, version: Version) {
        let Some(link) = &mut self.link else {
            panic!("established without a connection");
        };
        assert_eq!((link.epoch, link.version), (epoch, None));
        let expected = match (link.probing, link.answer) {
            (false, None) => Version::V1,
            (true, Some(ProbeAnswer::Reply)) => Version::V2,
            (true, Some(ProbeAnswer::Error(RemoteErrorKind::Version { low, high }))) => {
                assert!(low <= 1 && high >= 1);
                Version::V1
            }
            (probed, answer) => panic!("established after {probed} {answer:?}"),
        };
        assert_eq!(version, expected);
        assert!(self.policy != VersionPolicy::V1Only || version == Version::V1);
        assert!(self.policy != VersionPolicy::V2Only || version == Version::V2);
        // Only the reply to a version 2 probe contains a grant.
        assert!(version == Version::V2 || link.credits.granted() == 1);
        link.version = Some(version);
        self.send();
    }

    /// Sends as many calls as the credits allow.
    fn send(&mut self) {
        if let Some(link) = &mut self.link {
            while link.version.is_some() && (link.calls.len() as u64) < link.credits.cwnd() >> 8 {
                let Some(call) = self.unsent.pop() else {
                    return;
                };
                link.calls.push(call);
            }
        }
    }

    /// Makes a new call and adds it to the calls that wait.
    fn call(&mut self, source: &mut Source<'_>) {
        let shape = match source.below(3) {
            0 => Shape::Inline,
            1 => Shape::Write,
            _ => Shape::Reply,
        };
        if self.unsent.len() < 4 {
            self.unsent.push(Waiting {
                xid: self.next,
                shape,
                strikes: Strikes::default(),
                bad_replies: 0,
            });
            self.next += 1;
        }
        self.send();
    }

    /// Generates a message of a known form with a few changes, or arbitrary bytes.
    fn message(&self, source: &mut Source<'_>) -> Vec<u8> {
        let (form, which) = (source.below(10), source.u8());
        let link = self.link.as_ref().expect("a connection");
        let waiting = link.calls.get(usize::from(which) % link.calls.len().max(1));
        let own = waiting.map_or(if link.probing { PROBE } else { FIRST }, |call| call.xid);
        let version = self.spoken(link).number();
        let credit = u32::from(which >> 3);
        let mut words = match form {
            0 => Vec::new(),
            1..=3 => honest(own, version, credit, waiting, source.u16()),
            4 => vec![
                own,
                version,
                credit,
                ERROR,
                1,
                source.u8().into(),
                which.into(),
            ],
            5 => vec![
                own,
                version,
                credit,
                ERROR,
                BAD_HEADER + u32::from(which & 1),
            ],
            6 => vec![
                own,
                version,
                credit,
                OPTIONAL,
                u32::from(which & 1),
                77,
                4,
                0,
            ],
            // Builds a Call of the server, with an xid that the server chose or with the xid of a
            // client's call.
            7 => {
                let xid = if which & 1 == 0 { own } else { 5 };
                let mut words = vec![xid, version, credit, MSG];
                words.extend((version == 2).then_some(CALL));
                words.extend([0, 0, 0, xid, CALL, 2, 0x4000_0000, 1, 0, 0, 0, 0, 0]);
                words
            }
            8 => vec![own, version, credit, MSG, u32::from(which & 1), 0, 0, 0],
            // A correct message in which one of the first words is changed.
            _ => {
                let mut words = honest(own, version, credit, waiting, source.u16());
                words[1 + usize::from(which & 3)] = u32::from(which >> 5);
                words
            }
        };
        for _ in 0..source.below(4) {
            let (at, len) = (usize::from(source.u8()), words.len());
            match source.below(5) {
                0 => words.truncate(at % len.max(1)),
                1 => words.insert(at % (len + 1), source.length()),
                n => {
                    if let Some(word) = words.get_mut(at % len.max(1)) {
                        *word = match n {
                            2 => source.u8().into(),
                            3 => source.u32(),
                            _ => word.wrapping_add(1),
                        };
                    }
                }
            }
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        for _ in 0..source.below(if form == 0 { 128 } else { 4 }) {
            bytes.push(source.u8());
        }
        bytes
    }

    /// Returns the protocol version that is used to classify a message.
    fn spoken(&self, link: &Link) -> Version {
        match (link.version, link.probing) {
            (Some(version), _) => version,
            (None, true) => Version::V2,
            (None, false) => Version::V1,
        }
    }

    /// Records that the peer closed the connection, or was silent until the time limit. During the
    /// version negotiation, this is a reason to doubt that the peer supports version 2.
    fn doubt_silence(&mut self) {
        if self.conn.phase() == Phase::Negotiating {
            self.doubted = Some(self.now);
        }
    }

    fn learn(&mut self, answer: ProbeAnswer) {
        match answer {
            ProbeAnswer::Reply => {
                self.lacking = false;
                self.doubted = None;
            }
            ProbeAnswer::Error(RemoteErrorKind::Version { low, high }) => {
                let offers = |version| low <= version && version <= high;
                match (offers(1), offers(2)) {
                    (_, true) => self.doubted = Some(self.now),
                    (true, false) => self.lacking = true,
                    // If the peer supports neither version, nothing is recorded about the peer.
                    (false, false) => self.doubted = None,
                }
            }
            ProbeAnswer::Error(_) => self.doubted = Some(self.now),
        }
    }

    /// Routes a message as the driver does, and checks the effect.
    fn received(&mut self, message: &[u8]) {
        let mut link = self.link.take().expect("a connection");
        let version = self.spoken(&link);
        let probing = link.probing && link.version.is_none();
        let before: Vec<u32> = link.calls.iter().map(|call| call.xid).collect();
        let window = link.credits.granted();
        let effects = if probing {
            while_probing(&mut link, message)
        } else {
            sorted(&mut link, message, version, self.backchannel)
        };
        let words = Words(message);
        check_effects(&effects, &words, version, probing);
        if effects.granted.is_none() {
            assert_eq!(link.credits.granted(), window);
        }
        assert!((1..=self.slots).contains(&link.credits.granted()));
        assert!(link.under_way <= MAX_REFUSALS);
        // If too many messages were dropped, the connection ends. There is one exception: the
        // connection may stay if the last message was a bad reply that made its call fail.
        let one_too_many = effects.dropped && link.dropped >= DEFAULT_DISCARD_LIMIT;
        assert!(!one_too_many || effects.lost.is_some() || effects.given_up);
        let left: Vec<u32> = link.calls.iter().map(|call| call.xid).collect();
        assert_eq!(left.len() + effects.completed.len(), before.len());
        let epoch = link.epoch;
        self.link = Some(link);
        if let Some(answer) = effects.answered {
            self.learn(answer);
            self.event(Event::VersionAnswer(epoch, answer));
            assert_ne!(self.conn.phase(), Phase::Negotiating);
        } else if probing && effects.lost.is_none() {
            assert_eq!(self.conn.phase(), Phase::Negotiating);
        }
        if let Some(cause) = effects.lost {
            self.event(Event::Lost(epoch, cause));
            assert!(self.link.is_none());
        }
        self.send();
    }
}

/// Checks a message that arrives before the version is agreed on.
fn while_probing(link: &mut Link, message: &[u8]) -> Effects {
    let mut effects = Effects::default();
    let answer = match arrived(message, Xid(PROBE), false) {
        Arrival::Answer(answer, grant) => {
            if let Some(grant) = grant {
                link.grant(grant, &mut effects);
            }
            answer
        }
        Arrival::Refuse(refusal) => {
            link.refuse(refusal, &mut effects);
            return effects;
        }
        Arrival::Drop(_) => {
            link.discard(None, &mut effects);
            return effects;
        }
    };
    link.answer = Some(answer);
    effects.answered = Some(answer);
    effects
}

/// Checks a message that arrives after the version is agreed on.
fn sorted(link: &mut Link, message: &[u8], version: Version, backchannel: bool) -> Effects {
    let mut effects = Effects::default();
    let xid = call_xid(message, version);
    let found = xid.and_then(|xid| link.calls.iter().position(|call| call.xid == xid.0));
    let foreseen =
        found.and_then(|at| predicted(message, version, link.calls[at].shape.expected()));
    let inbound = match classify(message, version, backchannel) {
        Inbound::Ambiguous(ambiguous) => {
            assert_eq!(version, Version::V1);
            ambiguous.resolve(found.is_some())
        }
        inbound => inbound,
    };
    assert!(foreseen.is_none() || matches!(inbound, Inbound::Reply(_)));
    match inbound {
        Inbound::Reply(reply) => link.reply(&reply, found, foreseen, &mut effects),
        Inbound::Error(error) => match (error.kind, version, found) {
            // The peer refuses the version of the call. The refusal counts as a bad reply to the
            // call, and ends the connection.
            (RemoteErrorKind::Version { .. }, Version::V2, Some(at)) => {
                link.discard(Some(at), &mut effects);
                effects.lost = effects.lost.map(|_| Cause::VersionRefused);
            }
            (_, _, Some(at)) => link.complete(at, &mut effects),
            (_, _, None) => link.discard(None, &mut effects),
        },
        Inbound::ReverseCall(call) => {
            // The client replies to the server's Call. The xid of this Call is not compared with
            // the xids of the client's own calls (V2-19).
            let header = ReverseReplyHeader {
                version,
                xid: call.xid,
                credits: Credits(16),
            };
            let mut buf = [0; 64];
            assert_eq!(header.encode(&mut buf), Ok(version.min_header_len()));
        }
        Inbound::Refuse(refusal) => link.refuse(refusal, &mut effects),
        Inbound::Discard(discard) => {
            let at = found.filter(|_| discard.xid.is_some());
            link.discard(at, &mut effects);
        }
        Inbound::Ambiguous(_) => panic!("ambiguous twice"),
    }
    effects
}

impl Link {
    fn grant(&mut self, credits: Credits, effects: &mut Effects) {
        self.credits.accept(credits);
        effects.granted = Some(credits.0);
    }

    fn complete(&mut self, at: usize, effects: &mut Effects) {
        effects.completed.push(self.calls.remove(at).xid);
    }

    /// Checks a reply. `foreseen` is the result of the header prediction if the message has the
    /// predicted form, and `None` otherwise.
    fn reply(
        &mut self,
        reply: &Reply<'_>,
        found: Option<usize>,
        foreseen: Option<Accept>,
        effects: &mut Effects,
    ) {
        let Some(at) = found else {
            return self.discard(None, effects);
        };
        let writes: [&[Segment]; 1] = [&WRITE];
        let offer = match self.calls[at].shape {
            Shape::Inline => Offer::default(),
            Shape::Write => Offer {
                writes: &writes,
                non_data_max: NON_DATA,
                ..Offer::default()
            },
            Shape::Reply => Offer {
                reply: Some(&WHOLE),
                ..Offer::default()
            },
        };
        let verdict = judge(reply, &offer);
        if let Some(accept) = foreseen {
            assert_eq!(verdict, Verdict::Accept(accept));
        }
        match verdict {
            Verdict::Accept(accept) => {
                self.grant(accept.grant, effects);
                self.complete(at, effects);
            }
            Verdict::Fail(_, counter) => {
                assert_eq!(counter, Counter::DdpViolation);
                self.complete(at, effects);
            }
            Verdict::Discard(_) => self.discard(Some(at), effects),
        }
    }

    /// Drops a message. `at` is the index of the call to which the message seems to belong, if
    /// there is one.
    fn discard(&mut self, at: Option<usize>, effects: &mut Effects) {
        self.dropped += 1;
        effects.dropped = true;
        let Some(at) = at else {
            if self.discards.discard(None) != Reaction::Ignore {
                effects.lost = Some(Cause::BadReplies);
            }
            return;
        };
        let call = &mut self.calls[at];
        call.bad_replies += 1;
        match self.discards.discard(Some(&mut call.strikes)) {
            Reaction::FailCall => {
                assert!(call.bad_replies >= CALL_STRIKES);
                effects.given_up = true;
                self.complete(at, effects);
            }
            Reaction::Reconnect => {
                assert!(call.bad_replies < CALL_STRIKES);
                effects.lost = Some(Cause::BadReply);
            }
            Reaction::Ignore => panic!("a bad reply is ignored"),
        }
    }

    fn refuse(&mut self, refusal: Refusal, effects: &mut Effects) {
        if refusal.kind == RefusalKind::InvalOption {
            let began = self.refusals.begin();
            assert_eq!(began.is_err(), self.under_way >= MAX_REFUSALS);
            if began.is_err() {
                effects.lost = Some(Cause::OptionFlood);
                return;
            }
            self.under_way += 1;
        } else {
            self.discard(None, effects);
            if effects.lost.is_some() {
                return;
            }
        }
        effects.refused = Some(refusal);
    }
}

/// The 32-bit words of a message.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn get(&self, index: usize) -> Option<u32> {
        let bytes = self.0.get(4 * index..4 * index + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn is(&self, index: usize, value: u32) -> bool {
        self.get(index) == Some(value)
    }

    /// Returns whether the message is a Call or Reply of version 2 with this direction.
    fn is_version_2(&self, direction: u32) -> bool {
        self.is(1, 2) && (self.is(3, MSG) || self.is(3, NOMSG)) && self.is(4, direction)
    }
}

/// Checks that the contents of the message explain each of its effects.
fn check_effects(effects: &Effects, words: &Words<'_>, version: Version, probing: bool) {
    let two = version == Version::V2;
    let error = words.is(3, ERROR);
    for &xid in &effects.completed {
        assert!(words.is(0, xid) && !probing);
        if effects.given_up {
            continue;
        }
        assert!(!two || words.is_version_2(REPLY) || error);
        assert!(!two || !error || words.is(4, BAD_HEADER) || words.is(4, INVAL_OPTION));
    }
    if let Some(grant) = effects.granted {
        assert!(words.is(2, grant) && !error);
        assert!(!two || words.is_version_2(REPLY));
        assert!(!effects.completed.is_empty() || effects.answered.is_some());
    }
    match effects.answered {
        None => {}
        Some(ProbeAnswer::Reply) => assert!(words.is(0, PROBE) && words.is_version_2(REPLY)),
        Some(ProbeAnswer::Error(kind)) => {
            assert!(words.is(0, PROBE) && error);
            match kind {
                RemoteErrorKind::Version { low, high } => {
                    assert!(words.is(4, 1) && words.is(5, low) && words.is(6, high));
                }
                RemoteErrorKind::Chunk => assert!(words.is(1, 2) && words.is(4, BAD_HEADER)),
                RemoteErrorKind::InvalOption => {
                    assert!(words.is(1, 2) && words.is(4, INVAL_OPTION));
                }
            }
        }
    }
    if let Some(refusal) = &effects.refused {
        // A response never gets a response, and neither does an error (X-18, MAL-185).
        let option = words.is(1, 2) && words.is(3, OPTIONAL) && words.is(4, CALL);
        assert!(!two || option || (words.is_version_2(CALL) && !probing));
        assert!(!error && words.is(0, refusal.xid.0));
        assert_eq!(refusal.version, version);
        let mut buf = [0; 64];
        assert_eq!(refusal.encode(Credits(16), &mut buf), Ok(ERROR_LEN));
        let ours = Words(&buf[..ERROR_LEN]);
        assert!(ours.is(0, refusal.xid.0) && ours.is(1, version.number()) && ours.is(3, ERROR));
        assert!(two || ours.is(4, BAD_HEADER));
    }
}

/// Builds the reply of a correct peer, with `len` bytes of data if there is space for data.
fn honest(xid: u32, version: u32, credit: u32, call: Option<&Waiting>, len: u16) -> Vec<u32> {
    let shape = call.map_or(Shape::Inline, |call| call.shape);
    let procedure = match shape {
        Shape::Reply => NOMSG,
        Shape::Inline | Shape::Write => MSG,
    };
    let mut words = vec![xid, version, credit, procedure];
    words.extend((version == 2).then_some(REPLY));
    words.push(0);
    let chunk = |segment: &Segment, length: u32| {
        let [high, low] = [(segment.offset >> 32) as u32, segment.offset as u32];
        [1, 1, segment.handle.0, length, high, low]
    };
    match shape {
        Shape::Inline => words.extend([0, 0]),
        Shape::Write => {
            words.extend(chunk(&WRITE[0], u32::from(len).min(WRITE[0].length)));
            words.extend([0, 0]);
        }
        Shape::Reply => {
            words.push(0);
            let length = u32::from(len & !3).clamp(20, WHOLE[0].length);
            words.extend(chunk(&WHOLE[0], length));
        }
    }
    if procedure == MSG {
        words.extend([xid, REPLY, 0, 0, 0, 0]);
    }
    words
}
