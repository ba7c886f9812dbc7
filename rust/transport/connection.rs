// SPDX-License-Identifier: GPL-2.0

//! One connection ([`Connection`]): what lives as long as its queue pair.

use crate::{
    client::Client,
    connection::regions::RegionPool,
    driver::Rdma, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        Arc,
        SetOnce,
        SpinLock, //
    },
};
use xprtrdma_proto::{
    conn::{
        Cause,
        Epoch,
        Event, //
    },
    credit::ForwardCredits,
    limit::DiscardLimit,
    Credits,
    Thresholds,
    Version, //
};
use xprtrdma_rdma::{
    cq::Attended,
    device::DeviceInfo,
    events::DeviceEvents,
    marked::Marked,
    qp::Qp, //
};
use xprtrdma_sunrpc::{
    call::Waiting,
    common::Common,
    xprt::BackRef, //
};

pub(crate) mod credits;
pub(crate) mod regions;
pub(crate) mod setup;

/// What became of the first Send above the minimum threshold.
pub(crate) mod large {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const SENT: u32 = 1;
    pub(crate) const TAKEN: u32 = 2;
}

/// So many calls do not wait for their replies themselves after one that did and had company.
const ALOOF: u32 = 16;
/// None does.
const FOR_GOOD: u32 = u32::MAX;

/// What belongs to one connection.
pub(crate) struct Connection {
    pub(crate) xprt: BackRef<Rdma>,
    pub(crate) common: Arc<Common>,
    pub(crate) epoch: Epoch,
    pub(crate) version: Version,
    /// What the peers agreed on; set before the first message is sent.
    pub(crate) thresholds: SetOnce<Thresholds>,
    pub(crate) regions: Arc<RegionPool>,
    pub(crate) device: DeviceInfo,
    /// Has the device's events noted.
    pub(crate) _events: DeviceEvents,
    /// A reply has come.
    pub(crate) replied: Atomic<bool>,
    /// Whether a Send above the minimum threshold has gone out, and was taken.
    pub(crate) large: Atomic<u32>,
    /// When the last message came, in jiffies.
    pub(crate) heard: Atomic<usize>,
    /// Since when calls that were given up have held every credit, in jiffies; zero if they do not.
    pub(crate) no_credit_since: Atomic<usize>,
    /// When memory that was not needed was given back, in jiffies.
    pub(crate) trimmed: Atomic<usize>,
    /// Whether returned segments must equal ours.
    pub(crate) strict: bool,
    /// What every call asks for.
    pub(crate) requested: Credits,
    /// The last grant that was taken as it came, if the next reply with the same has nothing to tell;
    /// otherwise zero.
    pub(crate) known_grant: Atomic<u32>,
    /// So many calls sleep as any other, for one that waited for its reply itself had company.
    pub(crate) aloof: Atomic<u32>,
    pub(crate) state: Arc<Shared>,
}

/// The part of an conn that needs a lock.
#[pin_data]
pub(crate) struct Shared {
    #[pin]
    pub(crate) credits: SpinLock<ForwardCredits>,
    #[pin]
    pub(crate) discards: SpinLock<DiscardLimit>,
    /// Slots whose invalidation waits for room in the send queue; has room for every slot.
    #[pin]
    pub(crate) deferred: SpinLock<KVec<u16>>,
}

impl Connection {
    pub(crate) fn client(&self) -> &Client {
        self.xprt.data()
    }

    /// Handles completions in the thread of a call that is the only one, until that is over.
    #[inline]
    pub(crate) fn attend(&self, qp: &Qp<Connection>, waiting: &Waiting<'_, Rdma>) {
        match self.aloof.read_once() {
            0 => {
                let alone = || !self.xprt.has_others();
                if qp.attend(alone, || waiting.is_over()) == Attended::Dismissed {
                    self.aloof.write_once(ALOOF);
                }
            }
            FOR_GOOD => {}
            // Whether another thread counts the same call does not matter.
            calls => self.aloof.write_once(calls - 1),
        }
    }

    /// From now on no call waits for its reply itself.
    pub(crate) fn never_attend(&self) {
        self.aloof.write_once(FOR_GOOD);
    }

    /// Tells the connection machine.
    pub(crate) fn react(&self, event: Event) {
        self.client().link.react(&self.xprt, event);
    }

    pub(crate) fn lost(&self, cause: Cause) {
        self.react(Event::Lost(self.epoch, cause));
    }

    /// What was agreed; the minimum before anything is.
    #[inline]
    pub(crate) fn thresholds(&self) -> Thresholds {
        self.thresholds
            .as_ref()
            .copied()
            .unwrap_or(Thresholds::MINIMUM)
    }
}
