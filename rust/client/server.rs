// SPDX-License-Identifier: GPL-2.0

//! The state that all transports of one server share ([`Shared`]), the use of a rail by a
//! connection ([`Place`]), and probes of rails that may not work ([`ProbeJob`]).

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
    v2::negotiate::Known, //
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

/// The state that all transports of one server share.
#[pin_data]
pub(crate) struct Shared {
    /// What is known about the server's support for version 2.
    #[pin]
    version: SpinLock<Known>,
    #[pin]
    rails: SpinLock<KBox<Rails>>,
    /// Time (in milliseconds) at which the rails were last enumerated; zero before the first time.
    looked: Atomic<u64>,
    /// Value of the change counter of the administrator's tables at the last enumeration of the
    /// rails.
    tables: Atomic<u32>,
    /// One more than the value of the tables' change counter at the last check for missing entries.
    /// Zero before the first check.
    told: Atomic<u32>,
    /// Number of rails that were left out because the list of rails is full.
    left_out: Atomic<u32>,
}

impl Shared {
    /// Makes the state for a server about which nothing is known. May sleep.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let rails = no_rails()?;
        Arc::pin_init(
            pin_init!(Self {
                version <- new_spinlock!(Known::Nothing, "Shared::version"),
                rails <- new_spinlock!(rails, "Shared::rails"),
                looked: Atomic::new(0),
                tables: Atomic::new(0),
                told: Atomic::new(0),
                left_out: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns what is known about the server's support for version 2.
    pub(crate) fn version(&self) -> Known {
        *self.version.lock()
    }

    /// Adds what one transport knows about the server's support for version 2.
    pub(crate) fn add_version(&self, known: Known) {
        let mut version = self.version.lock();
        *version = version.together(known);
    }

    /// Calls `f` with the rails. `f` must not sleep.
    pub(crate) fn with_rails<R>(&self, f: impl FnOnce(&mut Rails) -> R) -> R {
        f(&mut self.rails.lock())
    }

    /// Returns true if the rails must be enumerated now. This is the case if they were last
    /// enumerated at least `age` ago, or if the administrator's tables have changed since then.
    ///
    /// `changes` is the present value of the tables' change counter. If the result is true, this
    /// function records `changes` and the present time. `Relaxed` is enough, because it does no
    /// harm if two callers both receive true.
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

    /// Records `changes`, the present value of the change counter of the administrator's tables.
    /// Returns true if no value was recorded before, or if the last recorded value was different.
    pub(crate) fn note_tables(&self, changes: u32) -> bool {
        let number = changes.wrapping_add(1);
        self.told.xchg(number, Full) != number
    }

    /// Records how many rails were left out because the list is full. Returns true if this number
    /// is not zero and differs from the last recorded number.
    pub(crate) fn note_left_out(&self, count: u32) -> bool {
        self.left_out.xchg(count, Full) != count && count > 0
    }
}

/// Makes an empty list of rails. Making the list takes kilobytes of stack. The function is not
/// inlined, so that this stack frame is gone when the attempt continues. May sleep.
#[inline(never)]
fn no_rails() -> Result<KBox<Rails>> {
    let memory = KBox::<Rails>::new_uninit(GFP_KERNEL)?;
    Ok(memory.write(Rails::new(u64::from(random()))))
}

/// The use of a rail by a connection attempt, and afterwards by the connection that the attempt has
/// made.
pub(crate) struct Place {
    server: Arc<Server>,
    /// The seat, by which the rail policy counts this use of the rail. The field is `None` only
    /// while the seat is being returned.
    seat: Option<Seat>,
    rail: Rail,
    /// The number that distinguishes this [`Place`] from other [`Place`] objects of the same
    /// transport.
    number: u32,
    /// Time at which the connection stopped sending new calls, because it is about to move to
    /// another rail. `None` if no move has begun.
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

    /// Stops the use of this rail. Returns the seat, so that the caller can use another rail to the
    /// same server.
    pub(crate) fn into_seat(mut self) -> Option<Seat> {
        self.seat.take()
    }

    /// Calls `f` with the rails and the seat of this object. `f` must not sleep.
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

/// A probe of a rail. The probe is due or in flight. If this object is dropped before the probe has
/// a result, the probe is reported as not tried.
pub(crate) struct ProbeJob {
    xprt: BackRef<Rdma>,
    server: Arc<Server>,
    /// The probe. The field is `None` only while the result of the probe is being reported.
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

    /// Reports the outcome of the probe to the rail policy.
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
