// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: connections, messages in both directions, regions that the peer reaches.

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        routed,
        Census,
        Death,
        Invalidations,
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
};
use crate::{
    cm::{
        CmId,
        ConnectParam, //
    },
    device::DeviceInfo,
    failure::{
        Failure,
        Side, //
    },
    mr::{
        Access,
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
    workqueue::{
        self,
        Queue, //
    },
};
use xprtrdma_bindings as bindings;

/// What a handler was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Message {
        len: usize,
        first: u8,
        how: Immediate,
    },
    /// The end of a slow handler.
    Returned,
    Invalidated(u64),
    Probed,
    Acknowledged,
    Space,
    Broken(WcStatus),
}

/// A handler that keeps everything, and takes regions back when it may.
#[pin_data]
pub(super) struct Keeper {
    log: Arc<Log<Told>>,
    /// How many messages came, and which thread handled the last one.
    pub(super) came: Atomic<usize>,
    pub(super) thread: Atomic<usize>,
    #[pin]
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    hold: bool,
    /// Handlers of messages take half a second.
    slow: bool,
    held: KVec<Held<Arc<Keeper>>>,
    exposed: Option<ExposedMr<Lent>>,
    back: Option<(IdleMr, Lent)>,
    /// What comes back is exposed with the same key again, and the same proof is tried.
    again: bool,
}

impl QpHandler for Arc<Keeper> {
    fn queue(&self) -> &Queue {
        workqueue::system_unbound()
    }

    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        let mut kept = this.kept.lock();
        if let (Some(proof), Some(region)) = (message.invalidation(), kept.exposed.take()) {
            match region.remotely_invalidated(proof) {
                Ok(back) => kept.back = Some(back),
                Err(region) => kept.exposed = Some(region),
            }
            let again = match kept.again {
                true => kept.back.take(),
                false => None,
            };
            if let Some((mr, lent)) = again {
                match same_key(&qp, mr, lent, proof.rkey()).map(|r| r.remotely_invalidated(proof)) {
                    Ok(Ok(back)) => kept.back = Some(back),
                    Ok(Err(region)) => kept.exposed = Some(region),
                    // Nothing is exposed, which the test finds.
                    Err(_) => {}
                }
            }
        }
        this.thread.store(thread(), Relaxed);
        // ORDERING: Full, as `Qp::attend` asks for.
        this.came.fetch_add(1, Full);
        let told = Told::Message {
            len: message.bytes().len(),
            first: message.bytes().first().copied().unwrap_or(0),
            how: message.immediate(),
        };
        if kept.hold {
            // A test that misses a message fails.
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

/// Exposes a region with this key, which it has had before.
fn same_key(
    qp: &Qp<Arc<Keeper>>,
    mut mr: IdleMr,
    mut lent: Lent,
    key: u32,
) -> Result<ExposedMr<Lent>> {
    for _ in 0..256 {
        let mut region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
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
    recv_size: 512,
};
/// Receives of such a queue pair.
const RECVS: u32 = 6;
/// What such a queue pair is made of: mappings are the send ring and the Receives.
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

/// A queue pair and what belongs to it.
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

/// How many slow handlers have returned.
pub(super) fn returned(keeper: &Keeper) -> usize {
    keeper.log.count(Told::Returned)
}

/// The calling thread.
pub(super) fn thread() -> usize {
    Task::current_raw() as usize
}

/// Waits for something that nobody tells.
pub(super) fn wait_until(condition: impl Fn() -> bool) -> Result {
    for _ in 0..1000 {
        if condition() {
            return Ok(());
        }
        // SAFETY: A test may sleep.
        unsafe { kernel::bindings::msleep(1) };
    }
    Err(ETIMEDOUT)
}

impl Pair {
    pub(super) fn new() -> Result<Self> {
        Self::with(&CONFIG)
    }

    fn with(config: &QpConfig) -> Result<Self> {
        Self::on(Invalidations::Unknown, config)
    }

    fn on(device: Invalidations, config: &QpConfig) -> Result<Self> {
        calm();
        device.always();
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

    /// Has the peer send a message; returns when its handler, which is slow, is at work.
    pub(super) fn be_slow_with_a_message(&self) -> Result {
        self.keeper.kept.lock().slow = true;
        self.peer().send(Message {
            data: b"slow",
            ..Message::default()
        })?;
        self.told(Told::Message {
            len: 4,
            first: b's',
            how: Immediate::None,
        })
        .map(drop)
    }

    /// Sends `len` octets, all `fill`.
    fn send(&self, len: usize, fill: u8) -> Result {
        let mut batch = self.owner.begin(len, 1).map_err(|_| EAGAIN)?;
        batch.buffer().fill(fill);
        batch.post::<Lent>(len, &mut [])
    }

    /// Likewise, and the doorbell is left to others.
    fn send_later(&self, len: usize, fill: u8) -> Result {
        let mut batch = self.owner.begin(len, 1).map_err(|_| EAGAIN)?;
        batch.buffer().fill(fill);
        batch.post_later::<Lent>(len, &mut [])
    }

    /// Waits until the device has so many work requests.
    fn rung_for(&self, count: u32) -> Result {
        wait_until(|| self.peer().sends() == count)
    }

    /// Exposes a page for `access`, tells the peer, and lets the device work.
    fn expose(&self, access: Access) -> Result<ExposedMr<Lent>> {
        let lent = Lent::new(&[(100, 2 * PAGE_SIZE)])?;
        let mr = IdleMr::alloc(&self.pd, 4, false)?;
        let mut region = mr.map(lent, 0, access).map_err(|e| e.error)?;
        let batch = self.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        batch.post(64, core::slice::from_mut(&mut region))?;
        let peer = self.peer();
        ensure_eq!(peer.look(0)?.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
        ensure_eq!(peer.look(1)?.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        Ok(region)
    }
}

#[kunit_tests(xprtrdma_qp)]
mod suite {
    use super::*;

    // covers: V1-018, V1-019, BC-07: every Receive is there before the peer knows of the connection.
    #[test]
    fn a_queue_pair_comes_and_goes() -> Test {
        let pair = Pair::new()?;
        ensure_eq!(Census::now(), PAIR);
        ensure_eq!(pair.peer().receives(), RECVS);
        ensure_eq!(pair.owner.receives_posted(), RECVS as usize);
        ensure_eq!(pair.owner.send_occupancy(), (0, 0));
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn an_id_has_one_queue_pair() -> Test {
        let Pair { owner, pd, .. } = Pair::new()?;
        ensure_eq!(Qp::create(&pd, &CONFIG, keeper()?).err(), Some(EBUSY));
        ensure_eq!(Census::now(), PAIR);
        drop(owner);
        ensure_eq!(Qp::create(&pd, &CONFIG, keeper()?).err(), Some(EBUSY));
        Ok(())
    }

    #[test]
    fn buffers_have_octets() -> Test {
        for (send_bytes, recv_size) in [(0, 512), (4096, 0)] {
            let config = QpConfig {
                send_bytes,
                recv_size,
                ..CONFIG
            };
            ensure_eq!(Pair::with(&config).err(), Some(EINVAL));
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn its_parts_may_be_dropped_in_every_order() -> Test {
        // Owner, a handle, the domain, the id: 24 orders, connected or not.
        for connected in [false, true] {
            for number in 0..24usize {
                let pair = if connected {
                    Pair::connected()?
                } else {
                    Pair::new()?
                };
                let Pair {
                    owner,
                    keeper,
                    pd,
                    id,
                    ..
                } = pair;
                let mut handle = Some(owner.handle());
                let (mut owner, mut pd, mut id) = (Some(owner), Some(pd), Some(id));
                drop(keeper);
                let (mut left, mut code) = ([0usize, 1, 2, 3], number);
                for len in (1..=4).rev() {
                    let at = code % len;
                    code /= len;
                    match left[at] {
                        0 => drop(owner.take()),
                        1 => drop(handle.take()),
                        2 => drop(pd.take()),
                        _ => drop(id.take()),
                    }
                    // The one chosen goes, those behind it move up.
                    left.copy_within(at + 1.., at);
                }
                ensure_eq!(Census::now(), Census::NOTHING);
            }
        }
        Ok(())
    }

    #[test]
    fn a_device_that_fails_leaves_nothing() -> Test {
        calm();
        // Each call of each verb that making a queue pair needs.
        for (verb, calls) in [
            (Verb::CreateCq, 1),
            (Verb::CreateQp, 1),
            (Verb::ModifyQp, 1),
            (Verb::DmaMap, 1 + RECVS),
            (Verb::PostRecv, 1),
        ] {
            for nth in 1..=calls {
                let (id, _log) = routed()?;
                let pd = Pd::alloc(id)?;
                verb.fail(nth);
                let failed = Qp::create(&pd, &CONFIG, keeper()?).err();
                let (made, expected) = (
                    verb.calls(),
                    if verb == Verb::DmaMap { EIO } else { EAGAIN },
                );
                calm();
                if failed != Some(expected) || made < nth {
                    pr_err!("{verb:?} {nth}: {failed:?} after {made} calls\n");
                    return Err(EINVAL.into());
                }
                ensure_eq!(
                    Census::now(),
                    Census {
                        pds: 1,
                        ..Census::NOTHING
                    }
                );
            }
            // There are no more of them.
            let (id, _log) = routed()?;
            let pd = Pd::alloc(id)?;
            verb.fail(0);
            let qp = Qp::create(&pd, &CONFIG, keeper()?)?;
            ensure_eq!(verb.calls(), calls);
            drop(qp);
        }
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn with_less_memory_the_send_ring_is_smaller() -> Test {
        for (least_send_bytes, len) in [(1024, 2048), (3072, 3072)] {
            calm();
            let (id, _log) = routed()?;
            let pd = Pd::alloc(id)?;
            let config = QpConfig {
                least_send_bytes,
                ..CONFIG
            };
            Verb::DmaMap.fail(1);
            let qp = Qp::create(&pd, &config, keeper()?)?;
            ensure_eq!(Census::now(), PAIR);
            ensure!(qp.has_room(len, 1));
            ensure!(!qp.has_room(len + 1, 1));
            // A quarter of what there is.
            for fill in 0..2 {
                let mut batch = qp.begin(len / 4, 1).map_err(|_| EAGAIN)?;
                batch.buffer().fill(fill);
                batch.post::<Lent>(len / 4, &mut [])?;
            }
            let peer = Peer::of(&qp);
            ensure_eq!(peer.look(0)?.signalled, 1);
            ensure_eq!(peer.look(1)?.signalled, 1);
        }
        Ok(())
    }

    #[test]
    fn a_queue_pair_without_memory_leaves_nothing() -> Test {
        calm();
        let errors = each_allocation(
            || {
                let (id, _log) = routed()?;
                Ok((Pd::alloc(id)?, keeper()?))
            },
            |(pd, keeper)| Qp::create(pd, &CONFIG, keeper.clone()).map(drop),
            |(pd, keeper)| {
                ensure_eq!(
                    Census::now(),
                    Census {
                        pds: 1,
                        ..Census::NOTHING
                    }
                );
                drop((pd, keeper));
                ensure_eq!(Census::now(), Census::NOTHING);
                Ok(())
            },
        )?;
        // Both queues of the device, its completions, our ring, buffers, lists and queue pair.
        ensure_at_least!(errors, 7 + RECVS as usize);
        Ok(())
    }

    #[test]
    fn a_connection_comes_up_and_goes() -> Test {
        let pair = Pair::connected()?;
        ensure_eq!(Census::now(), CONNECTED);
        ensure_eq!(&*connect_data(), &b"12345678"[..]);
        // The device says what we have to serve in another field than InfiniBand does.
        pair.events.wait(|e| {
            *e == Seen::Established {
                greeting: true,
                depth: 4,
            }
        })?;
        pair.id.disconnect()?;
        pair.events.wait(|e| *e == Seen::Disconnected)?;
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_refused_connection_leaves_nothing() -> Test {
        let pair = Pair::new()?;
        Answer::Refuses.always();
        pair.id.connect(&REQUEST)?;
        pair.events.wait(|e| matches!(e, Seen::Rejected(_)))?;
        ensure_eq!(Census::now(), PAIR);
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_late_answer_is_an_answer() -> Test {
        for how in [Answer::Accepts, Answer::Refuses] {
            let pair = Pair::new()?;
            Answer::IsSilent.always();
            pair.id.connect(&REQUEST)?;
            ensure_eq!(Census::now(), CONNECTED);
            pair.peer().answer(how)?;
            pair.events
                .wait(|e| matches!(e, Seen::Established { .. } | Seen::Rejected(_)))?;
            drop(pair);
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_device_that_cannot_connect_leaves_nothing() -> Test {
        let pair = Pair::new()?;
        Verb::Connect.fail(1);
        ensure!(pair.id.connect(&REQUEST).is_err());
        ensure_eq!(Census::now(), PAIR);
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_connect_request_without_memory_leaves_nothing() -> Test {
        calm();
        let errors = each_allocation(
            Pair::new,
            |pair| pair.id.connect(&REQUEST),
            |pair| {
                drop(pair);
                ensure_eq!(Census::now(), Census::NOTHING);
                Ok(())
            },
        )?;
        ensure_at_least!(errors, 1);
        Ok(())
    }

    #[test]
    fn the_peer_may_end_the_connection_at_any_time() -> Test {
        let pair = Pair::connected()?;
        for i in 0..3 {
            pair.send(100, i)?;
        }
        pair.peer().close()?;
        pair.told(Told::Broken(WcStatus(FLUSHED)))?;
        pair.events.wait(|e| *e == Seen::Disconnected)?;
        let flushed = (pair.owner.failure().first, pair.owner.failure().reason);
        ensure!(matches!(flushed, (Some((_, WcStatus::FLUSHED)), None)));
        let keeper = pair.keeper.clone();
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        // Said once, however many work requests failed.
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus(FLUSHED))), 1);
        Ok(())
    }

    #[test]
    fn what_is_sent_is_what_the_device_reads() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        // Several times around the ring, each message of its own length and content.
        for i in 0..100usize {
            let len = 1 + i * 37 % 1000;
            // CAST: Less than 100.
            pair.send(len, i as u8)?;
            let posted = peer.look(0)?;
            ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
            let sent = peer.sent(&posted)?;
            ensure_eq!(sent.len(), len);
            ensure!(sent.iter().all(|octet| usize::from(*octet) == i));
            ensure_eq!(peer.complete(1, SUCCESS), 1);
            if posted.signalled != 0 {
                // Everything before it is given back when its handler has run.
                pair.keeper.log.wait(|told| *told == Told::Acknowledged)?;
                wait_for_room(&pair)?;
            }
        }
        Ok(())
    }

    /// Waits until the completions that the device has made have been handled.
    fn wait_for_room(pair: &Pair) -> Result {
        wait_until(|| pair.owner.send_occupancy() == (0, 0))
    }

    #[test]
    fn a_full_queue_says_when_there_is_room() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut sent = 0;
        while pair.owner.has_room(1000, 1) {
            pair.send(1000, 0)?;
            sent += 1;
        }
        // 4096 octets hold four messages of 1024.
        ensure_eq!(sent, 4);
        ensure_eq!(pair.owner.begin(1000, 1).err(), Some(SendError::Full));
        ensure_eq!(pair.keeper.log.count(Told::Space), 0);
        ensure_eq!(peer.complete(sent, SUCCESS), sent);
        pair.told(Told::Space)?;
        wait_for_room(&pair)?;
        pair.send(1000, 0)?;
        // Longer than the ring: never.
        ensure_eq!(pair.owner.begin(4097, 1).err(), Some(SendError::Full));
        // More work requests than the queue: never.
        ensure_eq!(pair.owner.begin(1, 17).err(), Some(SendError::Full));
        Ok(())
    }

    #[test]
    fn whoever_asks_for_room_again_is_told_again() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        // 4096 octets hold four messages of 1024, each of which is signalled.
        for i in 0..4 {
            pair.send(1000, i)?;
        }
        ensure_eq!(pair.owner.begin(2000, 1).err(), Some(SendError::Full));
        // A completion uses the wish up, and there is too little room still.
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Space)?;
        ensure!(!pair.owner.has_room(2000, 1));
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.keeper.log.wait_times(Told::Space, 2)?;
        ensure!(pair.owner.has_room(2000, 1));
        // Nobody waits any more.
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        wait_for_room(&pair)?;
        ensure_eq!(pair.keeper.log.count(Told::Space), 2);
        Ok(())
    }

    #[test]
    fn every_quarter_of_the_queue_is_signalled() -> Test {
        let pair = Pair::connected()?;
        for i in 0..16 {
            pair.send(1, i)?;
        }
        let peer = pair.peer();
        for i in 0..16 {
            ensure_eq!(peer.look(i)?.signalled != 0, i % 4 == 3);
        }
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Full));
        ensure_eq!(peer.complete(16, SUCCESS), 16);
        pair.told(Told::Space)?;
        wait_for_room(&pair)?;
        Ok(())
    }

    #[test]
    fn a_batch_that_is_dropped_changes_nothing() -> Test {
        let pair = Pair::connected()?;
        for _ in 0..100 {
            let mut batch = pair.owner.begin(1000, 5).map_err(|_| EAGAIN)?;
            batch.buffer().fill(1);
            drop(batch);
        }
        ensure_eq!(pair.owner.send_occupancy(), (0, 0));
        ensure_eq!(pair.peer().sends(), 0);
        // A message longer than its room is refused and posts nothing.
        let batch = pair.owner.begin(10, 1).map_err(|_| EAGAIN)?;
        let posted = batch.post::<Lent>(11, &mut []);
        ensure_eq!(posted, Err(EINVAL));
        ensure_eq!(pair.peer().sends(), 0);
        pair.send(10, 0)?;
        Ok(())
    }

    #[test]
    fn a_post_that_fails_closes_the_queue() -> Test {
        let pair = Pair::connected()?;
        Verb::PostSend.fail(1);
        ensure_eq!(pair.send(100, 0), Err(EAGAIN));
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Closed));
        // There is nothing to wait for.
        ensure!(pair.owner.has_room(1, 1));
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn messages_share_a_doorbell() -> Test {
        let mut at_once = false;
        for _ in 0..20 {
            let pair = Pair::connected()?;
            let before = Verb::PostSend.calls();
            for i in 0..4 {
                pair.send_later(10 + usize::from(i), i)?;
            }
            // Nobody else rings it.
            pair.rung_for(4)?;
            let peer = pair.peer();
            for i in 0..4u8 {
                let sent = peer.sent(&peer.look(i.into())?)?;
                ensure_eq!(sent.len(), 10 + usize::from(i));
                ensure!(sent.iter().all(|octet| *octet == i));
            }
            ensure_eq!(peer.complete(4, SUCCESS), 4);
            wait_for_room(&pair)?;
            // Unless this thread was interrupted.
            at_once |= Verb::PostSend.calls() - before == 1;
        }
        ensure!(at_once);
        Ok(())
    }

    #[test]
    fn after_a_message_that_waited_alone_none_waits_for_a_while() -> Test {
        let pair = Pair::connected()?;
        let may_wait = || -> Result<bool> {
            let mut batch = pair.owner.begin(1, 1).map_err(|_| EAGAIN)?;
            Ok(batch.may_wait())
        };
        for _ in 0..2 {
            ensure!(may_wait()?);
            pair.send_later(10, 1)?;
            pair.rung_for(1)?;
            let mut refused = 0;
            while !may_wait()? {
                refused += 1;
                ensure_at_least!(1000, refused);
            }
            ensure_at_least!(refused, 1);
            ensure_eq!(pair.peer().complete(1, SUCCESS), 1);
        }
        Ok(())
    }

    #[test]
    fn what_waits_goes_before_what_does_not() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        pair.send_later(10, 1)?;
        pair.send(20, 2)?;
        ensure_eq!(peer.sends(), 2);
        ensure_eq!((peer.look(0)?.len, peer.look(1)?.len), (10, 20));
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        pair.send_later(30, 3)?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        ensure_eq!(peer.sends(), 2);
        ensure_eq!(peer.look(0)?.len, 30);
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        pair.told(Told::Probed)?;
        Ok(())
    }

    #[test]
    fn a_region_is_registered_before_it_is_invalidated() -> Test {
        let pair = Pair::connected()?;
        let lent = Lent::new(&[(0, PAGE_SIZE)])?;
        let mr = IdleMr::alloc(&pair.pd, 4, false)?;
        let mut region = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
        let regions = core::slice::from_mut(&mut region);
        let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        batch.post_later(64, regions)?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(7, regions)?;
        let key = region.window().handle;
        pair.keeper.kept.lock().exposed = Some(region);
        let peer = pair.peer();
        ensure_eq!(peer.sends(), 3);
        let (first, last) = (peer.look(0)?, peer.look(2)?);
        ensure_eq!(first.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
        ensure_eq!(last.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!((first.key, last.key), (key, key));
        ensure_eq!(peer.complete(3, SUCCESS), 3);
        pair.told(Told::Invalidated(7))?;
        ensure!(pair.keeper.kept.lock().back.is_some());
        Ok(())
    }

    #[test]
    fn the_longest_message_always_finds_places() -> Test {
        let mut at_once = false;
        for _ in 0..20 {
            let pair = Pair::connected()?;
            for i in 0..5 {
                pair.send_later(10, i)?;
            }
            // Four may wait, and the fifth rings, unless somebody has rung for some of them.
            at_once |= pair.peer().sends() == 5;
            pair.rung_for(5)?;
        }
        ensure!(at_once);
        let pair = Pair::connected()?;
        // With more regions than there are places it is refused as a whole.
        let mut regions = KVec::new();
        for _ in 0..8 {
            let mr = IdleMr::alloc(&pair.pd, 4, false)?;
            let lent = Lent::new(&[(0, PAGE_SIZE)])?;
            let region = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
            regions.push(region, GFP_KERNEL)?;
        }
        let batch = pair.owner.begin(64, 9).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_later(64, &mut regions), Err(ENOSPC));
        ensure_eq!(pair.peer().sends(), 0);
        Ok(())
    }

    #[test]
    fn the_end_takes_back_what_waits() -> Test {
        for _ in 0..20 {
            let pair = Pair::connected()?;
            pair.send_later(10, 1)?;
            drop(pair);
            // No work is left that had it.
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_doorbell_that_fails_later_is_told() -> Test {
        let pair = Pair::connected()?;
        Verb::PostSend.fail(1);
        pair.send_later(10, 1)?;
        let failed = WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR);
        pair.told(Told::Broken(failed))?;
        ensure_eq!(pair.owner.begin(1, 1).err(), Some(SendError::Closed));
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_probe_is_acknowledged() -> Test {
        let pair = Pair::connected()?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        let posted = pair.peer().look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_RDMA_WRITE);
        ensure_eq!((posted.len, posted.signalled), (0, 1));
        pair.peer().complete(1, SUCCESS);
        pair.told(Told::Probed)?;
        // Without room for a work request there is none.
        let batch = pair.owner.begin(0, 0).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_probe(), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        Ok(())
    }

    #[test]
    fn messages_come_in_and_receives_are_posted_again() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        for i in 0..50usize {
            // CAST: Less than 50.
            let data = [i as u8; 512];
            let data = data.get(..512 - i).unwrap_or(&[]);
            peer.send(Message {
                data,
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 512 - i,
                first: i as u8,
                how: Immediate::None,
            })?;
            // Never less than promised.
            posted_again(&pair)?;
        }
        ensure_eq!(Census::now(), CONNECTED);
        Ok(())
    }

    /// Waits until the handler of the last message has returned, and what it took is posted again.
    fn posted_again(pair: &Pair) -> Result {
        wait_until(|| pair.owner.receives_posted() >= usize::from(CONFIG.recv_count))
    }

    #[test]
    fn immediate_data_are_told_from_messages() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        peer.send(Message {
            data: b"with",
            immediate: true,
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: 4,
            first: b'w',
            how: Immediate::WithSend,
        })?;
        // The count is of octets written elsewhere.
        peer.send(Message {
            data: b"elsewhere",
            immediate: true,
            written: true,
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: 0,
            first: 0,
            how: Immediate::WithWrite,
        })?;
        Ok(())
    }

    #[test]
    fn a_message_may_be_held() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        pair.keeper.kept.lock().hold = true;
        for i in 0..RECVS as usize {
            let data = [b'a' + i as u8; 100];
            peer.send(Message {
                data: data.get(..1 + i).unwrap_or(&[]),
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 1 + i,
                first: b'a' + i as u8,
                how: Immediate::None,
            })?;
        }
        // All buffers are held: nothing is posted, nothing is lost.
        ensure_eq!(pair.owner.receives_posted(), 0);
        ensure_eq!(peer.receives(), 0);
        let held = core::mem::take(&mut pair.keeper.kept.lock().held);
        for (i, message) in held.iter().enumerate() {
            ensure_eq!(message.bytes().len(), 1 + i);
            ensure!(message.bytes().iter().all(|octet| *octet == b'a' + i as u8));
        }
        drop(held);
        ensure_eq!(peer.receives(), RECVS);
        Ok(())
    }

    /// Waits until the handlers of all completions so far have returned.
    fn wait_for_handlers(pair: &Pair) -> Result {
        let probes = pair.keeper.log.count(Told::Probed);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_probe()?;
        pair.peer().complete(1, SUCCESS);
        pair.keeper.log.wait_times(Told::Probed, probes + 1)
    }

    #[test]
    fn what_was_promised_is_posted_without_another_message() -> Test {
        // Each batch with every number of messages that are kept, and come first, last or between.
        for (batch, total) in [(1, 5), (2, 6), (3, 7), (8, 12)] {
            let config = QpConfig {
                recv_batch: batch,
                ..CONFIG
            };
            for (kept, step) in (0..=total).flat_map(|kept| [1, 11].map(|step| (kept, step))) {
                let pair = Pair::with(&config)?.connect()?;
                let peer = pair.peer();
                for i in 0..total {
                    pair.keeper.kept.lock().hold = i * step % total < kept;
                    peer.send(Message {
                        data: &[i as u8],
                        ..Message::default()
                    })?;
                    pair.told(Told::Message {
                        len: 1,
                        first: i as u8,
                        how: Immediate::None,
                    })?;
                }
                wait_for_handlers(&pair)?;
                ensure_eq!(pair.owner.receives_posted(), peer.receives() as usize);
                let held = core::mem::take(&mut pair.keeper.kept.lock().held);
                let now = total - held.len();
                ensure_at_least!(pair.owner.receives_posted() + usize::from(batch), now + 1);
                drop(held);
                ensure_at_least!(peer.receives(), u32::from(config.recv_count) + 1);
                ensure_eq!(pair.owner.receives_posted(), peer.receives() as usize);
            }
        }
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_message_is_in_the_receive_that_took_it() -> Test {
        let pair = Pair::connected()?;
        for i in 0..50u8 {
            // In the order of posting or not; some are kept meanwhile.
            pair.keeper.kept.lock().hold = i % 16 == 1;
            pair.peer().send(Message {
                data: &[i; 100],
                last: i % 3 != 0,
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 100,
                first: i,
                how: Immediate::None,
            })?;
            wait_for_handlers(&pair)?;
        }
        let held = core::mem::take(&mut pair.keeper.kept.lock().held);
        ensure_eq!(held.len(), 4);
        for (message, i) in held.iter().zip([1u8, 17, 33, 49]) {
            ensure!(message.bytes().iter().all(|octet| *octet == i));
        }
        Ok(())
    }

    #[test]
    fn held_messages_outlive_the_connection() -> Test {
        let pair = Pair::connected()?;
        pair.keeper.kept.lock().hold = true;
        pair.peer().send(Message {
            data: b"kept",
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: 4,
            first: b'k',
            how: Immediate::None,
        })?;
        let keeper = pair.keeper.clone();
        drop(pair);
        // The queue pair is gone, its memory is not.
        let left = Census::now();
        ensure_eq!((left.qps, left.connections), (0, 0));
        ensure_eq!(left.mappings, PAIR.mappings);
        let held = core::mem::take(&mut keeper.kept.lock().held);
        ensure!(held.iter().all(|message| message.bytes() == b"kept"));
        drop(held);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_handler_that_is_late_posts_nothing() -> Test {
        let pair = Pair::connected()?;
        // A batch is complete when the last handler returns.
        for i in 1..=CONFIG.recv_batch {
            pair.keeper.kept.lock().slow = i == CONFIG.recv_batch;
            pair.peer().send(Message {
                data: &[i as u8],
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 1,
                first: i as u8,
                how: Immediate::None,
            })?;
        }
        Verb::PostRecv.fail(0);
        drop(pair.owner);
        // The drain's own, behind which nothing may be.
        ensure_eq!(Verb::PostRecv.calls(), 1);
        Ok(())
    }

    #[test]
    fn no_handler_outlives_the_owner_of_a_queue_pair_that_is_not_drained() -> Test {
        for death in [Death::NoModify, Death::NoPost] {
            let pair = Pair::connected()?;
            pair.be_slow_with_a_message()?;
            // Whoever drops the last one waits for the completion queue in any case.
            let handle = pair.owner.handle();
            death.comes();
            drop(pair.owner);
            ensure_eq!(returned(&pair.keeper), 1);
            drop((handle, pair.pd, pair.id));
            calm();
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_receive_that_fails_is_told_once() -> Test {
        let pair = Pair::connected()?;
        pair.peer().send(Message {
            status: bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            ..Message::default()
        })?;
        pair.told(Told::Broken(WcStatus::LOCAL_LENGTH))?;
        let failed = Some((Side::Receive, WcStatus::LOCAL_LENGTH));
        ensure_eq!(
            (pair.owner.failure().first, pair.owner.failure().reason),
            (failed, failed)
        );
        let keeper = pair.keeper.clone();
        drop(pair);
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus::FLUSHED)), 0);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_send_that_fails_is_told_once() -> Test {
        let pair = Pair::connected()?;
        pair.send(10, 0)?;
        let status = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR;
        ensure_eq!(pair.owner.failure(), Failure::default());
        ensure_eq!(pair.peer().complete(1, status), 1);
        pair.told(Told::Broken(WcStatus::RETRY_EXCEEDED))?;
        let (keeper, handle) = (pair.keeper.clone(), pair.owner.handle());
        drop(pair);
        // What is flushed at the end comes later.
        let failed = Some((Side::Send, WcStatus::RETRY_EXCEEDED));
        ensure_eq!(
            (handle.failure().first, handle.failure().reason),
            (failed, failed)
        );
        ensure_eq!(keeper.log.count(Told::Broken(WcStatus::FLUSHED)), 0);
        Ok(())
    }

    #[test]
    fn the_first_event_of_a_failure_is_kept() -> Test {
        let pair = Pair::connected()?;
        for (event, kept) in [
            (bindings::ib_event_type_IB_EVENT_COMM_EST, None),
            (
                bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
                Some(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
            ),
            (
                bindings::ib_event_type_IB_EVENT_QP_FATAL,
                Some(bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR),
            ),
        ] {
            let qp = pair.owner.raw_qp();
            let mut event = bindings::ib_event {
                event,
                ..Default::default()
            };
            // SAFETY: The queue pair is valid; a device calls its handler like this.
            unsafe {
                // CAST: The union's members are pointers, as 64 bits.
                event.element.bindgen_union_field = qp as u64;
                let handler = (*qp).event_handler.ok_or(EINVAL)?;
                handler(&mut event, (*qp).qp_context);
            }
            ensure_eq!(pair.owner.failure().event, kept);
        }
        Ok(())
    }

    #[test]
    fn receives_that_cannot_be_posted_again_break_the_connection() -> Test {
        let pair = Pair::connected()?;
        Verb::PostRecv.fail(1);
        for _ in 0..CONFIG.recv_batch {
            pair.peer().send(Message {
                data: b"x",
                ..Message::default()
            })?;
            pair.keeper
                .log
                .wait(|told| matches!(told, Told::Message { .. }))?;
        }
        let status = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR;
        pair.told(Told::Broken(WcStatus(status)))?;
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    // Whoever keeps a message may give it up with a lock held that a handler takes.
    #[test]
    fn kept_receives_that_cannot_be_posted_again_break_it_too() -> Test {
        let pair = Pair::connected()?;
        pair.keeper.kept.lock().hold = true;
        for first in [1, 2] {
            pair.peer().send(Message {
                data: &[first],
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 1,
                first,
                how: Immediate::None,
            })?;
        }
        let status = Told::Broken(WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR));
        Verb::PostRecv.fail(1);
        {
            let mut kept = pair.keeper.kept.lock();
            kept.held.clear();
            ensure_eq!(Verb::PostRecv.calls(), 1);
        }
        pair.told(status)?;
        drop(pair);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn the_peer_reads_what_it_may_read() -> Test {
        let pair = Pair::connected()?;
        let region = pair.expose(Access::RemoteRead)?;
        let window = region.window();
        let peer = pair.peer();
        let seen = peer.read(window.handle, window.offset, 2 * PAGE_SIZE)?;
        for (i, octet) in seen.iter().enumerate() {
            ensure_eq!(usize::from(*octet), (100 + i) % 251);
        }
        // Not written, not beyond its end, not with the key before.
        ensure!(peer.write(window.handle, window.offset, b"no").is_err());
        ensure!(peer
            .read(window.handle, window.offset + 1, 2 * PAGE_SIZE)
            .is_err());
        ensure!(peer
            .read(window.handle.wrapping_sub(1), window.offset, 1)
            .is_err());
        drop(pair.owner);
        drop(region);
        Ok(())
    }

    // With bounce buffers it is too much for one of them.
    #[test]
    fn much_memory_is_one_range_to_the_peer() -> Test {
        const MANY: usize = 100;
        for gaps in [false, true] {
            let pair = Pair::connected()?;
            let (first, len) = (100, (MANY - 1) * PAGE_SIZE);
            let lent = Lent::of(MANY, &[(first, len)])?;
            // CAST: A few.
            let mut region = IdleMr::alloc(&pair.pd, MANY as u32, gaps)?
                .map(lent, 0, Access::RemoteRead)
                .map_err(|e| e.error)?;
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            batch.post(64, core::slice::from_mut(&mut region))?;
            let peer = pair.peer();
            peer.complete(2, SUCCESS);
            let window = region.window();
            ensure_eq!(window.length as usize, len);
            for at in (0..len - 1000).step_by(PAGE_SIZE - 500) {
                let seen = peer.read(window.handle, window.offset + at as u64, 1000)?;
                for (i, octet) in seen.iter().enumerate() {
                    ensure_eq!(usize::from(*octet), (first + at + i) % 251);
                }
            }
            drop(pair.owner);
            drop(region);
        }
        Ok(())
    }

    #[test]
    fn a_region_with_gaps_is_one_range_to_the_peer() -> Test {
        let pair = Pair::connected()?;
        let pieces = [(17, 100), (3 * PAGE_SIZE + 5, 200), (PAGE_SIZE, 50)];
        let mut region = IdleMr::alloc(&pair.pd, 4, true)?
            .map(Lent::new(&pieces)?, 0, Access::RemoteRead)
            .map_err(|e| e.error)?;
        let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        batch.post(64, core::slice::from_mut(&mut region))?;
        let peer = pair.peer();
        peer.complete(2, SUCCESS);
        let window = region.window();
        let seen = peer.read(window.handle, window.offset, 350)?;
        let expected = pieces.iter().flat_map(|(first, len)| *first..*first + *len);
        for (octet, at) in seen.iter().zip(expected) {
            ensure_eq!(usize::from(*octet), at % 251);
        }
        drop(pair.owner);
        drop(region);
        Ok(())
    }

    #[test]
    fn a_region_comes_back_when_it_is_invalidated_here() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut region = pair.expose(Access::RemoteWrite)?;
        let window = region.window();
        let given_back = region.lender().given_back();
        // Across a page border.
        let data = [0xa5u8; 100];
        peer.write(window.handle, window.offset + PAGE_SIZE as u64 - 150, &data)?;
        ensure!(peer.read(window.handle, window.offset, 1).is_err());
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(77, core::slice::from_mut(&mut region))?;
        pair.keeper.kept.lock().exposed = Some(region);
        let posted = peer.look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!((posted.key, posted.signalled), (window.handle, 1));
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Invalidated(77))?;
        ensure!(peer.write(window.handle, window.offset, b"late").is_err());
        let back = pair.keeper.kept.lock().back.take();
        let (mr, lent) = back.ok_or(EINVAL)?;
        // Only now is it sure that what the device wrote can be read.
        let written = lent.octets().get(PAGE_SIZE - 50..PAGE_SIZE + 50);
        ensure_eq!(written, Some(&data[..]));
        ensure_eq!(given_back.load(kernel::sync::atomic::Relaxed), 0);
        ensure_eq!(Census::now().mappings, CONNECTED.mappings);
        drop((mr, lent));
        Ok(())
    }

    /// Lets the peer send a message that invalidates a region, and waits for its handler.
    fn invalidate(pair: &Pair, data: &[u8], key: u32) -> Test {
        pair.peer().send(Message {
            data,
            invalidates: Some(key),
            ..Message::default()
        })?;
        pair.told(Told::Message {
            len: data.len(),
            first: data[0],
            how: Immediate::None,
        })?;
        Ok(())
    }

    #[test]
    fn a_region_comes_back_when_the_peer_invalidates_it() -> Test {
        let pair = Pair::on(Invalidations::Believed, &CONFIG)?.connect()?;
        let peer = pair.peer();
        let region = pair.expose(Access::RemoteWrite)?;
        let window = region.window();
        peer.write(window.handle, window.offset, &[7; 10])?;
        pair.keeper.kept.lock().exposed = Some(region);
        // Another key proves nothing.
        let other = window.handle.wrapping_add(0x100);
        for (data, key) in [(&b"wrong"[..], other), (&b"right"[..], window.handle)] {
            invalidate(&pair, data, key)?;
            let back = pair.keeper.kept.lock().back.is_some();
            ensure_eq!(back, key == window.handle);
        }
        let back = pair.keeper.kept.lock().back.take();
        let (mr, lent) = back.ok_or(EINVAL)?;
        ensure_eq!(lent.octets().get(100..110), Some(&[7u8; 10][..]));
        ensure_eq!(Census::now().mappings, CONNECTED.mappings);
        // The same region serves again.
        let exposed = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
        ensure!(exposed.window().handle != window.handle);
        Ok(())
    }

    #[test]
    fn an_invalidation_is_no_proof_for_what_waits() -> Test {
        // Until nobody was quicker to ring the doorbell than we are to keep it silent.
        for _ in 0..20 {
            let pair = Pair::on(Invalidations::Believed, &CONFIG)?.connect()?;
            let peer = pair.peer();
            let lent = Lent::new(&[(0, PAGE_SIZE)])?;
            let mr = IdleMr::alloc(&pair.pd, 4, false)?;
            let mut region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            batch.post_later(64, core::slice::from_mut(&mut region))?;
            let silent = Qp::take_bell_back(&pair.owner);
            let window = region.window();
            pair.keeper.kept.lock().exposed = Some(region);
            let invalidate = |data: &[u8]| invalidate(&pair, data, window.handle);
            if silent {
                ensure_eq!(peer.sends(), 0);
                invalidate(b"guessed")?;
                ensure!(pair.keeper.kept.lock().back.is_none());
                pair.send(10, 1)?;
            }
            pair.rung_for(if silent { 3 } else { 2 })?;
            ensure_at_least!(peer.complete(3, SUCCESS), 2);
            peer.write(window.handle, window.offset, b"answer")?;
            invalidate(b"told")?;
            ensure!(pair.keeper.kept.lock().back.take().is_some());
            if silent {
                return Ok(());
            }
        }
        Err(ETIMEDOUT.into())
    }

    /// Exposes a page, later or at once, and lets the peer guess its key before the device has the
    /// registration, or gets to it. Returns what its key gives access to.
    fn guessed(pair: &Pair, later: bool) -> Test<Window> {
        let peer = pair.peer();
        // As the first message is handled, the guess waits to be judged.
        pair.keeper.kept.lock().slow = later;
        let mr = IdleMr::alloc(&pair.pd, 4, false)?;
        let mut region = mr
            .map(Lent::new(&[(0, PAGE_SIZE)])?, 0, Access::RemoteWrite)
            .map_err(|e| e.error)?;
        let window = region.window();
        if later {
            peer.send(Message {
                data: b"slow",
                ..Message::default()
            })?;
            pair.told(Told::Message {
                len: 4,
                first: b's',
                how: Immediate::None,
            })?;
        }
        let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        match later {
            true => batch.post_later(64, core::slice::from_mut(&mut region))?,
            false => batch.post(64, core::slice::from_mut(&mut region))?,
        }
        Qp::take_bell_back(&pair.owner);
        pair.keeper.kept.lock().exposed = Some(region);
        peer.send(Message {
            data: b"guess",
            invalidates: Some(window.handle),
            ..Message::default()
        })?;
        if later {
            // Rings. Half a second later the guess is judged.
            pair.send(10, 1)?;
        }
        Ok(window)
    }

    /// Where the device's word is no proof, a guess frees nothing, nor does a message that is right.
    fn frees_nothing(later: bool) -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let window = guessed(&pair, later)?;
        pair.told(Told::Message {
            len: 5,
            first: b'g',
            how: Immediate::None,
        })?;
        ensure!(pair.keeper.kept.lock().back.is_none());
        ensure_at_least!(peer.complete(3, SUCCESS), 2);
        // So the key works, and what it reaches is still lent.
        peer.write(window.handle, window.offset, b"answer")?;
        invalidate(&pair, b"told", window.handle)?;
        let mut region = {
            let mut kept = pair.keeper.kept.lock();
            ensure!(kept.back.is_none());
            kept.exposed.take().ok_or(EINVAL)?
        };
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(3, core::slice::from_mut(&mut region))?;
        pair.keeper.kept.lock().exposed = Some(region);
        let posted = peer.look(0)?;
        ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_LOCAL_INV);
        ensure_eq!(peer.complete(1, SUCCESS), 1);
        pair.told(Told::Invalidated(3))?;
        ensure!(pair.keeper.kept.lock().back.take().is_some());
        Ok(())
    }

    // The message comes when the registration was posted, and the device gets to that later.
    #[test]
    fn an_invalidation_is_no_proof_where_keys_are_not_checked() -> Test {
        frees_nothing(false)
    }

    // The message comes while the registration waits, and is handled when it was posted.
    #[test]
    fn an_invalidation_that_is_handled_late_is_no_proof() -> Test {
        frees_nothing(true)
    }

    #[test]
    fn a_device_that_checks_keys_refuses_the_message() -> Test {
        for later in [false, true] {
            let pair = Pair::on(Invalidations::Checked, &CONFIG)?.connect()?;
            guessed(&pair, later)?;
            let status = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR;
            pair.told(Told::Broken(WcStatus(status)))?;
            let region = {
                let mut kept = pair.keeper.kept.lock();
                ensure!(kept.back.is_none());
                kept.exposed.take()
            };
            drop(pair.owner);
            drop(region.ok_or(EINVAL)?);
        }
        Ok(())
    }

    #[test]
    fn devices_are_believed_that_are_known() -> Test {
        for (device, believed) in [
            (Invalidations::Unknown, false),
            (Invalidations::Checked, true),
        ] {
            calm();
            device.always();
            let (id, _log) = routed()?;
            let info = DeviceInfo::of(&id).ok_or(ENODEV)?;
            ensure_eq!(info.refuses_stale_keys, believed);
        }
        calm();
        Ok(())
    }

    #[test]
    fn an_invalidation_is_a_proof_once() -> Test {
        let pair = Pair::on(Invalidations::Believed, &CONFIG)?.connect()?;
        let peer = pair.peer();
        let region = pair.expose(Access::RemoteWrite)?;
        let window = region.window();
        {
            let mut kept = pair.keeper.kept.lock();
            kept.exposed = Some(region);
            kept.again = true;
        }
        invalidate(&pair, b"told", window.handle)?;
        ensure_eq!(peer.complete(2, SUCCESS), 2);
        // The same key is valid again.
        peer.write(window.handle, window.offset, b"answer")?;
        let region = {
            let mut kept = pair.keeper.kept.lock();
            ensure!(kept.back.is_none());
            kept.exposed.take()
        };
        drop(pair.owner);
        drop(region.ok_or(EINVAL)?);
        Ok(())
    }

    #[test]
    fn an_invalidation_is_no_proof_for_what_came_later() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut first = pair.expose(Access::RemoteWrite)?;
        let mut second = pair.expose(Access::RemoteWrite)?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(1, core::slice::from_mut(&mut first))?;
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        batch.post_invalidate(2, core::slice::from_mut(&mut second))?;
        pair.keeper.kept.lock().exposed = Some(second);
        // The first completion comes with the second region in hand.
        peer.complete(1, SUCCESS);
        pair.told(Told::Invalidated(1))?;
        ensure!(pair.keeper.kept.lock().back.is_none());
        peer.complete(1, SUCCESS);
        pair.told(Told::Invalidated(2))?;
        ensure!(pair.keeper.kept.lock().back.is_some());
        drop(pair.owner);
        drop(first);
        Ok(())
    }

    #[test]
    fn many_regions_go_with_one_call() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let mut regions = KVec::new();
        for _ in 0..8 {
            let mr = IdleMr::alloc(&pair.pd, 2, false)?;
            let region = mr
                .map(Lent::new(&[(0, 100)])?, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            regions.push(region, GFP_KERNEL)?;
        }
        Verb::PostSend.fail(0);
        let batch = pair.owner.begin(64, 9).map_err(|_| EAGAIN)?;
        batch.post(64, &mut regions)?;
        // One doorbell; registrations before the message that tells of them.
        ensure_eq!(Verb::PostSend.calls(), 1);
        ensure_eq!(peer.sends(), 9);
        ensure_eq!(peer.look(8)?.opcode, bindings::ib_wr_opcode_IB_WR_SEND);
        for (i, region) in regions.iter().enumerate() {
            let posted = peer.look(i as u32)?;
            ensure_eq!(posted.opcode, bindings::ib_wr_opcode_IB_WR_REG_MR);
            ensure_eq!(posted.key, region.window().handle);
        }
        peer.complete(9, SUCCESS);
        wait_for_room(&pair)?;
        let batch = pair.owner.begin(0, 8).map_err(|_| EAGAIN)?;
        batch.post_invalidate(5, &mut regions)?;
        // Only the last speaks.
        for i in 0..8 {
            ensure_eq!(peer.look(i)?.signalled != 0, i == 7);
        }
        peer.complete(8, SUCCESS);
        pair.told(Told::Invalidated(5))?;
        drop(pair.owner);
        drop(regions);
        Ok(())
    }

    #[test]
    fn more_regions_than_there_is_room_for_are_refused() -> Test {
        let pair = Pair::connected()?;
        let mut regions = KVec::new();
        for _ in 0..2 {
            let mr = IdleMr::alloc(&pair.pd, 1, false)?;
            let region = mr
                .map(Lent::new(&[(0, 10)])?, 0, Access::RemoteRead)
                .map_err(|e| e.error)?;
            regions.push(region, GFP_KERNEL)?;
        }
        let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post(64, &mut regions), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_invalidate(1, &mut regions), Err(E2BIG));
        ensure_eq!(pair.peer().sends(), 0);
        let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
        ensure_eq!(batch.post_invalidate::<Lent>(1, &mut []), Err(EINVAL));
        ensure_eq!(pair.peer().sends(), 0);
        drop(pair.owner);
        drop(regions);
        Ok(())
    }

    /// How posting a region on a queue pair ends, at once and later; invalidating it there.
    fn refused(pair: &Pair, region: &mut ExposedMr<Lent>) -> Result<[Result; 3]> {
        let regions = core::slice::from_mut(region);
        let begin = || pair.owner.begin(64, 2).map_err(|_| EAGAIN);
        Ok([
            begin()?.post(64, regions),
            begin()?.post_later(64, regions),
            begin()?.post_invalidate(1, regions),
        ])
    }

    const REFUSED: [Result; 3] = [Err(EINVAL); 3];

    #[test]
    fn a_region_is_for_the_queue_pair_of_its_domain() -> Test {
        let pair = Pair::connected()?;
        let other = Pair::connected()?;
        // On this id, too, there may be another domain; it has no queue pair.
        let second = Pd::alloc(pair.id.clone())?;
        for pd in [&other.pd, &second] {
            let mut region = IdleMr::alloc(pd, 4, false)?
                .map(Lent::new(&[(0, 100)])?, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            ensure_eq!(refused(&pair, &mut region)?, REFUSED);
            // Nothing has happened, to neither.
            ensure_eq!(pair.owner.send_occupancy(), (0, 0));
            ensure_eq!(pair.peer().sends(), 0);
            let (mr, lent) = region.unposted().map_err(|_| EBUSY)?;
            drop((mr, lent));
        }
        // Nor is one invalidated where it was not posted.
        let mut region = other.expose(Access::RemoteWrite)?;
        ensure_eq!(refused(&pair, &mut region)?, REFUSED);
        ensure_eq!(pair.peer().sends(), 0);
        drop(other.owner);
        drop(region);
        pair.send(10, 1)?;
        Ok(())
    }

    #[test]
    fn a_mapping_is_posted_once_and_invalidated_once() -> Test {
        let pair = Pair::connected()?;
        let peer = pair.peer();
        let lent = Lent::new(&[(100, PAGE_SIZE)])?;
        let (mut mr, mut lent) = (IdleMr::alloc(&pair.pd, 4, false)?, lent);
        for later in [false, true] {
            let mut region = mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?;
            let regions = core::slice::from_mut(&mut region);
            // Behind its registration only.
            let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post_invalidate(1, regions), Err(EINVAL));
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            match later {
                false => batch.post(64, regions)?,
                true => batch.post_later(64, regions)?,
            }
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post(64, regions), Err(EINVAL));
            let batch = pair.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            ensure_eq!(batch.post_later(64, regions), Err(EINVAL));
            pair.rung_for(2)?;
            let batch = pair.owner.begin(0, 1).map_err(|_| EAGAIN)?;
            batch.post_invalidate(2, regions)?;
            ensure_eq!(refused(&pair, &mut region)?, REFUSED);
            // The registration, the message, the invalidation.
            ensure_eq!(peer.sends(), 3);
            let window = region.window();
            pair.keeper.kept.lock().exposed = Some(region);
            ensure_eq!(peer.complete(3, SUCCESS), 3);
            pair.keeper
                .log
                .wait_times(Told::Invalidated(2), 1 + usize::from(later))?;
            ensure!(peer.write(window.handle, window.offset, b"late").is_err());
            let back = pair.keeper.kept.lock().back.take();
            (mr, lent) = back.ok_or(EINVAL)?;
        }
        drop((mr, lent));
        ensure_eq!(Census::now().violations, 0);
        Ok(())
    }

    #[test]
    fn work_in_flight_ends_with_the_owner() -> Test {
        let pair = Pair::connected()?;
        for i in 0..10 {
            pair.send(50, i)?;
        }
        let region = pair.expose_without_work()?;
        let handle = pair.owner.handle();
        drop(pair.owner);
        // Nothing can be posted, nothing is: the region may go.
        ensure_eq!(handle.begin(1, 1).err(), Some(SendError::Closed));
        let given_back = region.lender().given_back();
        drop(region);
        ensure_eq!(given_back.load(kernel::sync::atomic::Relaxed), 1);
        drop(handle);
        drop((pair.pd, pair.id));
        drop(pair.keeper);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    impl Pair {
        /// Posts the registration of a region, which the device does not get to.
        fn expose_without_work(&self) -> Result<ExposedMr<Lent>> {
            let mr = IdleMr::alloc(&self.pd, 4, false)?;
            let mut region = mr
                .map(Lent::new(&[(0, 1000)])?, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            let batch = self.owner.begin(64, 2).map_err(|_| EAGAIN)?;
            batch.post(64, core::slice::from_mut(&mut region))?;
            match region.unposted() {
                Ok(_) => Err(EINVAL),
                Err(region) => Ok(region),
            }
        }
    }
}
