// SPDX-License-Identifier: GPL-2.0

//! A driver without a connection. The driver itself replies to calls, immediately or when a test
//! requests a reply. A test can select a step in which the driver fails.

use super::wait::wait_until;
use crate::{
    call::{
        Call,
        Encoded,
        Leaving,
        Waiting, //
    },
    callback::Callback,
    common::Common,
    lease::{
        Lease,
        Message, //
    },
    settings::{
        Check,
        Setting, //
    },
    transport::{
        Create,
        Limits,
        NotSent,
        Transport, //
    },
    xdr_buf::Part,
    xprt::{
        ConnectLock,
        SendLock,
        Xprt, //
    },
};
use core::net::SocketAddr;
use kernel::{
    bindings::page,
    new_spinlock,
    prelude::*,
    seq_file::SeqFile,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};
use xprtrdma_base::{
    lend::Loan,
    time::Jiffies, //
};
use xprtrdma_bindings as bindings;

/// The text of a setting that the driver refuses.
pub(super) const REFUSED: &str = "refused";

/// The step in which the driver fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Limits,
    New,
    /// The driver fails when it creates the slot with this number. The first slot has the number 1.
    Call(i32),
    Start,
}

/// The ways in which the driver treats a call that it must send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The reply arrives before `send` returns.
    Answered = 0,
    /// The call is sent, and the driver remembers its xid.
    Kept = 1,
    /// The first attempt to send the call fails. The second one succeeds, and a reply arrives.
    Waits = 2,
    NoBuffers = 3,
    NotConnected = 4,
    /// The driver ends the call with an error while the call is being sent.
    Refused = 5,
    /// The first call fails before its task can sleep. While the first call is sent, a second call
    /// waits for the send lock. So the thread of the first call also sends the second call. During
    /// that send, the driver ends the first call with an error.
    FailsAwake = 6,
    /// The call is sent, the driver remembers its xid, and its pages are lent.
    Lent = 7,
}

const FATES: [Fate; 8] = [
    Fate::Answered,
    Fate::Kept,
    Fate::Waits,
    Fate::NoBuffers,
    Fate::NotConnected,
    Fate::Refused,
    Fate::FailsAwake,
    Fate::Lent,
];

static FAIL_LIMITS: Atomic<i32> = Atomic::new(0);
static FAIL_NEW: Atomic<i32> = Atomic::new(0);
static FAIL_CALL: Atomic<i32> = Atomic::new(0);
static FAIL_START: Atomic<i32> = Atomic::new(0);
static FATE: Atomic<i32> = Atomic::new(0);
static FAIL_CONNECTS: Atomic<i32> = Atomic::new(0);
static SLOTS: Atomic<i32> = Atomic::new(4);
static LINGER_MS: Atomic<i32> = Atomic::new(0);

/// Counters of the driver's objects and of the calls of its functions.
pub(super) static DRIVERS: Atomic<i32> = Atomic::new(0);
pub(super) static CALLS: Atomic<i32> = Atomic::new(0);
pub(super) static STARTS: Atomic<i32> = Atomic::new(0);
pub(super) static STOPS: Atomic<i32> = Atomic::new(0);
pub(super) static CONNECTS: Atomic<i32> = Atomic::new(0);
pub(super) static CLOSES: Atomic<i32> = Atomic::new(0);
pub(super) static SENDS: Atomic<i32> = Atomic::new(0);
pub(super) static REVOKES: Atomic<i32> = Atomic::new(0);
pub(super) static ABANDONS: Atomic<i32> = Atomic::new(0);
pub(super) static TIMEOUTS: Atomic<i32> = Atomic::new(0);
pub(super) static CHECKS: Atomic<i32> = Atomic::new(0);

/// Resets the driver. Afterwards all steps succeed and all calls get replies. All counts are zero,
/// except the counts of existing objects.
pub(super) fn calm() {
    for one in [
        &FAIL_LIMITS,
        &FAIL_NEW,
        &FAIL_CALL,
        &FAIL_START,
        &FATE,
        &FAIL_CONNECTS,
        &STARTS,
        &STOPS,
        &CONNECTS,
        &CLOSES,
        &SENDS,
        &REVOKES,
        &ABANDONS,
        &TIMEOUTS,
        &CHECKS,
    ] {
        one.store(0, Relaxed);
    }
    SLOTS.store(4, Relaxed);
    // At its end a call waits at most ten minutes until its memory is no longer lent. In practice
    // no test reaches this limit. Only synchronous tasks that run outside of kernel workers wait.
    linger(600_000);
}

/// Sets the time limit, in milliseconds, of the wait at the end of a call. The call waits until its
/// memory is no longer lent, or until the time limit is reached.
pub(super) fn linger(ms: i32) {
    LINGER_MS.store(ms, Relaxed);
}

/// Sets the number of slots of transports that are created from now on.
pub(super) fn slots(count: u16) {
    SLOTS.store(count.into(), Relaxed);
}

/// Makes the driver fail once in the step `step`.
pub(super) fn fail(step: Step) {
    match step {
        Step::Limits => FAIL_LIMITS.store(1, Relaxed),
        Step::New => FAIL_NEW.store(1, Relaxed),
        Step::Call(nth) => FAIL_CALL.store(nth, Relaxed),
        Step::Start => FAIL_START.store(1, Relaxed),
    }
}

/// Makes the next `count` connection attempts fail.
pub(super) fn fail_connects(count: i32) {
    FAIL_CONNECTS.store(count, Relaxed);
}

/// Sets what happens to calls that are sent from now on.
pub(super) fn fate(fate: Fate) {
    FATE.store(fate as i32, Relaxed);
}

/// Decrements `countdown`, the number of calls until the driver fails. Returns an error when the
/// number reaches zero.
fn due(countdown: &Atomic<i32>) -> Result {
    if countdown.load(Relaxed) > 0 && countdown.fetch_sub(1, Relaxed) == 1 {
        Err(EXDEV)
    } else {
        Ok(())
    }
}

/// A value that is counted as long as it exists. The value contains a reference to the counter.
pub(super) struct Alive(&'static Atomic<i32>);

impl Alive {
    fn new(count: &'static Atomic<i32>) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Builds a reply in the format of a server: call accepted, no verifier, success, and then `rest`.
pub(super) fn reply(xid: u32, rest: &[u8]) -> Result<KVec<u8>> {
    let mut out = KVec::new();
    for word in [xid, 1, 0, 0, 0, 0] {
        out.extend_from_slice(&word.to_be_bytes(), GFP_ATOMIC)?;
    }
    out.extend_from_slice(rest, GFP_ATOMIC)?;
    Ok(out)
}

/// Replies to a call that is being sent.
fn answer(xprt: &Xprt<Driver>, call: &Call<'_, Driver>) -> Result<(), NotSent> {
    let answer = reply(call.xid(), &[]).map_err(|_| NotSent::NoBuffers)?;
    if let Some(mut pinned) = xprt.lookup(call.xid()) {
        if pinned.place_inline(&answer).is_ok() {
            let _ = pinned.complete(answer.len());
        }
    }
    Ok(())
}

impl Xprt<Driver> {
    /// Returns how many calls wait for the send lock.
    fn senders_waiting(&self) -> u32 {
        // SAFETY: The field is a plain number, and an outdated value does no harm.
        unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).sending.qlen) }
    }
}

/// The data that the driver keeps for each transport.
#[pin_data]
pub(super) struct Driver {
    _alive: Alive,
    /// The transaction ids of the calls that were sent and have no reply yet.
    #[pin]
    kept: SpinLock<KVec<u32>>,
    /// The pages that a call has lent most recently.
    #[pin]
    lent: SpinLock<Option<Lent>>,
}

/// The lent pages of a call.
pub(super) struct Lent {
    _lease: Lease<Driver>,
    pages: KVec<*mut page>,
}

// SAFETY: The lease keeps the pages allocated, whichever thread owns the lease.
unsafe impl Send for Lent {}

impl Lent {
    fn new(call: &Call<'_, Driver>) -> Option<Self> {
        let loan = call.lend(Message::Call, Part::Pages)?;
        let mut pages = KVec::new();
        loan.pieces(0, |piece| {
            // If the push fails, the test does not find the page and fails.
            pages.push(piece.page, GFP_ATOMIC).is_ok()
                && pages.extend_from_slice(piece.more, GFP_ATOMIC).is_ok()
        });
        Some(Self {
            _lease: loan.into_lender(),
            pages,
        })
    }

    /// Returns the first byte of each page.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.pages.iter().map(|page| {
            // SAFETY: The lease keeps the page allocated.
            unsafe { *bindings::fake_page_address(*page).cast::<u8>() }
        })
    }
}

impl Driver {
    /// Returns the transaction ids of the kept calls, and removes them from the list. A kept call
    /// was sent and has no reply yet.
    pub(super) fn take_kept(&self) -> KVec<u32> {
        core::mem::take(&mut *self.kept.lock())
    }

    /// Returns the memory that the last call lent.
    pub(super) fn take_lent(&self) -> Option<Lent> {
        self.lent.lock().take()
    }

    /// Returns the number of calls that were sent and have no reply yet.
    pub(super) fn kept(&self) -> usize {
        self.kept.lock().len()
    }
}

impl Check for Driver {
    fn check_setting(_: Setting, text: &str) -> Result {
        if text == REFUSED {
            return Err(ERANGE);
        }
        Ok(())
    }
}

impl Transport for Driver {
    type Data = Self;
    type Locked = ();
    type SlotData = Alive;

    fn limits(_create: &Create) -> Result<Limits> {
        due(&FAIL_LIMITS)?;
        Ok(Limits {
            // CAST: The function `slots` has stored this number, which is a `u16`.
            slots: SLOTS.load(Relaxed) as u16,
            max_payload: 1 << 16,
            rpc_timeout_ms: 60_000,
            connect_timeout_ms: 5000,
            reconnect_timeout_ms: 5000,
        })
    }

    fn new(_create: &Create, _common: &Arc<Common>) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            _alive: {
                due(&FAIL_NEW)?;
                Alive::new(&DRIVERS)
            },
            kept <- new_spinlock!(KVec::new(), "Driver::kept"),
            lent <- new_spinlock!(None, "Driver::lent"),
        }? Error)
    }

    fn new_slot_data() -> impl PinInit<Alive, Error> {
        // SAFETY: On success the memory is initialised, on failure it is untouched.
        unsafe {
            pin_init::pin_init_from_closure(|place: *mut Alive| {
                due(&FAIL_CALL)?;
                place.write(Alive::new(&CALLS));
                Ok(())
            })
        }
    }

    fn start(_xprt: &Xprt<Self>) -> Result {
        STARTS.fetch_add(1, Relaxed);
        due(&FAIL_START)
    }

    fn connect(lock: ConnectLock<Self>) {
        CONNECTS.fetch_add(1, Relaxed);
        if FAIL_CONNECTS.load(Relaxed) > 0 {
            match FAIL_CONNECTS.fetch_sub(1, Relaxed) % 2 {
                0 => lock.finish(Err(ECONNREFUSED)),
                // The lock is dropped without a call of `finish`. This ends the attempt with
                // `EAGAIN`.
                _ => drop(lock),
            }
            return;
        }
        let mut lock = lock;
        let send_lock = lock.send_lock();
        send_lock.xprt().reset_window(&send_lock, 256 << 8);
        lock.finish(Ok(()));
    }

    fn close(_lock: &mut SendLock<'_, Self>) {
        CLOSES.fetch_add(1, Relaxed);
    }

    fn send(lock: &mut SendLock<'_, Self>, call: &Call<'_, Self>) -> Result<(), NotSent> {
        let xprt = lock.xprt();
        if !call.take_credit(xprt) {
            return Err(NotSent::NoCredit);
        }
        SENDS.fetch_add(1, Relaxed);
        // CAST: The function `fate` has stored this number, which is not negative.
        let fate = FATES.get(FATE.load(Relaxed) as usize).copied();
        match fate.unwrap_or(Fate::Answered) {
            Fate::Answered => answer(xprt, call),
            Fate::Kept => {
                // If the push fails, the test does not find the call and fails.
                let _ = xprt.data().kept.lock().push(call.xid(), GFP_ATOMIC);
                Ok(())
            }
            Fate::Lent => {
                *xprt.data().lent.lock() = Lent::new(call);
                let _ = xprt.data().kept.lock().push(call.xid(), GFP_ATOMIC);
                Ok(())
            }
            Fate::Waits => {
                FATE.store(0, Relaxed);
                xprt.stop_senders();
                // The resource for which the senders wait is available again immediately.
                xprt.wake_senders();
                Err(NotSent::Wait)
            }
            Fate::NoBuffers => {
                FATE.store(0, Relaxed);
                Err(NotSent::NoBuffers)
            }
            Fate::NotConnected => {
                FATE.store(0, Relaxed);
                xprt.force_disconnect();
                Err(NotSent::NotConnected)
            }
            Fate::Refused => {
                let _ = call.fail(EXDEV);
                Ok(())
            }
            Fate::FailsAwake => {
                let Some(first) = xprt.data().take_kept().first().copied() else {
                    // If no other call waits for the send lock within the time limit, the test
                    // fails later.
                    let _ = wait_until(|| xprt.senders_waiting() != 0);
                    let _ = xprt.data().kept.lock().push(call.xid(), GFP_ATOMIC);
                    return Ok(());
                };
                FATE.store(0, Relaxed);
                if let Some(pinned) = xprt.lookup(first) {
                    let _ = pinned.fail(EXDEV);
                }
                answer(xprt, call)
            }
        }
    }

    fn send_callback_reply(
        _lock: &mut SendLock<'_, Self>,
        _callback: &Callback<'_>,
    ) -> Result<(), NotSent> {
        Ok(())
    }

    fn check(_xprt: &Xprt<Self>, _call: &Encoded<'_, Self>) -> Result {
        CHECKS.fetch_add(1, Relaxed);
        Ok(())
    }

    fn revoke(_xprt: &Xprt<Self>, call: &Encoded<'_, Self>, leaving: Leaving) {
        // CAST: The function `linger` has stored this number, which is not negative.
        leaving.wait_for_reply(call, LINGER_MS.load(Relaxed) as u32);
        REVOKES.fetch_add(1, Relaxed);
    }

    fn abandon(_xprt: &Xprt<Self>, _call: &Encoded<'_, Self>) -> Option<u32> {
        ABANDONS.fetch_add(1, Relaxed);
        None
    }

    fn busy_poll(_xprt: &Xprt<Self>, _waiting: &Waiting<'_, Self>) {}

    fn timed_out(_xprt: &Xprt<Self>, _call: &Encoded<'_, Self>) {
        TIMEOUTS.fetch_add(1, Relaxed);
    }

    fn lower_timeouts(_xprt: &Xprt<Self>, _connect: Jiffies, _reconnect: Jiffies) {}

    fn stop(_lock: &mut SendLock<'_, Self>) {
        STOPS.fetch_add(1, Relaxed);
    }

    fn show_stats(_xprt: &Xprt<Self>, _m: &SeqFile) {}

    fn local_addr(_xprt: &Xprt<Self>) -> Option<SocketAddr> {
        Some(SocketAddr::new(
            core::net::Ipv4Addr::new(192, 0, 2, 8).into(),
            999,
        ))
    }

    fn start_callbacks(_xprt: &Xprt<Self>) -> Result {
        Ok(())
    }

    const CALLBACK_SLOTS: u16 = 3;

    fn callback_size(_xprt: &Xprt<Self>) -> usize {
        4096
    }
}
