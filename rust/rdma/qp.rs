// SPDX-License-Identifier: GPL-2.0

//! Queue pair: [`Qp`] owns a reliable connection's queues and the buffers behind them.
//!
//! * The **receive buffers** are a fixed number of one size, each with a completion entry of its own,
//!   so a completion says which buffer it is about. A completed Receive lends its buffer to the
//!   handler as [`Received`]; dropping that gives the buffer back, so every path does so exactly
//!   once. Buffers are posted again in batches.
//! * The **send queue** has a ring of octets from which each Send takes what it needs. A message is
//!   copied there once; nothing else is referenced by a Send, so no memory of an RPC is ever owned
//!   by the queue. Most Sends are unsignalled: a signalled one gives back all before it.
//!
//! Messages may wait for others to be posted with one doorbell ([`SendBatch::post_later`]). A work
//! item rings it if nothing else is posted before.
//!
//! The send queue relies on a property of verbs: its work requests complete in the order in which
//! they were posted. So one `ib_cqe` suffices for it, and a ring takes the place of a list.
//!
//! All completions of a connection arrive at one completion queue and are handled in process
//! context, one at a time ([`crate::cq`]). So the handlers need no lock among
//! themselves: the buffers of messages that end with their handler are gathered without one, which is
//! only taken to post a batch of them.
//!
//! Lock order: the send queue's lock is taken inside of the handler's own locks (see [`SendBatch`]), the
//! receive queue's lock is a leaf.

use crate::{
    cq::{
        Attended,
        Cq, //
    },
    dma::{
        Direction,
        DmaBuf,
        Lender, //
    },
    failure::{
        self,
        Failure,
        Reports,
        Side, //
    },
    marked::Marked,
    mr::{
        ExposedMr,
        LocalInvalidation,
        RemoteInvalidation,
        FIRST_DOORBELL,
        NO_PD, //
    },
    new_spinlock,
    pd::Pd,
    spin::{
        Spin,
        SpinLock, //
    },
};
use core::{
    cell::{
        Cell,
        UnsafeCell, //
    },
    ops::Deref,
    ptr::{self, NonNull},
    slice, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        lock::Guard,
        Arc,
        ArcBorrow,
        UniqueArc, //
    },
    types::{
        NotThreadSafe,
        Opaque, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Queue,
        Work,
        WorkItem, //
    },
};
use xprtrdma_bindings as bindings;

// Sends are aligned to cache lines in the octet ring.
const ALIGN: usize = 64;

/// Octets of the ring that a message takes which is not longer than the ring.
#[inline]
fn aligned(len: usize) -> usize {
    // NO-OVERFLOW: The ring is memory, so its length is far from the end of the numbers.
    len.wrapping_add(ALIGN - 1) & !(ALIGN - 1)
}

/// What a work completion said, for logs and policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcStatus(pub u32);

impl WcStatus {
    /// The work request was flushed because the queue pair had failed before.
    pub const FLUSHED: Self = Self(bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    /// A message was longer than the Receive posted for it.
    pub const LOCAL_LENGTH: Self = Self(bindings::ib_wc_status_IB_WC_LOC_LEN_ERR);
    /// The peer does not acknowledge.
    pub const RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR);
    /// The peer has no Receive for our message.
    pub const RNR_RETRY_EXCEEDED: Self = Self(bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR);
}

/// Handles the completions of one [`Qp`].
///
/// All methods but [`QpHandler::queue`] are called in process context, never concurrently with each
/// other: from a work item on that queue, or from [`Qp::attend`]. They may sleep, but that delays every
/// other completion of the connection. The exception: [`QpHandler::broken`] may also come from the work item
/// that rings the doorbell, beside the others.
pub trait QpHandler: Sized + Send + Sync + 'static {
    /// Where completions are handled and doorbells are rung: always the same.
    ///
    /// If reclaiming memory may have to wait for a message, this must be a queue with a rescuer, and
    /// none on which a [`QpOwner`] is dropped: that waits for completions, which a rescuer at work
    /// there could not handle.
    fn queue(&self) -> &Queue;

    /// A message arrived.
    fn received(qp: ArcBorrow<'_, Qp<Self>>, message: Received<'_, Self>);

    /// The invalidations posted with `token` have completed, and all before them.
    fn invalidated(qp: ArcBorrow<'_, Qp<Self>>, token: u64, proof: &LocalInvalidation);

    /// The probe posted with [`SendBatch::post_probe`] was acknowledged by the peer's device.
    fn probed(qp: ArcBorrow<'_, Qp<Self>>);

    /// Something that we sent was acknowledged by the peer's device.
    fn acknowledged(qp: ArcBorrow<'_, Qp<Self>>);

    /// There is room in the send queue again after a [`SendError::Full`].
    fn send_space(qp: ArcBorrow<'_, Qp<Self>>);

    /// A work request failed: the connection is dead. Called once.
    fn broken(qp: ArcBorrow<'_, Qp<Self>>, status: WcStatus);
}

/// Sizes of a [`Qp`].
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Octets of the send ring, which is one piece of memory.
    pub send_bytes: usize,
    /// With too little memory in one piece it is smaller, but not than this: at least four times the longest
    /// message.
    pub least_send_bytes: usize,
    /// Work requests of the send queue.
    pub send_wrs: u32,
    /// At least every so many work requests one is signalled.
    pub signal_every: u32,
    /// Work requests of the longest message, with its registrations.
    pub message_wrs: u16,
    /// With more work requests than that waiting for the doorbell, it is rung.
    pub waiting_wrs: u16,
    /// Receives to keep posted.
    pub recv_count: u16,
    /// Receives that may be waiting to be posted again at a time.
    pub recv_batch: u16,
    /// Octets of one Receive.
    pub recv_size: usize,
}

/// So many messages do not wait for the doorbell after one that waited alone.
const IMPATIENCE: u32 = 16;

/// Why a message cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No room now; [`QpHandler::send_space`] will be called.
    Full,
    /// The queue pair is dead or being shut down.
    Closed,
}

#[derive(Clone, Copy)]
enum OpKind {
    Send,
    Invalidate { token: u64, seq: u64 },
    Probe,
}

/// A signalled post to the send queue, with what it gives back: its own and all since the one before.
#[derive(Clone, Copy)]
struct Op {
    bytes: usize,
    wrs: u32,
    kind: OpKind,
}

/// A queue of fixed capacity.
struct Fifo<T: Copy> {
    slots: KVec<T>,
    first: usize,
    len: usize,
}

impl<T: Copy> Fifo<T> {
    fn new(capacity: usize, fill: T) -> Result<Self> {
        Ok(Self {
            slots: KVec::from_elem(fill, capacity, GFP_KERNEL)?,
            first: 0,
            len: 0,
        })
    }

    #[inline]
    fn push(&mut self, value: T) -> Result {
        let cap = self.slots.len();
        if self.len == cap {
            return Err(ENOSPC);
        }
        let at = self.first + self.len;
        let at = if at < cap { at } else { at - cap };
        *self.slots.get_mut(at).ok_or(ENOSPC)? = value;
        self.len += 1;
        Ok(())
    }

    #[inline]
    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = *self.slots.get(self.first)?;
        self.first += 1;
        if self.first == self.slots.len() {
            self.first = 0;
        }
        self.len -= 1;
        Some(value)
    }
}

struct SendQueue {
    ring: DmaBuf,
    /// Where the next message goes, and how many octets of the ring are taken.
    head: usize,
    used: usize,
    /// The signalled posts.
    ops: Fifo<Op>,
    wrs: u32,
    depth: u32,
    // Posted since the last signalled post, and with how much of either the next one is signalled.
    quiet_wrs: u32,
    quiet_bytes: usize,
    quiet_wrs_most: u32,
    quiet_bytes_most: usize,
    seq: u64,
    closed: bool,
    want_space: bool,
    // The work request of a Send and its element; what they refer to is only of use within one post.
    send: bindings::ib_send_wr,
    sge: bindings::ib_sge,
    chain: SendChain,
    /// So many messages more do not wait for the doorbell.
    impatience: u32,
}

// SAFETY: The work request is dead between posts; all else is `Send`.
unsafe impl Send for SendQueue {}

impl SendQueue {
    fn new(pd: &Arc<Pd>, config: &QpConfig) -> Result<Self> {
        let send = bindings::ib_send_wr {
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            ..Default::default()
        };
        let ring = Self::ring(pd, config)?;
        let quiet_bytes_most = ring.len() / 4;
        Ok(Self {
            ring,
            head: 0,
            used: 0,
            ops: Fifo::new(
                config.send_wrs as usize,
                Op {
                    bytes: 0,
                    wrs: 0,
                    kind: OpKind::Send,
                },
            )?,
            wrs: 0,
            depth: config.send_wrs,
            quiet_wrs: 0,
            quiet_bytes: 0,
            // Never more than a quarter of anything stays behind the last signalled post, so a full
            // queue always has a completion coming.
            quiet_wrs_most: config.signal_every.min(config.send_wrs / 4),
            quiet_bytes_most,
            seq: 0,
            closed: false,
            want_space: false,
            send,
            sge: Default::default(),
            chain: SendChain::new(config.message_wrs, config.waiting_wrs)?,
            impatience: 0,
        })
    }

    /// Allocates the longest ring for which there is memory.
    fn ring(pd: &Arc<Pd>, config: &QpConfig) -> Result<DmaBuf> {
        let mut len = config.send_bytes;
        loop {
            let ring = DmaBuf::new(pd, len, Direction::ToDevice);
            if ring.is_ok() || len <= config.least_send_bytes {
                return ring;
            }
            len = (len / 2).max(config.least_send_bytes);
        }
    }

    /// Finds room for `len` contiguous octets and `wrs` work requests: (offset, octets skipped).
    #[inline]
    fn room(&self, len: usize, wrs: u32) -> Option<(usize, usize)> {
        let size = self.ring.len();
        if len > size {
            return None;
        }
        // NO-OVERFLOW: The ring is memory, `len` and `head` are at most its length, and no more work
        // requests are in use than there are.
        let len = aligned(len);
        let (offset, skipped) = if self.head.wrapping_add(len) <= size {
            (self.head, 0)
        } else {
            (0, size.wrapping_sub(self.head))
        };
        let used = self.used.wrapping_add(skipped).wrapping_add(len);
        (used <= size && wrs <= self.depth.wrapping_sub(self.wrs)).then_some((offset, skipped))
    }

    /// Accounts for a post, for which there is room.
    #[inline]
    fn account(&mut self, bytes: usize, wrs: u32) {
        // NO-OVERFLOW: No more octets and work requests are in use than exist, and what is quiet is
        // in use.
        self.quiet_wrs = self.quiet_wrs.wrapping_add(wrs);
        self.quiet_bytes = self.quiet_bytes.wrapping_add(bytes);
        self.wrs = self.wrs.wrapping_add(wrs);
        self.used = self.used.wrapping_add(bytes);
    }

    /// Whether the last post must be signalled.
    #[inline]
    fn must_signal(&self) -> bool {
        self.quiet_wrs >= self.quiet_wrs_most || self.quiet_bytes >= self.quiet_bytes_most
    }

    /// Makes the last post a signalled one.
    #[cold]
    fn signal(&mut self, kind: OpKind) -> Result {
        self.ops.push(Op {
            bytes: self.quiet_bytes,
            wrs: self.quiet_wrs,
            kind,
        })?;
        self.quiet_wrs = 0;
        self.quiet_bytes = 0;
        Ok(())
    }

    /// Gives back everything up to the oldest signalled post, whose completion arrived.
    fn complete(&mut self) -> Option<OpKind> {
        let op = self.ops.pop()?;
        self.wrs -= op.wrs;
        self.used -= op.bytes;
        Some(op.kind)
    }
}

/// A place for a registration or a Send that waits.
struct Place {
    /// The work request; of a Send the first part only.
    wr: bindings::ib_reg_wr,
    sge: bindings::ib_sge,
}

/// Messages that wait for the doorbell, each behind the registrations of its regions.
///
/// A registration is a copy, so that the region's own work requests are free for an invalidation. It
/// refers to the region itself, which counts as posted from then on: it is not given back before its
/// invalidation is proven or its queue pair drained, and is leaked if it is dropped before.
///
/// # Invariants
///
/// - The first `len` places are in use. Their work requests are linked in that order, and the last
///   one's `next` is null.
/// - `places` never grows: pointers lead into it.
struct SendChain {
    places: KVec<Place>,
    len: usize,
    messages: u32,
    /// With more places in use nothing waits, so that the longest message still finds its own.
    full: usize,
}

// SAFETY: What the places refer to is the chain's own, or belongs to the queue pair, or is a region
// that its owner keeps; nothing of it has thread affinity.
unsafe impl Send for SendChain {}

impl SendChain {
    fn new(message: u16, full: u16) -> Result<Self> {
        let (message, full) = (usize::from(message), usize::from(full));
        let mut places = KVec::with_capacity(message + full, GFP_KERNEL)?;
        for _ in 0..message + full {
            let place = Place {
                wr: Default::default(),
                sge: Default::default(),
            };
            places.push(place, GFP_KERNEL)?;
        }
        // INVARIANT: None is in use.
        Ok(Self {
            places,
            len: 0,
            messages: 0,
            full,
        })
    }

    /// Adds the registrations of `regions` and a Send of `sge`, for the doorbell with this number, all
    /// with this completion entry. `ENOSPC`: that does not fit, and the chain is as before.
    fn push<L: Lender>(
        &mut self,
        doorbell: u32,
        regions: &mut [ExposedMr<L>],
        sge: bindings::ib_sge,
        flags: c_int,
        cqe: *mut bindings::ib_cqe,
    ) -> Result {
        let wrs = regions.len() + 1;
        let (used, free) = self.places.split_at_mut(self.len);
        let places = free.get_mut(..wrs).ok_or(ENOSPC)?;
        let (last, places) = places.split_last_mut().ok_or(ENOSPC)?;
        last.sge = sge;
        last.wr.wr = bindings::ib_send_wr {
            sg_list: &mut last.sge,
            num_sge: 1,
            opcode: bindings::ib_wr_opcode_IB_WR_SEND,
            send_flags: flags,
            ..Default::default()
        };
        // CAST: The union's first member is the pointer, as 64 bits.
        last.wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        // CAST: The first member of a registration is what all work requests have.
        let mut next = ptr::from_mut(&mut last.wr).cast();
        for (place, region) in places.iter_mut().zip(regions).rev() {
            place.wr = region.new_reg_wr(doorbell, cqe, next);
            next = ptr::from_mut(&mut place.wr).cast();
        }
        if let Some(before) = used.last_mut() {
            before.wr.wr.next = next;
        }
        // INVARIANT: Linked just now.
        self.len += wrs;
        self.messages += 1;
        Ok(())
    }

    /// Empties the chain; returns its beginning, which is valid until something is added.
    fn take(&mut self) -> Option<*const bindings::ib_send_wr> {
        self.messages = 0;
        // INVARIANT: None is in use.
        let used = self.places.get(..core::mem::take(&mut self.len))?;
        // CAST: As in `push`.
        Some(ptr::from_ref(&used.first()?.wr).cast())
    }
}

/// A receive buffer and its work request.
///
/// # Invariants
///
/// - `wr` refers to `cqe` and to `sge`, which refers to `mem`. All are in the table of `qp`, where
///   they stay as long as it lives. The pointer to `cqe` leads to the whole value.
/// - `qp` is as its `Arc` knows it, once something is posted.
/// - `wr` belongs to whom the buffer belongs to.
struct RecvBuf<H: QpHandler> {
    cqe: Opaque<bindings::ib_cqe>,
    wr: Opaque<bindings::ib_recv_wr>,
    sge: Opaque<bindings::ib_sge>,
    mem: DmaBuf,
    qp: UnsafeCell<*const Qp<H>>,
}

impl<H: QpHandler> RecvBuf<H> {
    /// Allocates the buffers of a queue pair. They are of use after [`RecvBuf::bind`]. May sleep.
    fn table(pd: &Arc<Pd>, config: &QpConfig) -> Result<KVVec<Self>> {
        let total = usize::from(config.recv_count) + usize::from(config.recv_batch);
        let mut table = KVVec::with_capacity(total, GFP_KERNEL)?;
        for _ in 0..total {
            let mem = DmaBuf::new(pd, config.recv_size, Direction::FromDevice)?;
            let buf = Self {
                cqe: Opaque::new(bindings::ib_cqe {
                    done: Some(recv_done::<H>),
                }),
                wr: Opaque::new(Default::default()),
                sge: Opaque::new(mem.sge(0, mem.len())),
                mem,
                qp: UnsafeCell::new(ptr::null()),
            };
            table.push(buf, GFP_KERNEL)?;
        }
        Ok(table)
    }

    /// Completes the buffers, whose table is.
    fn bind(mut table: KVVec<Self>) -> KVVec<Self> {
        for buf in table.iter_mut() {
            let this = ptr::from_mut(buf);
            // SAFETY: A field of a valid value.
            let cqe = unsafe { &raw mut (*this).cqe };
            // INVARIANT: The table is complete, and its entries move no more.
            buf.wr = Opaque::new(bindings::ib_recv_wr {
                __bindgen_anon_1: bindings::ib_recv_wr__bindgen_ty_1 {
                    // CAST: The union's first member is the pointer, as 64 bits.
                    bindgen_union_field: cqe as u64,
                    ..Default::default()
                },
                sg_list: buf.sge.get(),
                num_sge: 1,
                ..Default::default()
            });
        }
        table
    }
}

/// Receive buffers of one queue pair that belong to the device and wait to be posted, linked by
/// their work requests.
struct Chain {
    first: *mut bindings::ib_recv_wr,
    len: u32,
}

// SAFETY: What is linked belongs to the chain, wherever that is.
unsafe impl Send for Chain {}

impl Chain {
    const EMPTY: Self = Self {
        first: ptr::null_mut(),
        len: 0,
    };

    /// Adds a buffer, and gives it to the device.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and gives it up.
    #[inline]
    unsafe fn push<H: QpHandler>(&mut self, buf: &RecvBuf<H>) {
        buf.mem.sync_for_device(0, buf.mem.len());
        let wr = buf.wr.get();
        // SAFETY: Valid by the type invariant, and the caller's to write.
        unsafe { (*wr).next = self.first };
        self.first = wr;
        // NO-OVERFLOW: A queue pair's buffers are counted by 32 bits.
        self.len = self.len.wrapping_add(1);
    }

    #[inline]
    fn take(&mut self) -> Self {
        core::mem::replace(self, Self::EMPTY)
    }
}

/// The completion entry of the send queue of a [`Qp`].
///
/// # Invariants
///
/// Once something is posted, `ptr` points to `cqe`, and leads to the whole queue pair as its `Arc` knows it.
#[repr(C)]
struct SendEntry {
    cqe: Opaque<bindings::ib_cqe>,
    ptr: UnsafeCell<*mut bindings::ib_cqe>,
}

impl SendEntry {
    #[inline]
    fn get(&self) -> *mut bindings::ib_cqe {
        // SAFETY: Only written before anybody else has the queue pair.
        unsafe { *self.ptr.get() }
    }
}

struct RecvQueue {
    /// Buffers of dropped [`Held`]s.
    returned: Chain,
    /// How many Receives were ever posted, modulo 2^32.
    posted: u32,
    closed: bool,
    /// Buffers of dropped [`Held`]s could not be posted; the work that rings the doorbell tells of it.
    failed: bool,
}

/// The queue pair of an id.
///
/// # Invariants
///
/// `qp` is valid until `gone` is set. Its context is `reports`, which does not move.
struct RawQp {
    qp: NonNull<bindings::ib_qp>,
    /// Outlives the queue pair: the fields go after `drop`.
    reports: Pin<KBox<Reports>>,
    gone: Atomic<bool>,
    pd: Arc<Pd>,
}

impl RawQp {
    /// Destroys the queue pair, which nobody uses any more. Idempotent. May sleep.
    fn destroy(&self) {
        if !self.gone.xchg(true, Full) {
            // SAFETY: The queue pair was created on this id and is destroyed once; the id lives as
            // long as `pd`.
            unsafe { bindings::rdma_destroy_qp(self.pd.id().as_raw()) }
        }
    }
}

impl Drop for RawQp {
    fn drop(&mut self) {
        self.destroy();
    }
}

/// A queue pair of a reliable connection with its completion queue, rings and handler.
///
/// Its connection lives as long as the [`QpOwner`] that [`Qp::create`] returns. The last handle must be
/// dropped where it may sleep.
///
/// # Invariants
///
/// - The object is in an [`Arc`].
/// - `send_cqe` and those in `recvs` are the only completion entries of work requests on the queue
///   pair, apart from those of the drain; they live as long as the queues.
/// - Handlers run only while the owner exists, which holds a reference: so a reference can be made
///   of the one that they borrow.
/// - The work queue that `handler` named outlives `cq`: a [`Queue`] is always borrowed, so `handler`
///   keeps whatever owns it; `handler` is never changed, and dropped after `cq`.
/// - The queue pair is used under the lock of an open queue, or by `shutdown`, which closes both.
/// - A buffer of `recvs` is either posted, or in `free` or in the receive queue's `returned`, or
///   belongs to one [`Received`] or [`Held`].
/// - `free` is used, and `taken` written, by completion handlers only. They never run at the same
///   time: all completions arrive at `cq`, which sees to that.
#[pin_data]
pub struct Qp<H: QpHandler> {
    broken: Atomic<bool>,
    down: Atomic<bool>,
    send_cqe: SendEntry,
    // Teardown order: queue pair, completion queue, then what they used: work queue and memory.
    raw: RawQp,
    cq: Pin<KBox<Cq>>,
    handler: H,
    #[pin]
    sq: SpinLock<SendQueue>,
    #[pin]
    rq: SpinLock<RecvQueue>,
    /// The number of the next doorbell for messages that wait; written under the lock of `sq`.
    doorbell: Atomic<u32>,
    /// Rings it; not queued once `sq` is closed and this was taken back.
    #[pin]
    bell: Work<Qp<H>>,
    recvs: KVVec<RecvBuf<H>>,
    /// Buffers of messages that ended with their handlers.
    free: UnsafeCell<Chain>,
    /// So many of `free`, or of the receive queue's `returned`, are posted together. What can wait in
    /// both is less than a batch: what was promised is posted even if no further message comes.
    free_batch: u32,
    returned_batch: u32,
    /// How many messages ever came, modulo 2^32.
    taken: Atomic<u32>,
    /// Of which domain a message proves that it invalidated a region.
    proof_pd: usize,
    pd: Arc<Pd>,
}

// SAFETY: Verbs objects have no thread affinity; the rest is `Send`.
unsafe impl<H: QpHandler> Send for Qp<H> {}
// SAFETY: The queues are behind locks, posting is safe from several threads, `H` is `Sync`. `free`
// is used by one thread at a time by the type invariant; of the buffers only their owner uses more
// than addresses.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl_has_work! {
    impl{H: QpHandler} HasWork<Self> for Qp<H> { self.bell }
}

impl<H: QpHandler> WorkItem for Qp<H> {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let mut sq = this.sq.lock();
        if sq.chain.messages == 1 {
            sq.impatience = IMPATIENCE;
        }
        let rung = this.ring(&mut sq);
        drop(sq);
        if rung.is_err() || this.rq.lock().failed {
            Self::report_broken(
                this.as_arc_borrow(),
                Side::Send,
                WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR),
            );
        }
    }
}

impl<H: QpHandler> Qp<H> {
    /// Creates the queue pair of the id behind `pd`, with all buffers, and posts all Receives.
    /// May sleep.
    ///
    /// `EBUSY` if the id has had a queue pair before, `EINVAL` if messages or Receives have no octets.
    pub fn create(pd: &Arc<Pd>, config: &QpConfig, handler: H) -> Result<QpOwner<H>> {
        pd.id().claim_qp()?;
        // Nothing can fail behind the buffers: what is made before them goes in the order of its use.
        let place = UniqueArc::new_uninit(GFP_KERNEL)?;
        let recvs = u32::from(config.recv_count) + u32::from(config.recv_batch);
        // One more of each for the drain.
        let (send_wr, recv_wr) = (config.send_wrs + 1, recvs + 1);
        let cqe = c_int::try_from(send_wr + recv_wr)?;
        // SAFETY: The device of a resolved id exists while `pd` does. By the type invariant of what is
        // made here the work queue outlives it.
        let cq = unsafe { Cq::new(pd.raw_device(), cqe, handler.queue()) }?;
        let reports = KBox::pin(Reports::new(), GFP_KERNEL)?;
        let mut attr = bindings::ib_qp_init_attr {
            event_handler: Some(failure::event),
            qp_context: ptr::from_ref(&*reports).cast_mut().cast(),
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: bindings::ib_qp_cap {
                max_send_wr: send_wr,
                max_recv_wr: recv_wr,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..Default::default()
            },
            sq_sig_type: bindings::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: bindings::ib_qp_type_IB_QPT_RC,
            port_num: u32::MAX,
            ..Default::default()
        };
        let id = pd.id().as_raw();
        // SAFETY: Id, domain and completion queue are valid and on one device.
        to_result(unsafe { bindings::rdma_create_qp(id, pd.as_raw(), &mut attr) })?;
        // SAFETY: A successful call has set the id's queue pair.
        let qp = unsafe { (*id).qp };
        let raw = RawQp {
            qp: NonNull::new(qp).ok_or(ENOMEM)?,
            reports,
            gone: Atomic::new(false),
            pd: pd.clone(),
        };
        let sq = SendQueue::new(pd, config)?;
        let recvs = RecvBuf::table(pd, config)?;
        let batch = u32::from(config.recv_batch);
        let qp = UniqueArc::pin_init_with(
            place,
            pin_init!(Self {
                broken: Atomic::new(false),
                down: Atomic::new(false),
                send_cqe: SendEntry {
                    cqe: Opaque::new(bindings::ib_cqe { done: Some(send_done::<H>) }),
                    ptr: UnsafeCell::new(ptr::null_mut()),
                },
                raw,
                cq,
                handler,
                sq <- new_spinlock!(sq, "Qp::sq"),
                doorbell: Atomic::new(FIRST_DOORBELL),
                bell <- new_work!("Qp::bell"),
                rq <- new_spinlock!(RecvQueue {
                    returned: Chain::EMPTY,
                    posted: 0,
                    closed: false,
                    failed: false,
                }, "Qp::rq"),
                recvs: RecvBuf::bind(recvs),
                free: UnsafeCell::new(Chain::EMPTY),
                free_batch: batch - batch / 4,
                returned_batch: batch / 4 + 1,
                taken: Atomic::new(0),
                proof_pd: match pd.believes_invalidations() {
                    true => pd.as_raw() as usize,
                    false => NO_PD,
                },
                pd: pd.clone(),
            }),
        )?;
        let qp = QpOwner(qp.into());
        let this = Arc::as_ptr(&qp.0);
        // SAFETY: A field of a valid value.
        let cqe = unsafe { &raw const (*this).send_cqe.cqe };
        // CAST: `Opaque` is transparent.
        // SAFETY: Nobody else has the queue pair yet.
        unsafe { *qp.send_cqe.ptr.get() = cqe.cast_mut().cast() };
        let mut all = Chain::EMPTY;
        for buf in &qp.recvs {
            // SAFETY: As above.
            unsafe { *buf.qp.get() = this };
            // SAFETY: Nobody else has them yet.
            unsafe { all.push(buf) };
        }
        qp.post_recvs(&mut qp.rq.lock(), all)?;
        Ok(qp)
    }

    /// The handler.
    #[inline]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// The protection domain, for allocating regions.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Handles completions in the calling thread until `is_over`, which a handler will bring about, with a
    /// full barrier. Returns earlier when a signal is pending, when the thread shall freeze, when
    /// [`Qp::dismiss`] is called, when the connection ends, or at once if it may not or another thread does
    /// this already. Must not be called by a handler, nor with a lock that handlers take. Sleeps; `may` and
    /// `is_over` must not.
    #[inline]
    pub fn attend(&self, may: impl FnOnce() -> bool, is_over: impl Fn() -> bool) -> Attended {
        self.cq.attend(may, is_over)
    }

    /// Sends a thread away that attends, or is about to: others, which may not wait for it, will want
    /// completions handled from now on. Called behind what makes its `may` false. From any context.
    #[inline]
    pub fn dismiss(&self) {
        self.cq.dismiss();
    }

    /// Starts a post: reserves room for a message of up to `max_len` octets and `max_wrs` work requests
    /// and, until the batch is posted or dropped, holds the send queue's lock. Does not sleep.
    #[inline(always)]
    pub fn begin(&self, max_len: usize, max_wrs: u32) -> Result<SendBatch<'_, H>, SendError> {
        let mut sq = self.sq.lock();
        if sq.closed {
            return Err(SendError::Closed);
        }
        let Some((offset, skipped)) = sq.room(max_len, max_wrs) else {
            sq.want_space = true;
            return Err(SendError::Full);
        };
        Ok(SendBatch {
            qp: self,
            sq,
            offset,
            skipped,
            max_len,
            max_wrs,
        })
    }

    /// Whether [`Qp::begin`] would find room now. If not, [`QpHandler::send_space`] will be called,
    /// also if that was promised before and has happened in between.
    pub fn has_room(&self, max_len: usize, max_wrs: u32) -> bool {
        let mut sq = self.sq.lock();
        let room = sq.closed || sq.room(max_len, max_wrs).is_some();
        sq.want_space |= !room;
        room
    }

    /// Hands work requests to the device. On error the connection is dead, and its queue is `closed`.
    ///
    /// # Safety
    ///
    /// `first` begins a well-formed chain, and what the device will use of it outlives the queue pair's
    /// work. The queue is locked and open.
    #[inline]
    unsafe fn submit(&self, closed: &mut bool, first: *const bindings::ib_send_wr) -> Result {
        // SAFETY: By the caller's contract; the queue pair is valid while its queue is open.
        let errno = unsafe { bindings::xprtrdma_post_send(self.raw.qp.as_ptr(), first) };
        if errno == 0 {
            return Ok(());
        }
        *closed = true;
        Err(Error::from_errno(errno))
    }

    /// Hands what waits to the device, unless the queue is closed. On error as [`Qp::submit`], even if
    /// the caller has nothing to do with what waited.
    #[cold]
    fn ring(&self, sq: &mut SendQueue) -> Result {
        if sq.closed {
            return Ok(());
        }
        let Some(first) = sq.chain.take() else {
            return Ok(());
        };
        // Before the post, so that what answers these messages finds them posted: between the two writes
        // are the device and its own barriers.
        let next = self.doorbell.read_once().wrapping_add(1);
        self.doorbell.write_once(next.max(FIRST_DOORBELL));
        // SAFETY: A well-formed chain by its invariant. What it refers to outlives the post: the ring and
        // `send_cqe` belong to `self`, the regions to owners that keep them until they are proven
        // unreachable. The queue is open, and locked, for it is borrowed.
        unsafe { self.submit(&mut sq.closed, first) }
    }

    /// Sees to it that the doorbell is rung. Called with the queue locked and open, so that
    /// [`Qp::shutdown`] finds what is queued here.
    #[cold]
    fn ring_later(&self) {
        // SAFETY: The pointer leads to the whole object, see `SendEntry`.
        let this = unsafe { Self::of_send(self.send_cqe.get()) };
        // An error means that it is queued and has not begun yet.
        let _ = self.handler.queue().enqueue(Arc::from(this));
    }

    /// The queue pair with this entry.
    ///
    /// # Safety
    ///
    /// `cqe` is [`SendEntry::ptr`] of a queue pair of this type, which is not dropped for all of `'a`.
    #[inline]
    unsafe fn of_send<'a>(cqe: *mut bindings::ib_cqe) -> ArcBorrow<'a, Self> {
        let entry: *mut SendEntry = cqe.cast();
        // CAST: The entry is the first member.
        // SAFETY: By the caller's contract.
        let this: *const Self = unsafe { kernel::container_of!(entry, Self, send_cqe) };
        // SAFETY: The pointer is from `Arc::as_ptr`; for the rest by the caller's contract.
        unsafe { ArcBorrow::from_raw(this) }
    }

    /// Takes the work that rings the doorbell off its queue, or waits for its end. True if it will not
    /// run now. May sleep; must not be called by a handler.
    pub(crate) fn take_bell_back(this: &Arc<Self>) -> bool {
        let raw = Arc::as_ptr(this);
        // SAFETY: An initialised work item, kept by `this`; this may sleep.
        let queued =
            unsafe { kernel::bindings::cancel_work_sync(Work::raw_get(&raw const (*raw).bell)) };
        if queued {
            // SAFETY: The queue held one reference for the work that will not run now.
            drop(unsafe { Arc::from_raw(raw) });
        }
        queued
    }

    /// Ends the connection and waits until every work request has completed and its handler has
    /// returned. Afterwards nothing can be posted and the peer reaches nothing through this queue
    /// pair. Idempotent. May sleep; must not be called by the handler.
    fn shutdown(this: &Arc<Self>) {
        this.sq.lock().closed = true;
        this.rq.lock().closed = true;
        if this.down.xchg(true, Full) {
            return;
        }
        this.cq.close();
        // What waits is not posted any more, and nothing is queued from here on.
        Self::take_bell_back(this);
        // An error means that there was no connection: the drain moves the queue pair itself.
        let _ = this.pd.id().disconnect();
        // SAFETY: The queue pair is valid; each queue has a spare entry, and nobody else posts.
        unsafe { bindings::ib_drain_qp(this.raw.qp.as_ptr()) };
        // At once, for a provider may keep references to regions in the queue pair. Nobody uses it
        // any more: both queues are closed.
        this.raw.destroy();
        // Nothing completes any more, but if the drain has failed a handler may be at work.
        this.cq.stop();
        this.pd.set_drained();
    }

    /// What the device has told of a failure. Whatever is seen while the connection is ended is in it, too.
    pub fn failure(&self) -> Failure {
        self.raw.reports.seen()
    }

    /// Octets of the send ring and work requests of the send queue in use, for statistics.
    pub fn send_occupancy(&self) -> (usize, u32) {
        let sq = self.sq.lock();
        (sq.used, sq.wrs)
    }

    /// Receives posted now, for statistics.
    pub fn receives_posted(&self) -> usize {
        let rq = self.rq.lock();
        // What is taken was posted before, and nothing is posted now.
        rq.posted.wrapping_sub(self.taken.load(Relaxed)) as usize
    }

    #[cfg(xprtrdma_kunit)]
    pub(crate) fn raw_qp(&self) -> *mut bindings::ib_qp {
        self.raw.qp.as_ptr()
    }

    /// Takes the buffer of a message back whose handler ends. True if a batch of them has come
    /// together, which is to be posted.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler, which owns the buffer and gives it up.
    #[inline]
    unsafe fn give_back(&self, buf: &RecvBuf<H>) -> bool {
        // SAFETY: By the type invariant nobody else uses it now.
        let free = unsafe { &mut *self.free.get() };
        // SAFETY: By this function's contract.
        unsafe { free.push(buf) };
        free.len >= self.free_batch
    }

    /// Posts the buffers of messages whose handlers have ended.
    ///
    /// # Safety
    ///
    /// Only to be called by a completion handler.
    #[cold]
    unsafe fn post_free(this: ArcBorrow<'_, Self>) {
        // SAFETY: By the type invariant nobody else uses it now.
        let free = unsafe { (*this.free.get()).take() };
        if this.post_recvs(&mut this.rq.lock(), free).is_err() {
            let status = WcStatus(bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR);
            Self::report_broken(this, Side::Receive, status);
        }
    }

    /// Takes the buffer of a message back that was kept beyond its handler, and posts such buffers
    /// if there are enough.
    ///
    /// # Safety
    ///
    /// The caller owns the buffer, and gives it up.
    unsafe fn give_back_held(&self, buf: &RecvBuf<H>) {
        let mut rq = self.rq.lock();
        // SAFETY: By this function's contract.
        unsafe { rq.returned.push(buf) };
        if rq.returned.len < self.returned_batch {
            return;
        }
        let returned = rq.returned.take();
        if self.post_recvs(&mut rq, returned).is_err() {
            rq.failed = true;
            drop(rq);
            self.tell_later();
        }
    }

    /// Has the work that rings the doorbell tell of what has failed: the caller may hold locks of handlers.
    #[cold]
    fn tell_later(&self) {
        let sq = self.sq.lock();
        if !sq.closed {
            self.ring_later();
        }
    }

    /// Posts Receives. Once the queue is closed, which comes before the drain, their buffers are only
    /// for the teardown.
    fn post_recvs(&self, rq: &mut RecvQueue, chain: Chain) -> Result {
        if rq.closed {
            return Ok(());
        }
        rq.posted = rq.posted.wrapping_add(chain.len);
        // SAFETY: A well-formed chain on a valid queue pair, which the buffers outlive.
        let posted = unsafe { bindings::xprtrdma_post_recv(self.raw.qp.as_ptr(), chain.first) };
        if posted != 0 {
            // Some may have been posted: only a teardown can tell which.
            rq.closed = true;
        }
        to_result(posted)
    }

    fn report_broken(this: ArcBorrow<'_, Self>, side: Side, status: WcStatus) {
        this.raw.reports.failed(side, status);
        if !this.broken.xchg(true, Relaxed) {
            H::broken(this, status);
        }
    }
}

/// The owner of a connection: dropping it ends the connection and waits until every work request
/// has completed and its handler has returned.
///
/// Others may hold the [`Qp`] longer, but nothing can be posted any more, no handler runs, and the
/// peer reaches nothing through it. Must be dropped where it may sleep, and not by a handler.
pub struct QpOwner<H: QpHandler>(Arc<Qp<H>>);

impl<H: QpHandler> QpOwner<H> {
    /// A handle that does not own the connection.
    pub fn handle(&self) -> Arc<Qp<H>> {
        self.0.clone()
    }
}

impl<H: QpHandler> Deref for QpOwner<H> {
    type Target = Arc<Qp<H>>;

    fn deref(&self) -> &Arc<Qp<H>> {
        &self.0
    }
}

impl<H: QpHandler> Drop for QpOwner<H> {
    fn drop(&mut self) {
        Qp::shutdown(&self.0);
    }
}

/// A post in the making: room for one message, and the send queue's lock.
///
/// Locks that a handler takes from [`QpHandler::invalidated`] and friends may be held while a batch is
/// begun; those must not be taken while a batch is held.
pub struct SendBatch<'a, H: QpHandler> {
    qp: &'a Qp<H>,
    sq: Guard<'a, SendQueue, Spin>,
    offset: usize,
    skipped: usize,
    max_len: usize,
    max_wrs: u32,
}

impl<H: QpHandler> SendBatch<'_, H> {
    /// The room for the message.
    #[inline]
    pub fn buffer(&mut self) -> &mut [u8] {
        // SAFETY: These octets of the ring are free, i.e. no posted or waiting Send refers to them, and
        // stay so while the lock is held. They were initialised when the ring was allocated.
        unsafe { slice::from_raw_parts_mut(self.sq.ring.ptr().add(self.offset), self.max_len) }
    }

    /// Accounts for a Send of the first `len` octets of the buffer behind registrations of `regions`.
    /// Returns what it sends, and its flags.
    #[inline(always)]
    fn add<L: Lender>(
        &mut self,
        len: usize,
        regions: &[ExposedMr<L>],
    ) -> Result<(bindings::ib_sge, c_int)> {
        if !regions.iter().all(|r| r.may_be_posted(&self.qp.pd)) {
            return Err(EINVAL);
        }
        // NO-OVERFLOW: A list in memory is shorter.
        let wrs = (regions.len() as u32).wrapping_add(1);
        if len > self.max_len {
            return Err(EINVAL);
        }
        if wrs > self.max_wrs {
            return Err(E2BIG);
        }
        let sq = &mut *self.sq;
        // NO-OVERFLOW: There is room for `max_len` octets behind `offset`, and for what is skipped.
        sq.account(self.skipped.wrapping_add(aligned(len)), wrs);
        let signalled = sq.must_signal();
        if signalled {
            sq.signal(OpKind::Send)?;
        }
        sq.head = self.offset.wrapping_add(aligned(len));
        sq.ring.sync_for_device(self.offset, len);
        Ok((sq.ring.sge(self.offset, len), flags(signalled)))
    }

    /// Posts registrations of `regions`, then a Send of the first `len` octets of the buffer: one
    /// doorbell. On error the connection is dead and part of it may have been posted.
    ///
    /// `EINVAL`, and nothing has happened, if a region is of another domain than the queue pair or was
    /// posted since it was mapped.
    #[inline(always)]
    pub fn post<L: Lender>(mut self, len: usize, regions: &mut [ExposedMr<L>]) -> Result {
        let (sge, flags) = self.add(len, regions)?;
        let qp = self.qp;
        let sq = &mut *self.sq;
        if sq.chain.len != 0 {
            qp.ring(sq)?;
        }
        let cqe = qp.send_cqe.get();
        sq.sge = sge;
        sq.send.sg_list = &mut sq.sge;
        sq.send.send_flags = flags;
        // CAST: The union's first member is the pointer, as 64 bits.
        sq.send.__bindgen_anon_1.bindgen_union_field = cqe as u64;
        let mut first: *mut bindings::ib_send_wr = &mut sq.send;
        for region in regions.iter_mut().rev() {
            first = region.reg_wr(cqe, first);
        }
        // SAFETY: The chain ends with `sq.send`, whose `next` is null. What it refers to outlives the
        // post: the ring and `send_cqe` belong to `qp`, the regions to owners that keep them until
        // they are proven unreachable or, as they are of this domain, this queue pair is drained.
        unsafe { qp.submit(&mut sq.closed, first) }
    }

    /// Whether waiting is worth it, as the last messages that waited have shown. To be asked once for
    /// each message that may wait: those that do not are counted.
    #[inline]
    pub fn may_wait(&mut self) -> bool {
        let patient = self.sq.impatience == 0;
        self.sq.impatience = self.sq.impatience.saturating_sub(1);
        patient
    }

    /// As [`SendBatch::post`], but the doorbell is rung before long: after what else is queued on
    /// [`QpHandler::queue`] now, by the next post that does not wait, or when too much waits. For messages
    /// of which more may follow at once. If it fails later, [`QpHandler::broken`] is called.
    #[inline(never)]
    pub fn post_later<L: Lender>(mut self, len: usize, regions: &mut [ExposedMr<L>]) -> Result {
        let (sge, flags) = self.add(len, regions)?;
        let qp = self.qp;
        let sq = &mut *self.sq;
        let (doorbell, cqe) = (qp.doorbell.read_once(), qp.send_cqe.get());
        if let Err(error) = sq.chain.push(doorbell, regions, sge, flags, cqe) {
            // It was accounted for already.
            sq.closed = true;
            return Err(error);
        }
        if sq.chain.len > sq.chain.full {
            return qp.ring(sq);
        }
        if sq.chain.messages == 1 {
            qp.ring_later();
        }
        Ok(())
    }

    /// Posts an RDMA Write of no octets: the peer's device acknowledges it without a key, a credit
    /// or anybody's help, and [`QpHandler::probed`] is called. On error the connection is dead.
    pub fn post_probe(self) -> Result {
        let Self {
            qp,
            sq: mut guard,
            max_wrs,
            ..
        } = self;
        if max_wrs == 0 {
            return Err(E2BIG);
        }
        let sq = &mut *guard;
        let mut write = bindings::ib_rdma_wr::default();
        write.wr.opcode = bindings::ib_wr_opcode_IB_WR_RDMA_WRITE;
        write.wr.send_flags = flags(true);
        // CAST: The union's first member is the pointer, as 64 bits.
        write.wr.__bindgen_anon_1.bindgen_union_field = qp.send_cqe.get() as u64;
        qp.ring(sq)?;
        sq.account(0, 1);
        sq.signal(OpKind::Probe)?;
        // SAFETY: One work request, without memory.
        unsafe { qp.submit(&mut sq.closed, &write.wr) }
    }

    /// Posts invalidations of `regions`; when the last has completed,
    /// [`QpHandler::invalidated`] is called with `token`. On error the connection is dead.
    ///
    /// `EINVAL`, and nothing has happened, if there is no region, or one of another domain, or one that
    /// was not posted or is being invalidated already.
    pub fn post_invalidate<L: Lender>(self, token: u64, regions: &mut [ExposedMr<L>]) -> Result {
        let Self {
            qp,
            sq: mut guard,
            max_wrs,
            ..
        } = self;
        let wrs = regions.len() as u32;
        if wrs > max_wrs {
            return Err(E2BIG);
        }
        if wrs == 0 || !regions.iter().all(|r| r.may_be_invalidated(&qp.pd)) {
            return Err(EINVAL);
        }
        let sq = &mut *guard;
        // What waits may be their registrations.
        qp.ring(sq)?;
        sq.seq += 1;
        let seq = sq.seq;
        let mut first = ptr::null_mut();
        // The queue works in order: the last completion speaks for all.
        let mut signalled = true;
        for region in regions.iter_mut().rev() {
            let wr = region.inv_wr(seq, qp.send_cqe.get(), first);
            wr.send_flags = flags(signalled);
            signalled = false;
            first = wr;
        }
        sq.account(0, wrs);
        sq.signal(OpKind::Invalidate { token, seq })?;
        // SAFETY: A chain of the regions' own work requests; for the rest as in `post`.
        unsafe { qp.submit(&mut sq.closed, first) }
    }
}

#[inline]
fn flags(signalled: bool) -> c_int {
    if signalled {
        // CAST: A single bit.
        bindings::ib_send_flags_IB_SEND_SIGNALED as c_int
    } else {
        0
    }
}

/// A message in its receive buffer, lent to [`QpHandler::received`].
///
/// It stays in the thread of the handler and ends with it at the latest: the lifetime and
/// [`NotThreadSafe`] see to that.
///
/// # Invariants
///
/// The buffer is one of `qp` and belongs to this value, and the device wrote `len` octets into it.
pub struct Received<'a, H: QpHandler> {
    qp: ArcBorrow<'a, Qp<H>>,
    buf: &'a RecvBuf<H>,
    len: usize,
    invalidated: Option<RemoteInvalidation<'a>>,
    immediate: Immediate,
    _in_handler: NotThreadSafe,
}

/// Immediate data of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// There were none.
    None,
    /// They came with a message (MAL-011).
    WithSend,
    /// They came with an RDMA Write: a Receive was used up, but there is no message (MAL-012).
    WithWrite,
}

impl<H: QpHandler> Received<'_, H> {
    /// The message's octets, as received from the network.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: By the type invariant; the buffer is not posted while `self` exists.
        unsafe { slice::from_raw_parts(self.buf.mem.ptr(), self.len) }
    }

    /// The region that the message invalidated, as the device says.
    #[inline]
    pub fn invalidation(&self) -> Option<&RemoteInvalidation<'_>> {
        self.invalidated.as_ref()
    }

    /// Whether immediate data came, and how.
    #[inline]
    pub fn immediate(&self) -> Immediate {
        self.immediate
    }

    /// Keeps the buffer beyond the handler.
    pub fn hold(self) -> Held<H> {
        let held = Held {
            qp: Arc::from(self.qp),
            buf: NonNull::from(self.buf),
            len: self.len,
        };
        core::mem::forget(self);
        held
    }
}

impl<H: QpHandler> Drop for Received<'_, H> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: Handlers are the only place where such a value is, and it is not used again.
        if unsafe { self.qp.give_back(self.buf) } {
            // SAFETY: As above.
            unsafe { Qp::post_free(self.qp) };
        }
    }
}

/// A message that outlives its handler call. Dropping it gives the buffer back, from any context, but not
/// while a [`SendBatch`] is held.
///
/// # Invariants
///
/// As for [`Received`].
pub struct Held<H: QpHandler> {
    qp: Arc<Qp<H>>,
    buf: NonNull<RecvBuf<H>>,
    len: usize,
}

// SAFETY: Exclusive access to a buffer that `qp` keeps.
unsafe impl<H: QpHandler> Send for Held<H> {}

impl<H: QpHandler> Held<H> {
    fn buf(&self) -> &RecvBuf<H> {
        // SAFETY: By the type invariant it is in the table of `qp`.
        unsafe { self.buf.as_ref() }
    }

    /// The message's octets, as received from the network.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: As for `Received::bytes`.
        unsafe { slice::from_raw_parts(self.buf().mem.ptr(), self.len) }
    }
}

impl<H: QpHandler> Drop for Held<H> {
    fn drop(&mut self) {
        // SAFETY: The buffer is not used again.
        unsafe { self.qp.give_back_held(self.buf()) };
    }
}

/// # Safety
///
/// Called by ib_core only, for a work request posted with the `cqe` of a [`RecvBuf<H>`].
unsafe extern "C" fn recv_done<H: QpHandler>(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: `wc` is valid for the call.
    let wc = unsafe { &*wc };
    // CAST: As posted.
    let cqe = wc.__bindgen_anon_1.bindgen_union_field as *mut Opaque<bindings::ib_cqe>;
    // SAFETY: By this function's contract the entry is that field of a `RecvBuf<H>`.
    let buf: *const RecvBuf<H> = unsafe { kernel::container_of!(cqe, RecvBuf<H>, cqe) };
    // SAFETY: The buffer is in the table of its queue pair, see below.
    let buf = unsafe { &*buf };
    // SAFETY: Written before anything was posted, and not since.
    let this = unsafe { *buf.qp.get() };
    // SAFETY: The object is in an `Arc` of which the owner holds a reference; it drains the queues,
    // and so waits for this handler, before it gives that up.
    let qp = unsafe { ArcBorrow::from_raw(this) };
    if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
        Qp::report_broken(qp, Side::Receive, WcStatus(wc.status));
        return;
    }
    let immediate = if wc.wc_flags as u32 & bindings::ib_wc_flags_IB_WC_WITH_IMM == 0 {
        Immediate::None
    } else if wc.opcode == bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM {
        Immediate::WithWrite
    } else {
        Immediate::WithSend
    };
    let len = match immediate {
        // The octets are counted, but not here.
        Immediate::WithWrite => 0,
        _ => core::cmp::min(wc.byte_len as usize, buf.mem.len()),
    };
    buf.mem.sync_for_cpu(0, len);
    // Nobody else writes it, by the type invariant.
    qp.taken.write_once(qp.taken.read_once().wrapping_add(1));
    let invalidated =
        (wc.wc_flags as u32 & bindings::ib_wc_flags_IB_WC_WITH_INVALIDATE != 0).then(|| {
            RemoteInvalidation {
                rkey: wc.ex.bindgen_union_field,
                pd: Cell::new(qp.proof_pd),
                // SAFETY: As for `qp`.
                doorbell: unsafe { &(*this).doorbell },
            }
        });
    H::received(
        qp,
        // INVARIANT: The Receive has completed, so the buffer is ours.
        Received {
            qp,
            buf,
            len,
            invalidated,
            immediate,
            _in_handler: NotThreadSafe,
        },
    );
    qp.cq.handled();
}

/// # Safety
///
/// Called by ib_core only, for a work request posted with the `send_cqe` of a [`Qp<H>`].
unsafe extern "C" fn send_done<H: QpHandler>(_cq: *mut bindings::ib_cq, wc: *mut bindings::ib_wc) {
    // SAFETY: `wc` is valid for the call.
    let wc = unsafe { &*wc };
    // CAST: As posted.
    let cqe = wc.__bindgen_anon_1.bindgen_union_field as *mut bindings::ib_cqe;
    // SAFETY: By this function's contract; the owner keeps the queue pair as in `recv_done`.
    let qp = unsafe { Qp::<H>::of_send(cqe) };
    if wc.status != bindings::ib_wc_status_IB_WC_SUCCESS {
        // What was posted is given back by the teardown, which ends the queue pair's life.
        Qp::report_broken(qp, Side::Send, WcStatus(wc.status));
        return;
    }
    let (op, wake) = {
        let mut sq = qp.sq.lock();
        let op = sq.complete();
        (op, core::mem::replace(&mut sq.want_space, false))
    };
    match op {
        Some(OpKind::Send) => H::acknowledged(qp),
        Some(OpKind::Invalidate { token, seq }) => {
            let proof = LocalInvalidation {
                seq,
                pd: qp.pd.as_raw() as usize,
            };
            H::invalidated(qp, token, &proof);
        }
        Some(OpKind::Probe) => H::probed(qp),
        None => {}
    }
    if wake {
        H::send_space(qp);
    }
    qp.cq.handled();
}
