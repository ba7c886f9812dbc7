// SPDX-License-Identifier: GPL-2.0

//! One connection ([`Connection`]): the state that exists as long as its queue pair. Two other
//! modules use this state: [`rpc`](crate::rpc) handles the messages of RPCs and contains the
//! completion handlers; [`link`](crate::link) makes, watches and ends connections.

mod belief;
mod credits;
mod device_history;
mod peer_state;
mod polling;
mod pools;
mod regions;
mod setup;

pub(crate) use self::{
    belief::Disbelief,
    credits::{
        callback_credits,
        CALLBACK_SLOTS, //
    },
    device_history::DeviceHistory,
    pools::{
        Needed,
        Pools, //
    },
    regions::Shortage,
    setup::Setup,
};

use self::{
    peer_state::{
        Agreement,
        KnownGrant,
        LargeSend,
        Once,
        Starvation, //
    },
    polling::Polling,
};
use crate::{
    counters::Counters,
    driver::Rdma,
    machine, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        SetOnce,
        SpinLock, //
    }, //
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Epoch,
        Event, //
    },
    credit::ForwardCredits,
    limit::{
        DiscardLimit,
        Reaction,
        Strikes, //
    },
    time::Time,
    v2::refusals::{
        Flood,
        Refusals, //
    },
    Credits,
    Thresholds,
    Version,
    Xid, //
};
use xprtrdma_rdma::{
    access_once::AccessOnce,
    device::DeviceInfo,
    events::DeviceEvents,
    qp::{
        Qp,
        QpOwner,
        SendError, //
    },
};
use xprtrdma_sunrpc::{
    call::Waiting,
    common::Common,
    util::{
        Jiffies,
        PromptQueue, //
    },
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// The state machine of a transport's connections. It holds the [`QpOwner`] of the established
/// connection.
pub(crate) type Machine = machine::Machine<QpOwner<Connection>>;

/// The objects that all connections of a transport share.
#[derive(Clone)]
pub(crate) struct Services {
    common: Arc<Common>,
    machine: Arc<Machine>,
    counters: Arc<Counters>,
    devices: Arc<DeviceHistory>,
}

impl Services {
    /// Allocates the counters and the device history. May sleep.
    pub(crate) fn new(common: Arc<Common>, machine: Arc<Machine>) -> Result<Self> {
        Ok(Self {
            common,
            machine,
            counters: Arc::new(Counters::new(), GFP_KERNEL)?,
            devices: DeviceHistory::new()?,
        })
    }

    pub(crate) fn common(&self) -> &Common {
        &self.common
    }

    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn devices(&self) -> &DeviceHistory {
        &self.devices
    }
}

/// The state of one connection.
pub(crate) struct Connection {
    xprt: BackRef<Rdma>,
    services: Services,
    epoch: Epoch,
    /// The inline thresholds that the peers agreed on. They are set, with the version, before the
    /// first call is sent.
    agreement: Agreement,
    /// The number of the protocol version that the connection uses.
    version: Atomic<u32>,
    /// The xid of the version probe, if a version probe was sent.
    probe: SetOnce<Xid>,
    probe_answered: Once,
    regions: Pools,
    device: DeviceInfo,
    /// The registration of the handler that records the device's events.
    _events: DeviceEvents,
    /// Whether the segments that a reply returns must equal the segments that the call offered.
    strict: bool,
    /// Whether the client accepts a reply as proof that the server has invalidated a region.
    believes: Atomic<bool>,
    disbelief: Option<Disbelief>,
    /// Time (in jiffies) at which the last message arrived.
    last_rx: Atomic<usize>,
    /// Time (in jiffies) of the last successful completion of a message that this host sent.
    last_end: Atomic<usize>,
    /// The credits that every call requests.
    requested: Credits,
    known_grant: KnownGrant,
    first_reply: Once,
    large: LargeSend,
    /// Whether the state machine knows that a message above the minimum inline threshold was
    /// posted. Only the holder of the send lock writes it.
    large_reported: Once,
    starvation: Starvation,
    polling: Polling,
    locked: Arc<Locked>,
}

/// The part of a connection's state that locks protect.
#[pin_data]
struct Locked {
    #[pin]
    credits: SpinLock<ForwardCredits>,
    #[pin]
    discards: SpinLock<DiscardLimit>,
    /// Number of sent refusals (of the peer's options) that the peer's device has not acknowledged
    /// yet.
    #[pin]
    refusals: SpinLock<Refusals>,
    /// Slots whose invalidation waits for space in the send queue. The list has capacity for every
    /// slot.
    #[pin]
    deferred: SpinLock<KVec<u16>>,
}

impl Connection {
    #[inline]
    pub(crate) fn xprt(&self) -> &Xprt<Rdma> {
        &self.xprt
    }

    /// Returns the number that identifies the connection.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns the protocol version of the connection, or version 1 until the peers have agreed.
    #[inline]
    pub(crate) fn version(&self) -> Version {
        const V2: u32 = Version::V2.number();
        // A plain load suffices: the version is set before the first call is posted. Completion
        // handlers run later, because they handle the completions of posted messages and the
        // replies to posted messages.
        match self.version.read_once() {
            V2 => Version::V2,
            _ => Version::V1,
        }
    }

    /// Returns the work queue that handles received messages and completions.
    #[inline]
    pub(crate) fn completions(&self) -> &PromptQueue {
        self.services.common.completions().queue()
    }

    #[inline]
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    #[inline]
    pub(crate) fn counters(&self) -> &Counters {
        &self.services.counters
    }

    #[inline]
    pub(crate) fn regions(&self) -> &Pools {
        &self.regions
    }

    pub(crate) fn device(&self) -> DeviceInfo {
        self.device
    }

    /// Returns whether the segments that a reply returns must equal the segments that the call
    /// offered.
    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    /// Returns whether the client accepts a reply as proof that the server has invalidated a
    /// region.
    #[inline]
    pub(crate) fn believes(&self) -> bool {
        // Only completion handlers call this function, and only one of them runs at a time.
        self.believes.read_once()
    }

    /// Returns the reason why the server was not asked to invalidate regions.
    pub(crate) fn disbelief(&self) -> Option<Disbelief> {
        self.disbelief
    }

    /// Records that the server has invalidated a region wrongly. The server may be guessing keys,
    /// so the client trusts no later invalidation on this connection.
    pub(crate) fn doubt(&self) {
        self.believes.write_once(false);
    }

    /// Returns the agreed inline thresholds, or the minimum until the peers agree.
    #[inline]
    pub(crate) fn thresholds(&self) -> Thresholds {
        self.agreement.get()
    }

    /// Returns whether the server may invalidate regions.
    #[inline]
    pub(crate) fn remote_invalidation(&self) -> bool {
        self.agreement.remote_invalidation()
    }

    /// Sets the agreed inline thresholds and version, before the first call is sent.
    pub(crate) fn agree(&self, version: Version, thresholds: Thresholds) {
        self.version.write_once(version.number());
        self.agreement.set(thresholds);
    }

    /// Records the xid of the version probe, which is about to be sent. No other message is sent
    /// before the peers agree on a version.
    pub(crate) fn begin_probing(&self, xid: Xid) {
        self.probe.populate(xid);
    }

    /// Records that the version probe was answered. Only completion handlers call this, and they
    /// run one at a time.
    pub(crate) fn end_probing(&self) {
        let _ = self.probe_answered.is_first();
    }

    /// Returns whether the reply to the version probe has arrived.
    pub(crate) fn is_probe_answered(&self) -> bool {
        self.probe_answered.was()
    }

    /// Returns the xid of the version probe, or `None` after the peers have agreed.
    pub(crate) fn probing(&self) -> Option<Xid> {
        match self.agreement.was_made() {
            false => self.probe.copy(),
            true => None,
        }
    }

    /// Polls for completions in the thread of a call, until this call completes or is not the only
    /// call in flight.
    #[inline]
    pub(crate) fn busy_poll(&self, qp: &Qp<Self>, waiting: &Waiting<'_, Rdma>) {
        let alone = || !self.xprt.has_others();
        self.polling
            .busy_poll(|| qp.busy_poll(alone, || waiting.is_over()));
    }

    /// Reports an event to the state machine. The event must not be a tick, the timeout of a call,
    /// or the connection manager's event `Unreachable`, because these events may produce a `Todo`.
    pub(crate) fn react(&self, event: Event) {
        self.services
            .machine
            .react(&self.xprt, event)
            .expect_nothing();
    }

    /// Reports that the connection is lost. The state machine then ends the connection.
    #[cold]
    pub(crate) fn lost(&self, cause: Cause) {
        self.react(Event::Lost(self.epoch, cause));
    }

    /// Posts a keepalive probe, which the peer's device acknowledges. Returns `Closed` if the
    /// connection is ending.
    pub(crate) fn probe(qp: &Qp<Self>) -> Result<(), SendError> {
        let batch = qp.begin(0, 1)?;
        batch.post_probe().map_err(|_| SendError::Closed)
    }

    /// Records that a message arrived from the peer.
    #[inline]
    pub(crate) fn note_rx(&self) {
        self.last_rx.write_once(Jiffies::now().count());
    }

    /// Records that a Send of this host has completed without an error.
    #[inline]
    pub(crate) fn note_end(&self) {
        self.last_end.write_once(Jiffies::now().count());
    }

    /// Returns the time since the last sign of life of the peer. A sign of life is a message from
    /// the peer, or the completion of a message to the peer.
    ///
    /// On iWARP a completion does not prove that the peer is alive. It counts here nevertheless,
    /// because TCP detects a dead peer after TCP has accepted the data.
    pub(crate) fn silence(&self) -> Jiffies {
        let ended = Jiffies::since(self.last_end.read_once());
        Jiffies(ended.count().min(self.unheard().count()))
    }

    /// Returns the time since the last message arrived.
    fn unheard(&self) -> Jiffies {
        Jiffies::since(self.last_rx.read_once())
    }

    /// Returns the time at which the last message arrived, on the clock of the protocol core.
    pub(crate) fn heard(&self) -> Time {
        let ago = u64::from(self.unheard().as_ms());
        Time::from_millis(machine::now().as_millis().saturating_sub(ago))
    }

    /// Returns the time since the last sign that the path to the peer works. On iWARP only a
    /// received message is such a sign.
    pub(crate) fn rail_silence(&self) -> Jiffies {
        if self.device.ends_early {
            self.unheard()
        } else {
            self.silence()
        }
    }

    /// Counts a dropped message. If the message seems to belong to a call, also counts it against
    /// that call.
    pub(crate) fn count_discard(&self, strikes: Option<&mut Strikes>) -> Reaction {
        self.locked.discards.lock().discard(strikes)
    }

    /// Records that the refusal of an option is about to be sent. Returns an error if too many such
    /// refusals are unacknowledged.
    pub(crate) fn begin_refusal(&self) -> Result<(), Flood> {
        self.locked.refusals.lock().begin()
    }

    /// Records that the peer's device has acknowledged the refusal of an option, or that such a
    /// refusal was not sent.
    pub(crate) fn end_refusal(&self) {
        self.locked.refusals.lock().end();
    }

    /// Lowers the count of dropped messages as time passes.
    pub(crate) fn forgive_discards(&self) {
        self.locked.discards.lock().tick(machine::now());
    }

    /// Defers the invalidation of a slot's regions until the send queue has space.
    pub(crate) fn defer_invalidation(&self, slot: u16) {
        // Adding the slot cannot fail: the list has capacity for every slot, and contains each slot
        // at most once.
        let _ = self.locked.deferred.lock().push_within_capacity(slot);
    }

    /// Removes and returns a slot whose invalidation was deferred.
    pub(crate) fn deferred_invalidation(&self) -> Option<u16> {
        self.locked.deferred.lock().pop()
    }
}
