// SPDX-License-Identifier: GPL-2.0

//! What the transports of one server share ([`Shared`]), and the place of a connection among its
//! rails ([`Place`]); probes of rails that are dead or doubted ([`ProbeJob`]).

use crate::{
    driver::Rdma,
    machine::now, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
};
use xprtrdma_proto::{
    rail::{
        Probe,
        Probed,
        Rail,
        Rails,
        Seat, //
    },
    time::{
        Millis,
        Time, //
    },
};
use xprtrdma_sunrpc::{
    servers,
    util::random,
    xprt::{
        BackRef,
        Xprt, //
    },
};

/// A transport's reference to the state that all transports of one server share.
pub(crate) type Server = servers::Server<Shared>;

/// The state that the transports of a server share.
#[pin_data]
pub(crate) struct Shared {
    /// What is known of the server's version 2, as a word.
    version: Atomic<u64>,
    #[pin]
    rails: SpinLock<KBox<Rails>>,
    /// When the rails were last enumerated, in milliseconds; zero: never.
    looked: Atomic<u64>,
    /// The number of changes of the tables at that time.
    tables: Atomic<u32>,
    /// The number of changes of the tables, plus one, for which the log was told what is missing.
    told: Atomic<u32>,
    /// How many rails were left out for lack of room.
    left_out: Atomic<u32>,
}

impl Shared {
    /// Makes the state of a server of which nothing is known. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let rails = no_rails()?;
        Arc::pin_init(
            pin_init!(Self {
                version: Atomic::new(0),
                rails <- new_spinlock!(rails, "Shared::rails"),
                looked: Atomic::new(0),
                tables: Atomic::new(0),
                told: Atomic::new(0),
                left_out: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// What is known of the version. `Relaxed`: the word is all there is.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    pub(crate) fn set_version(&self, word: u64) {
        self.version.store(word, Relaxed);
    }

    /// Calls `f` with the rails. `f` must not sleep.
    pub(crate) fn with_rails<R>(&self, f: impl FnOnce(&mut Rails) -> R) -> R {
        f(&mut self.rails.lock())
    }

    /// Returns whether the rails must be enumerated again: the last time is `age` or longer ago, or
    /// the tables have changed since, which `changes` counts. `Relaxed`: two callers may both be
    /// told so.
    pub(crate) fn shall_look(&self, changes: u32, age: Millis) -> bool {
        let now = now().as_millis().max(1);
        let last = self.looked.load(Relaxed);
        let is_old = last == 0 || now.saturating_sub(last) >= age.get();
        let is_due = is_old || self.tables.load(Relaxed) != changes;
        if is_due {
            self.tables.store(changes, Relaxed);
            self.looked.store(now, Relaxed);
        }
        is_due
    }

    /// Records the tables from which rails were made. Returns whether they are new.
    pub(crate) fn note_tables(&self, changes: u32) -> bool {
        let number = changes.wrapping_add(1);
        self.told.xchg(number, Full) != number
    }

    /// Records how many rails were left out for lack of room. Returns whether that is new.
    pub(crate) fn note_left_out(&self, count: u32) -> bool {
        self.left_out.xchg(count, Full) != count && count > 0
    }
}

/// Makes the rails of a server. They take kilobytes, which are on the stack once: in a frame of
/// their own, which has ended when the attempt goes on. May sleep.
#[inline(never)]
fn no_rails() -> Result<KBox<Rails>> {
    let memory = KBox::<Rails>::new_uninit(GFP_KERNEL)?;
    Ok(memory.write(Rails::new(u64::from(random()))))
}

/// The place of an attempt, and then of its connection, on a rail.
pub(crate) struct Place {
    server: Arc<Server>,
    /// `None` only while it is being returned.
    seat: Option<Seat>,
    rail: Rail,
    /// Distinguishes the places of one transport.
    number: u32,
    /// The time since which no calls are sent, because the connection is to move.
    closing_since: Option<Time>,
}

impl Place {
    pub(crate) fn new(server: Arc<Server>, seat: Seat, rail: Rail, number: u32) -> Self {
        Self {
            server,
            seat: Some(seat),
            rail,
            number,
            closing_since: None,
        }
    }

    pub(crate) fn rail(&self) -> Rail {
        self.rail
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub(crate) fn closing_since(&self) -> Option<Time> {
        self.closing_since
    }

    pub(crate) fn set_closing(&mut self, since: Option<Time>) {
        self.closing_since = since;
    }

    /// Releases the place for another one of the same server, and returns its seat.
    pub(crate) fn into_seat(mut self) -> Option<Seat> {
        self.seat.take()
    }

    /// Calls `f` with the rails and the place on them. `f` must not sleep.
    pub(crate) fn with<R>(&mut self, f: impl FnOnce(&mut Rails, &mut Seat) -> R) -> Option<R> {
        let seat = self.seat.as_mut()?;
        let shared = self.server.shared()?;
        Some(shared.with_rails(|rails| f(rails, seat)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let (Some(seat), Some(shared)) = (self.seat.take(), self.server.shared()) {
            shared.with_rails(|rails| rails.leave(seat));
        }
    }
}

/// A probe of a rail that is to be made. If it is dropped without a result, the policy is told so.
pub(crate) struct ProbeJob {
    xprt: BackRef<Rdma>,
    server: Arc<Server>,
    /// `None` only while it is being returned.
    probe: Option<Probe>,
    rail: Rail,
}

impl ProbeJob {
    pub(crate) fn new(xprt: BackRef<Rdma>, server: Arc<Server>, probe: Probe, rail: Rail) -> Self {
        Self {
            xprt,
            server,
            probe: Some(probe),
            rail,
        }
    }

    pub(crate) fn xprt(&self) -> &Xprt<Rdma> {
        &self.xprt
    }

    pub(crate) fn rail(&self) -> Rail {
        self.rail
    }

    /// Reports the outcome to the policy.
    pub(crate) fn end(mut self, outcome: Probed) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Probed) {
        if let (Some(probe), Some(shared)) = (self.probe.take(), self.server.shared()) {
            shared.with_rails(|rails| rails.probed(probe, outcome, now()));
        }
    }
}

impl Drop for ProbeJob {
    fn drop(&mut self) {
        self.tell(Probed::NotTried);
    }
}
