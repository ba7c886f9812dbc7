// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: connections, messages in both directions, regions that the peer can access.

mod adapter;
mod doorbell;
mod failure;
mod fence;
mod invalidation;
mod life;
mod receive;
mod region;
mod repeat;
mod send;

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        routed,
        Census,
        Death,
        Kind,
        Seen,
        Verb, //
    },
    lent::Lent,
    log::Log,
    peer::{
        connect_data,
        Answer,
        Message,
        Peer, //
    },
    wait::wait_until, //
};
use crate::{
    cm::{
        CmId,
        ConnectParam, //
    },
    device::DeviceInfo,
    failure::{
        FailedWork,
        Failure,
        Opcode, //
    },
    mr::{
        Access,
        Echo,
        ExposedMr,
        IdleMr,
        LocalInvalidation,
        Window, //
    },
    pd::Pd,
    qp::{
        Held,
        Immediate,
        Qp,
        QpConfig,
        QpHandler,
        QpOwner,
        Received,
        SendError,
        WcStatus, //
    },
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        new_mutex,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    task::Task,
    workqueue, //
};
use xprtrdma_base::queue::PromptQueue;
use xprtrdma_bindings as bindings;

/// Drops the given objects. Then checks that no object exists on the device.
macro_rules! leaves_nothing {
    ($($what:expr),+) => {
        $(drop($what);)+
        ensure_eq!(Census::now(), Census::NOTHING);
    };
}
pub(super) use leaves_nothing;

/// A record of a call of the completion handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Message {
        len: usize,
        first: u8,
        how: Immediate,
    },
    /// A slow handler has returned.
    Returned,
    Invalidated(u64),
    Probed,
    Confirmed,
    Acknowledged,
    Space,
    Broken(WcStatus),
}

/// A handler that keeps all messages. The handler takes a region back as soon as a message proves
/// that the region is invalidated.
#[pin_data]
pub(super) struct Keeper {
    log: Arc<Log<Told>>,
    /// Number of messages that arrived.
    pub(super) came: Atomic<usize>,
    /// Identifies the thread that handled the latest message.
    pub(super) thread: Atomic<usize>,
    #[pin]
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    hold: bool,
    /// Whether handlers of messages take half a second.
    slow: bool,
    held: KVec<Held<Arc<Keeper>>>,
    exposed: Option<ExposedMr<Lent>>,
    back: Option<(IdleMr, Lent)>,
    /// Whether the handler tries to use a proof of an invalidation twice. The handler takes a
    /// region back, exposes it again with the same key, and tries to take it back with the same
    /// proof.
    again: bool,
    /// Whether the handler claims that the peer could not predict the content of the message.
    unforeseen: bool,
}

impl QpHandler for Arc<Keeper> {
    fn queue(&self) -> &PromptQueue {
        PromptQueue::of(workqueue::system_unbound())
    }

    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        let mut kept = this.kept.lock();
        if let (Some(proof), Some(region)) = (message.invalidation(), kept.exposed.take()) {
            let echo = match kept.unforeseen {
                true => Echo::Unforeseen,
                false => Echo::Offset,
            };
            match region.remotely_invalidated(&proof, echo) {
                Ok(back) => kept.back = Some(back),
                Err(region) => kept.exposed = Some(region),
            }
            let again = match kept.again {
                true => kept.back.take(),
                false => None,
            };
            if let Some((mr, lent)) = again {
                let again = same_key(&qp, mr, lent, proof.rkey());
                match again.map(|region| region.remotely_invalidated(&proof, echo)) {
                    Ok(Ok(back)) => kept.back = Some(back),
                    Ok(Err(region)) => kept.exposed = Some(region),
                    // If the region could not be exposed again, `back` stays empty, which the test
                    // detects.
                    Err(_) => {}
                }
            }
        }
        this.thread.store(thread(), Relaxed);
        // ORDERING: `Qp::busy_poll` requires full ordering.
        this.came.fetch_add(1, Full);
        let told = Told::Message {
            len: message.bytes().len(),
            first: message.bytes().first().copied().unwrap_or(0),
            how: message.immediate(),
        };
        if kept.hold {
            // If `push` fails, the message is dropped. The test then misses the message, and fails.
            let _ = kept.held.push(message.hold(), GFP_KERNEL);
            return this.log.add(told);
        }
        this.log.add(told);
        if kept.slow {
            drop(kept);
            // SAFETY: A handler may sleep.
            unsafe { kernel::bindings::msleep(500) };
            this.log.add(Told::Returned);
        }
    }

    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation) {
        let this = qp.handler();
        let mut kept = this.kept.lock();
        if let Some(region) = kept.exposed.take() {
            match region.locally_invalidated(proof) {
                Ok(back) => kept.back = Some(back),
                Err(region) => kept.exposed = Some(region),
            }
        }
        this.log.add(Told::Invalidated(token));
    }

    fn probed(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().log.add(Told::Probed);
    }

    fn confirmed(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().log.add(Told::Confirmed);
    }

    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().log.add(Told::Acknowledged);
    }

    fn send_space(qp: ArcBorrow<'_, Qp<Self>>) {
        qp.handler().log.add(Told::Space);
    }

    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus) {
        qp.handler().log.add(Told::Broken(status));
    }
}

/// Exposes a region for reading with this key, which the region had before.
fn same_key(
    qp: &Qp<Arc<Keeper>>,
    mut mr: IdleMr,
    mut lent: Lent,
    key: u32,
) -> Result<ExposedMr<Lent>> {
    // Each mapping chooses one of 256 keys at random. So it is practically certain that one of the
    // attempts chooses the wanted key.
    for _ in 0..1 << 14 {
        let mut region = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
        if region.window().handle == key {
            let batch = qp.begin(64, 2).map_err(|_| EAGAIN)?;
            batch.post(64, core::slice::from_mut(&mut region))?;
            return Ok(region);
        }
        (mr, lent) = region.unposted().map_err(|_| EBUSY)?;
    }
    Err(ENOENT)
}

const CONFIG: QpConfig = QpConfig {
    send_bytes: 4096,
    least_send_bytes: 4096,
    send_wrs: 16,
    signal_every: 4,
    message_wrs: 4,
    waiting_wrs: 4,
    recv_count: 4,
    recv_batch: 2,
    recv_more: 0,
    recv_size: 512,
};
/// Number of Receives of a queue pair with the configuration [`CONFIG`].
const RECVS: u32 = 6;
/// Number of objects of each kind that a queue pair with the configuration [`CONFIG`] needs. The
/// mappings are those of the send ring and of the Receives.
const PAIR: Census = Census {
    pds: 1,
    cqs: 1,
    qps: 1,
    mappings: 1 + RECVS as i32,
    ..Census::NOTHING
};
const CONNECTED: Census = Census {
    connections: 1,
    ..PAIR
};
pub(super) const REQUEST: ConnectParam = ConnectParam {
    private_data: *b"12345678",
    responder_resources: 4,
    retry_count: 6,
    rnr_retry_count: 0,
};
const FLUSHED: u32 = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR;
const SUCCESS: u32 = bindings::ib_wc_status_IB_WC_SUCCESS;

/// A queue pair and the objects that belong to it.
pub(super) struct Pair {
    pub(super) owner: QpOwner<Arc<Keeper>>,
    pub(super) keeper: Arc<Keeper>,
    pd: Arc<Pd>,
    id: Arc<CmId>,
    events: Arc<Log<Seen>>,
}

fn keeper() -> Result<Arc<Keeper>> {
    let log = Log::new()?;
    Arc::pin_init(
        pin_init!(Keeper {
            log,
            came: Atomic::new(0),
            thread: Atomic::new(0),
            kept <- new_mutex!(Kept::default(), "Keeper::kept"),
        }),
        GFP_KERNEL,
    )
}

/// Returns the number of slow handlers that have returned.
pub(super) fn returned(keeper: &Keeper) -> usize {
    keeper.log.count(Told::Returned)
}

/// Returns a number that identifies the current thread.
pub(super) fn thread() -> usize {
    Task::current_raw() as usize
}

impl Pair {
    pub(super) fn new() -> Result<Self> {
        Self::with(&CONFIG)
    }

    fn with(config: &QpConfig) -> Result<Self> {
        Self::on(Kind::Plain, config)
    }

    fn on(device: Kind, config: &QpConfig) -> Result<Self> {
        calm();
        device.always();
        Self::create(config)
    }

    /// Creates a queue pair on the device. The settings of the device stay as they are.
    fn create(config: &QpConfig) -> Result<Self> {
        let (id, events) = routed()?;
        let pd = Pd::alloc(id.clone())?;
        let keeper = keeper()?;
        let owner = Qp::create(&pd, config, keeper.clone())?;
        Ok(Self {
            owner,
            keeper,
            pd,
            id,
            events,
        })
    }

    pub(super) fn connected() -> Result<Self> {
        Self::new()?.connect()
    }

    fn connect(self) -> Result<Self> {
        self.id.connect(&REQUEST)?;
        self.events
            .wait(|e| matches!(e, Seen::Established { .. }))?;
        Ok(self)
    }

    pub(super) fn peer(&self) -> Peer {
        Peer::of(&self.owner)
    }

    fn told(&self, what: Told) -> Result<Told> {
        self.keeper.log.wait(|told| *told == what)
    }

    /// Makes the peer send a message, and waits until the handler has received it.
    fn takes(&self, data: &[u8]) -> Result {
        self.peer().send(Message {
            data,
            ..Message::default()
        })?;
        self.told_of(data)
    }

    /// Waits until the handler has received a message with these bytes.
    fn told_of(&self, data: &[u8]) -> Result {
        self.told(Told::Message {
            len: data.len(),
            first: data.first().copied().unwrap_or(0),
            how: Immediate::None,
        })
        .map(drop)
    }

    /// Makes the peer send a message whose handler is slow. Returns while that handler is running.
    pub(super) fn be_slow_with_a_message(&self) -> Result {
        self.keeper.kept.lock().slow = true;
        self.takes(b"slow")
    }

    /// Sends `len` bytes with the value `fill`.
    fn send(&self, len: usize, fill: u8) -> Result {
        let mut batch = self.owner.begin(len, 1).map_err(|_| EAGAIN)?;
        batch.buffer().fill(fill);
        batch.post::<Lent>(len, &mut [])
    }

    /// Sends `len` bytes with the value `fill`, but does not ring the doorbell.
    fn send_later(&self, len: usize, fill: u8) -> Result {
        let mut batch = self.owner.begin(len, 1).map_err(|_| EAGAIN)?;
        batch.buffer().fill(fill);
        batch.post_later::<Lent>(len, &mut [])
    }

    /// Waits until exactly this number of work requests is in the device's send queue.
    fn rung_for(&self, count: u32) -> Result {
        wait_until(|| self.peer().sends() == count)
    }

    /// Maps a region of contiguous memory. Does not post the registration of the region.
    fn map(&self, first: usize, len: usize, access: Access) -> Result<ExposedMr<Lent>> {
        let lent = Lent::new(&[(first, len)])?;
        let mr = IdleMr::alloc(&self.pd, 4, false)?;
        mr.map(lent, 0, access).map_err(|e| e.error)
    }

    /// Posts two work requests: the registration of a region, and a message.
    fn post(&self, region: &mut ExposedMr<Lent>) -> Result {
        let batch = self.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        batch.post(64, core::slice::from_mut(region))
    }

    /// Posts two work requests, the registration of a region and a message, but does not ring the
    /// doorbell.
    fn post_later(&self, region: &mut ExposedMr<Lent>) -> Result {
        let batch = self.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        batch.post_later(64, core::slice::from_mut(region))
    }

    /// Posts the invalidation of a region.
    fn post_invalidate(&self, token: u64, region: &mut ExposedMr<Lent>) -> Result {
        let batch = self.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(token, core::slice::from_mut(region))
    }

    /// Checks that the region is still exposed. Drops the queue pair before the region, because an
    /// exposed region is freed only if its queue pair is shut down.
    fn ends_exposed(self) -> Test {
        let region = {
            let mut kept = self.keeper.kept.lock();
            ensure!(kept.back.is_none());
            kept.exposed.take()
        };
        drop(self.owner);
        drop(region.ok_or(EINVAL)?);
        Ok(())
    }

    /// Exposes a region for `access`. The device executes the registration of the region, and then
    /// sends the message that was posted with it.
    fn expose(&self, access: Access) -> Result<ExposedMr<Lent>> {
        let mut region = self.map(100, 2 * PAGE_SIZE, access)?;
        self.post(&mut region)?;
        let peer = self.peer();
        ensure_eq!(peer.look(0)?.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
        ensure_eq!(peer.look(1)?.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        Ok(region)
    }

    /// Posts the registration of a region, but the device does not execute it.
    fn expose_without_work(&self) -> Result<ExposedMr<Lent>> {
        let mut region = self.map(0, 1000, Access::RemoteWrite)?;
        self.post(&mut region)?;
        match region.unposted() {
            Ok(_) => Err(EINVAL),
            Err(region) => Ok(region),
        }
    }
}

/// Waits until the send queue is empty: all work requests have completed, and their completions are
/// handled.
fn wait_for_room(pair: &Pair) -> Result {
    wait_until(|| pair.owner.send_occupancy() == (0, 0))
}

/// Makes the peer send a message that invalidates a region, and waits for its handler.
fn invalidate(pair: &Pair, data: &[u8], key: u32) -> Test {
    pair.peer().send(Message {
        data,
        invalidates: Some(key),
        ..Message::default()
    })?;
    pair.told_of(data)?;
    Ok(())
}

/// Returns a message that consists of `data`, of padding to a multiple of four bytes, and of the
/// number `offset`.
fn repeating(data: &[u8], offset: u64) -> Result<KVec<u8>> {
    let mut message = KVec::from_elem(0u8, data.len().next_multiple_of(4), GFP_KERNEL)?;
    for (to, from) in message.iter_mut().zip(data) {
        *to = *from;
    }
    message.extend_from_slice(&offset.to_be_bytes(), GFP_KERNEL)?;
    Ok(message)
}

/// Makes the peer reply: the message contains the offset of the region and invalidates the key of
/// the region.
fn answer(pair: &Pair, data: &[u8], window: &Window) -> Test {
    invalidate(pair, &repeating(data, window.offset)?, window.handle)
}
