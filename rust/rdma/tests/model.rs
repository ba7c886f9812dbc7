// SPDX-License-Identifier: GPL-2.0

//! Random sequences of operations on memory regions. A model says what the peer can access after
//! each step.
//!
//! A sequence uses one connection and a few regions. The regions are mapped, posted, invalidated by
//! either end, lost and dropped, in an order that a seed determines. After each step the test
//! compares with the model which regions have been returned and which are mapped. It also checks,
//! byte by byte, what the device allows the peer to do with every key that the peer ever received.

use super::{
    ensure::Test,
    fake::{
        calm,
        routed,
        Census,
        Kind,
        Seen,
        Verb, //
    },
    lent::Lent,
    log::Log,
    peer::{
        Message,
        Peer, //
    },
};
use crate::{
    cm::ConnectParam,
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
        Qp,
        QpConfig,
        QpHandler,
        QpOwner,
        Received,
        SendError,
        WcStatus, //
    },
};
use core::mem::take;
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_mutex,
        Arc,
        ArcBorrow,
        Mutex, //
    },
    workqueue, //
};
use xprtrdma_base::queue::PromptQueue;
use xprtrdma_bindings as bindings;

/// Number of regions in a sequence.
const REGIONS: usize = 5;
/// Number of random sequences of operations.
const LIVES: u64 = 40;
/// Maximum number of steps in a sequence.
const STEPS: usize = 60;

const CONFIG: QpConfig = QpConfig {
    send_bytes: 4096,
    least_send_bytes: 4096,
    send_wrs: 24,
    signal_every: 6,
    message_wrs: 1 + REGIONS as u16,
    waiting_wrs: 1 + REGIONS as u16,
    recv_count: 4,
    recv_batch: 2,
    recv_more: 0,
    recv_size: 512,
};
/// Number of DMA mappings that the queue pair needs for its send ring and its Receives.
const OWN_MAPPINGS: i32 = 1 + 6;
const REQUEST: ConnectParam = ConnectParam {
    private_data: *b"12345678",
    responder_resources: 4,
    retry_count: 6,
    rnr_retry_count: 0,
};
const SUCCESS: u32 = bindings::ib_wc_status_IB_WC_SUCCESS;
const FAILED: u32 = bindings::ib_wc_status_IB_WC_MW_BIND_ERR;

/// A record of a call of the completion handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Message(u64),
    Invalidated(u64),
    Broken,
}

/// A completion handler that keeps the posted regions. When it receives a proof that a region is
/// invalidated, it tries to take back every region with this proof.
#[pin_data]
struct Holder {
    log: Arc<Log<Told>>,
    #[pin]
    regions: Mutex<Regions>,
}

#[derive(Default)]
struct Regions {
    exposed: KVec<(usize, ExposedMr<Lent>)>,
    back: KVec<(usize, IdleMr, Lent)>,
}

impl Regions {
    fn offer(
        &mut self,
        proves: impl Fn(ExposedMr<Lent>) -> Result<(IdleMr, Lent), ExposedMr<Lent>>,
    ) {
        for (id, region) in take(&mut self.exposed) {
            // If `push` fails, the region is dropped. The test then misses the region, and fails.
            match proves(region) {
                Ok((mr, lent)) => drop(self.back.push((id, mr, lent), GFP_KERNEL)),
                Err(region) => drop(self.exposed.push((id, region), GFP_KERNEL)),
            }
        }
    }
}

impl QpHandler for Arc<Holder> {
    fn queue(&self) -> &PromptQueue {
        PromptQueue::of(workqueue::system_unbound())
    }

    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>) {
        let this = qp.handler();
        if let Some(proof) = message.invalidation() {
            let mut regions = this.regions.lock();
            regions.offer(|region| region.remotely_invalidated(&proof, Echo::Offset));
        }
        let number = message.bytes().first_chunk().copied().unwrap_or_default();
        this.log.add(Told::Message(u64::from_ne_bytes(number)));
    }

    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation) {
        let this = qp.handler();
        let mut regions = this.regions.lock();
        regions.offer(|region| region.locally_invalidated(proof));
        drop(regions);
        this.log.add(Told::Invalidated(token));
    }

    fn probed(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn confirmed(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn acknowledged(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn send_space(_qp: ArcBorrow<'_, Qp<Self>>) {}

    fn broken(qp: ArcBorrow<'_, Qp<Self>>, _status: WcStatus) {
        qp.handler().log.add(Told::Broken);
    }
}

/// A generator of pseudo-random numbers. The numbers are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % sides
    }

    fn access(&mut self) -> Access {
        match self.roll(2) {
            0 => Access::RemoteRead,
            _ => Access::RemoteWrite,
        }
    }
}

/// The model's state of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only this host can access the memory.
    Idle,
    /// The memory is mapped, and nothing was posted.
    Mapped,
    /// The registration is in the queue, and the device has not executed it.
    Told,
    /// The peer can access the memory.
    Registered,
    /// The peer has invalidated the region. The queue pair does not accept this as proven, because
    /// the device is not trusted or the message did not contain the region's offset.
    Void,
    /// The invalidation was posted, and the last invalidation of its group has not completed yet.
    /// The field says whether the peer can still access the memory.
    Ending(bool),
    /// The region was lost, so it is unknown whether the peer can access the memory.
    Lost,
}

/// An entry of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wr {
    Register(usize),
    Message,
    /// The invalidation of a region. Several regions are invalidated as a group. The last
    /// invalidation of a group contains the group's token.
    Invalidate(usize, Option<u64>),
}

/// A region, as the model and the peer see it.
struct Seat {
    state: State,
    idle: Option<(IdleMr, Lent)>,
    mapped: Option<ExposedMr<Lent>>,
    /// The address window and the access with which the region was last exposed.
    window: Option<(Window, Access)>,
    /// The token of the group in which the region is being invalidated.
    group: u64,
    given_back: Arc<Atomic<u32>>,
}

struct Life {
    owner: QpOwner<Arc<Holder>>,
    holder: Arc<Holder>,
    device: Kind,
    seats: KVec<Seat>,
    queue: KVec<Wr>,
    dice: Dice,
    /// Number of messages and invalidations so far.
    count: u64,
    /// Whether the queue pair is shut down: nothing can be posted any more, and no message arrives.
    closed: bool,
    broken: bool,
    trace: KVec<u8>,
}

impl Life {
    fn new(seed: u64) -> Result<Self> {
        calm();
        let device = match seed % 2 {
            0 => Kind::Distrusted,
            _ => Kind::Plain,
        };
        device.always();
        let (id, events) = routed()?;
        let pd = Pd::alloc(id.clone())?;
        let log = Log::new()?;
        let holder = Arc::pin_init(
            pin_init!(Holder {
                log,
                regions <- new_mutex!(Regions::default(), "Holder::regions"),
            }),
            GFP_KERNEL,
        )?;
        let owner = Qp::create(&pd, &CONFIG, holder.clone())?;
        id.connect(&REQUEST)?;
        events.wait(|e| matches!(e, Seen::Established { .. }))?;
        let mut seats = KVec::new();
        for i in 0..REGIONS {
            let lent = Lent::new(&[(i * 100, PAGE_SIZE + 300)])?;
            let seat = Seat {
                state: State::Idle,
                given_back: lent.given_back(),
                idle: Some((IdleMr::alloc(&pd, 2 + i as u32, i % 2 == 1)?, lent)),
                mapped: None,
                window: None,
                group: 0,
            };
            seats.push(seat, GFP_KERNEL)?;
        }
        Ok(Self {
            owner,
            holder,
            device,
            seats,
            queue: KVec::new(),
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            count: 0,
            closed: false,
            broken: false,
            trace: KVec::new(),
        })
    }

    fn peer(&self) -> Peer {
        Peer::of(&self.owner)
    }

    /// Returns the number of a region whose state satisfies `is`, if there is such a region.
    fn pick(&mut self, is: impl Fn(State) -> bool) -> Option<usize> {
        let start = self.dice.roll(REGIONS);
        (0..REGIONS)
            .map(|i| (start + i) % REGIONS)
            .find(|&i| is(self.seats[i].state))
    }

    fn step(&mut self) -> Test {
        let (name, done) = match self.dice.roll(20) {
            0..4 => (b'm', self.map()),
            4 => (b'u', self.unpost()),
            5..9 => (b'p', self.post()),
            9..13 => (b'c', self.complete()),
            13..16 => (b'r', self.remote()),
            16..19 => (b'i', self.invalidate()),
            _ => match self.dice.roll(6) {
                0 => (b'F', self.fail_post()),
                1 => (b'B', self.break_off()),
                _ => (b'c', self.complete()),
            },
        };
        self.trace.push(name, GFP_KERNEL)?;
        done?;
        self.check()
    }

    fn map(&mut self) -> Test {
        let Some(id) = self.pick(|s| s == State::Idle) else {
            return Ok(());
        };
        let access = self.dice.access();
        let seat = &mut self.seats[id];
        let (mr, lent) = seat.idle.take().ok_or(EINVAL)?;
        let region = mr.map(lent, 0, access).map_err(|e| e.error)?;
        let window = region.window();
        if let Some((last, _)) = seat.window {
            // This host chooses only the lowest byte of the key. This byte changes each time the
            // region is mapped.
            ensure_eq!(window.handle >> 8, last.handle >> 8);
            ensure!(window.handle != last.handle);
        }
        seat.window = Some((window, access));
        seat.mapped = Some(region);
        seat.state = State::Mapped;
        Ok(())
    }

    fn unpost(&mut self) -> Test {
        let Some(id) = self.pick(|s| s == State::Mapped) else {
            return Ok(());
        };
        let seat = &mut self.seats[id];
        let region = seat.mapped.take().ok_or(EINVAL)?;
        seat.idle = Some(region.unposted().map_err(|_| EBUSY)?);
        seat.state = State::Idle;
        Ok(())
    }

    /// Takes all mapped regions in ascending order of their numbers. Returns the numbers and the
    /// regions.
    fn take_mapped(&mut self) -> Result<(KVec<usize>, KVec<ExposedMr<Lent>>)> {
        let (mut ids, mut regions) = (KVec::new(), KVec::new());
        for (id, seat) in self.seats.iter_mut().enumerate() {
            if let Some(region) = seat.mapped.take() {
                ids.push(id, GFP_KERNEL)?;
                regions.push(region, GFP_KERNEL)?;
            }
        }
        Ok((ids, regions))
    }

    fn expose(&mut self, ids: &[usize], regions: KVec<ExposedMr<Lent>>, state: State) -> Result {
        let mut held = self.holder.regions.lock();
        for (&id, region) in ids.iter().zip(regions) {
            self.seats[id].state = state;
            held.exposed.push((id, region), GFP_KERNEL)?;
        }
        Ok(())
    }

    fn post(&mut self) -> Test {
        let later = self.dice.roll(3) == 0;
        // The send queue must have space for the registrations and two messages. The first message
        // does not ring the doorbell. The second message rings the doorbell for both.
        let most = 2 + REGIONS as u32;
        if self.closed || !self.owner.has_room(256, most) {
            return Ok(());
        }
        let (ids, mut regions) = self.take_mapped()?;
        let batch = self.owner.begin(64, most).map_err(|_| EAGAIN)?;
        if later {
            batch.post_later(64, &mut regions)?;
            let batch = self.owner.begin(64, 1).map_err(|_| EAGAIN)?;
            batch.post::<Lent>(64, &mut [])?;
        } else {
            batch.post(64, &mut regions)?;
        }
        for &id in &ids {
            self.queue.push(Wr::Register(id), GFP_KERNEL)?;
        }
        for _ in 0..1 + usize::from(later) {
            self.queue.push(Wr::Message, GFP_KERNEL)?;
        }
        self.expose(&ids, regions, State::Told)?;
        ensure_eq!(self.peer().sends() as usize, self.queue.len());
        Ok(())
    }

    /// Makes the device refuse a post. The device may have accepted a part of the post, so all
    /// regions of the post count as lost.
    fn fail_post(&mut self) -> Test {
        if self.closed || !self.owner.has_room(64, 1 + REGIONS as u32) {
            return Ok(());
        }
        let (ids, mut regions) = self.take_mapped()?;
        let batch = self.owner.begin(64, 1 + REGIONS as u32);
        let batch = batch.map_err(|_| EAGAIN)?;
        Verb::PostSend.fail(1);
        ensure!(batch.post(64, &mut regions).is_err());
        calm();
        self.device.always();
        ensure_eq!(self.owner.begin(1, 1).err(), Some(SendError::Closed));
        self.closed = true;
        self.expose(&ids, regions, State::Lost)?;
        Ok(())
    }

    /// Makes the device execute a random number of work requests of its queue.
    fn complete(&mut self) -> Test {
        if self.queue.is_empty() {
            return Ok(());
        }
        let count = 1 + self.dice.roll(self.queue.len());
        ensure_eq!(self.peer().complete(count as u32, SUCCESS), count as u32);
        for _ in 0..count {
            match self.queue.remove(0).map_err(|_| EINVAL)? {
                Wr::Register(id) => match self.seats[id].state {
                    State::Told => self.seats[id].state = State::Registered,
                    State::Ending(_) => self.seats[id].state = State::Ending(true),
                    state => {
                        pr_err!("registered as {state:?}\n");
                        return Err(EINVAL.into());
                    }
                },
                Wr::Message => {}
                Wr::Invalidate(id, last) => {
                    self.seats[id].state = State::Ending(false);
                    let Some(token) = last else { continue };
                    self.holder.log.wait(|t| *t == Told::Invalidated(token))?;
                    for seat in &mut self.seats {
                        if seat.group == token && matches!(seat.state, State::Ending(_)) {
                            seat.state = State::Idle;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the peer send a message that invalidates a key. The key belongs to a region, or to no
    /// region. The peer guesses the key of a region that the device has not registered yet.
    ///
    /// The region is returned only if the message contains the region's offset and the device is
    /// trusted. Otherwise the region stays exposed.
    fn remote(&mut self) -> Test {
        if self.broken {
            return Ok(());
        }
        let hit = self.dice.roll(4) != 0;
        let id = match hit {
            true => self.pick(|s| matches!(s, State::Registered | State::Told)),
            false => self.pick(|s| s == State::Idle),
        };
        let Some((id, (window, _))) = id.and_then(|id| Some((id, self.seats[id].window?))) else {
            return self.message(Some(0x5ead_beef), 0);
        };
        // The peer does not know the offset before the Send has left this host.
        let knows = self.seats[id].state == State::Registered && self.dice.roll(3) != 0;
        let believed = self.device != Kind::Distrusted && knows;
        let state = &mut self.seats[id].state;
        *state = match *state {
            State::Registered if believed => State::Idle,
            State::Registered => State::Void,
            other => other,
        };
        let wrong = 1 << (20 + self.dice.roll(40));
        let offset = match knows {
            true => window.offset,
            false => window.offset ^ wrong,
        };
        self.message(Some(window.handle), offset)
    }

    /// Makes the peer send a message, and waits until the message and all earlier completions are
    /// handled.
    fn message(&mut self, invalidates: Option<u32>, offset: u64) -> Test {
        self.count += 1;
        let number = self.count;
        let mut data = KVec::new();
        data.extend_from_slice(&number.to_ne_bytes(), GFP_KERNEL)?;
        data.extend_from_slice(&offset.to_be_bytes(), GFP_KERNEL)?;
        self.peer().send(Message {
            data: &data,
            invalidates,
            ..Message::default()
        })?;
        self.holder.log.wait(|t| *t == Told::Message(number))?;
        Ok(())
    }

    /// Invalidates some regions, whether or not the device has registered them.
    fn invalidate(&mut self) -> Test {
        if self.closed || !self.owner.has_room(0, REGIONS as u32) {
            return Ok(());
        }
        let (mut ids, mut regions) = (KVec::new(), KVec::new());
        let mut held = self.holder.regions.lock();
        for (id, region) in take(&mut held.exposed) {
            let may = matches!(
                self.seats[id].state,
                State::Told | State::Registered | State::Void
            );
            if may && self.dice.roll(3) != 0 {
                ids.push(id, GFP_KERNEL)?;
                regions.push(region, GFP_KERNEL)?;
            } else {
                held.exposed.push((id, region), GFP_KERNEL)?;
            }
        }
        drop(held);
        let Some((&last, others)) = ids.split_last() else {
            return Ok(());
        };
        self.count += 1;
        let token = self.count;
        let batch = self.owner.begin(0, REGIONS as u32).map_err(|_| EAGAIN)?;
        batch.post_invalidate(token, &mut regions)?;
        for &id in others {
            self.queue.push(Wr::Invalidate(id, None), GFP_KERNEL)?;
        }
        self.queue
            .push(Wr::Invalidate(last, Some(token)), GFP_KERNEL)?;
        let mut held = self.holder.regions.lock();
        for (&id, region) in ids.iter().zip(regions) {
            let seat = &mut self.seats[id];
            seat.state = State::Ending(seat.state == State::Registered);
            seat.group = token;
            held.exposed.push((id, region), GFP_KERNEL)?;
        }
        Ok(())
    }

    /// A work request fails, and the later ones are flushed. Exposed regions stay exposed.
    fn break_off(&mut self) -> Test {
        if self.queue.is_empty() {
            return Ok(());
        }
        self.peer().complete(1, FAILED);
        self.holder.log.wait(|t| *t == Told::Broken)?;
        self.queue.clear();
        (self.closed, self.broken) = (true, true);
        for seat in &mut self.seats {
            if !matches!(seat.state, State::Idle | State::Mapped) {
                seat.state = State::Lost;
            }
        }
        Ok(())
    }

    /// Makes the peer try to read and to write the region. Returns whether the operation that
    /// `access` names succeeded. Returns an error if the other operation succeeded.
    fn reached(&self, window: Window, access: Access) -> Result<bool> {
        let peer = self.peer();
        let read = peer.read(window.handle, window.offset, 1).is_ok();
        let written = peer.write(window.handle, window.offset, b"x").is_ok();
        match access {
            Access::RemoteRead if !written => Ok(read),
            Access::RemoteWrite if !read => Ok(written),
            _ => {
                pr_err!("{access:?}, but read: {read}, written: {written}\n");
                Err(EACCES)
            }
        }
    }

    fn check(&mut self) -> Test {
        if !self.broken {
            // This message is handled after all earlier completions. So the test waits here for all
            // of them.
            self.message(None, 0)?;
        }
        let mut held = self.holder.regions.lock();
        for (id, mr, lent) in take(&mut held.back) {
            ensure_eq!((id, self.seats[id].state), (id, State::Idle));
            ensure!(self.seats[id].idle.replace((mr, lent)).is_none());
        }
        for (id, region) in take(&mut held.exposed) {
            let state = self.seats[id].state;
            ensure!(!matches!(state, State::Idle | State::Mapped));
            let Err(region) = region.unposted() else {
                pr_err!("a region that was posted came back: {state:?}\n");
                return Err(EINVAL.into());
            };
            held.exposed.push((id, region), GFP_KERNEL)?;
        }
        drop(held);
        let mut mapped = 0;
        for (id, seat) in self.seats.iter().enumerate() {
            ensure_eq!((id, seat.idle.is_some()), (id, seat.state == State::Idle));
            ensure_eq!(seat.given_back.load(Relaxed), 0);
            mapped += i32::from(seat.state != State::Idle);
            let Some((window, access)) = seat.window else {
                continue;
            };
            let expected = match seat.state {
                State::Idle | State::Mapped | State::Told | State::Void | State::Ending(false) => {
                    false
                }
                State::Registered | State::Ending(true) => true,
                State::Lost => continue,
            };
            ensure_eq!((id, self.reached(window, access)?), (id, expected));
        }
        ensure_eq!(
            Census::now(),
            Census {
                pds: 1,
                cqs: 1,
                qps: 1,
                mrs: REGIONS as i32,
                mappings: OWN_MAPPINGS + mapped,
                connections: Census::now().connections,
                violations: 0,
            }
        );
        Ok(())
    }

    /// Shuts the queue pair down. Checks that all memory is returned, and that nothing is left.
    fn end(self) -> Test {
        let Self {
            owner,
            holder,
            seats,
            ..
        } = self;
        drop(owner);
        let mut held = holder.regions.lock();
        ensure!(held.back.is_empty());
        // A flushed invalidation does not prove that the peer lost its access. So regions whose
        // invalidations were flushed are still in `exposed`. The queue pair no longer exists, so
        // these regions may be dropped.
        for (id, region) in take(&mut held.exposed) {
            ensure!(!matches!(seats[id].state, State::Idle | State::Mapped));
            ensure_eq!(seats[id].given_back.load(Relaxed), 0);
            drop(region);
            ensure_eq!(seats[id].given_back.load(Relaxed), 1);
        }
        drop(held);
        for seat in seats {
            let given_back = seat.given_back.clone();
            drop(seat);
            ensure_eq!(given_back.load(Relaxed), 1);
        }
        drop(holder);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }
}

#[kunit_tests(xprtrdma_mr_model)]
mod suite {
    use super::*;

    // covers: V1-098, V1-102, V1-103, V1-104, V1-105, V1-106, V1-108, V1-109, V1-110, V1-113
    // covers: CM-18, CM-19, MAL-013, MAL-015, MAL-103, MAL-104, MAL-105
    #[test]
    fn random_lives_agree_with_the_model() -> Test {
        let mut letters = [0u32; 128];
        for seed in 1..=LIVES {
            let mut life = Life::new(seed)?;
            for step in 0..STEPS {
                if let Err(failure) = life.step() {
                    let trace = core::str::from_utf8(&life.trace).unwrap_or("");
                    pr_err!("life {seed}, step {step}: {trace}\n");
                    return Err(failure);
                }
                if life.broken {
                    break;
                }
            }
            for &letter in &life.trace {
                letters[usize::from(letter)] += 1;
            }
            life.end()?;
        }
        // Each kind of event happened at least five times.
        for letter in *b"mupcriFB" {
            ensure_at_least!(letters[usize::from(letter)], 5);
        }
        Ok(())
    }
}
