// SPDX-License-Identifier: GPL-2.0

//! Facts about the peer that the handler of completions and senders share.

use kernel::sync::atomic::{
    Atomic,
    Full,
    Relaxed, //
};
use xprtrdma_proto::{
    threshold::Thresholds,
    Credits, //
};
use xprtrdma_rdma::access_once::AccessOnce;
use xprtrdma_sunrpc::util::Jiffies;

/// The thresholds that the peers agreed on; the minimum until then. These are plain atomics,
/// because reading a `SetOnce` calls into C, which is 20 instructions for each RPC. They are set
/// before the first call can be sent.
pub(super) struct Agreement {
    call: Atomic<u32>,
    reply: Atomic<u32>,
    remote_invalidation: Atomic<bool>,
    there_is_one: Once,
}

impl Agreement {
    pub(super) const fn none() -> Self {
        let Thresholds {
            call,
            reply,
            remote_invalidation,
        } = Thresholds::MINIMUM;
        Self {
            call: Atomic::new(call),
            reply: Atomic::new(reply),
            remote_invalidation: Atomic::new(remote_invalidation),
            there_is_one: Once::new(),
        }
    }

    /// Called once.
    pub(super) fn set(&self, thresholds: Thresholds) {
        self.call.write_once(thresholds.call);
        self.reply.write_once(thresholds.reply);
        self.remote_invalidation
            .write_once(thresholds.remote_invalidation);
        let _ = self.there_is_one.is_first();
    }

    #[inline]
    pub(super) fn get(&self) -> Thresholds {
        Thresholds {
            call: self.call.read_once(),
            reply: self.reply.read_once(),
            remote_invalidation: self.remote_invalidation(),
        }
    }

    /// Whether the server may invalidate regions.
    #[inline]
    pub(super) fn remote_invalidation(&self) -> bool {
        self.remote_invalidation.read_once()
    }

    /// Whether the peers have agreed on the thresholds.
    pub(super) fn was_made(&self) -> bool {
        self.there_is_one.was()
    }
}

/// The last grant that was accepted unchanged. A reply that repeats it needs no further work.
///
/// Zero: there is no such grant, so the next reply is looked at in full.
pub(super) struct KnownGrant(Atomic<u32>);

impl KnownGrant {
    pub(super) const fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// Whether a reply with this grant needs no further work.
    #[inline]
    pub(super) fn is(&self, grant: Credits) -> bool {
        self.0.read_once() == grant.0 && grant.0 != 0
    }

    /// Records `grant`, or that no grant is known.
    ///
    /// ORDERING: Full, between this and the caller's look for a large message
    /// ([`LargeSend::taken`]). The sender of one writes the two in the opposite order
    /// ([`LargeSend::sent`]), so it cannot be missed for good.
    pub(super) fn set(&self, grant: Option<Credits>) {
        self.0.xchg(grant.map_or(0, |grant| grant.0), Full);
    }

    /// Forgets the last grant, so that the next reply is examined in full.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

/// A thing that happens at most once to a connection.
pub(super) struct Once(Atomic<bool>);

impl Once {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Whether it has happened.
    pub(super) fn was(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Records that it happened; returns whether this is the first time. One thread calls this at a
    /// time.
    pub(super) fn is_first(&self) -> bool {
        let first = !self.0.load(Relaxed);
        if first {
            self.0.store(true, Relaxed);
        }
        first
    }
}

/// The fate of the first Send above the minimum threshold (CM-24).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Large {
    /// None was posted.
    None,
    /// It was posted.
    Sent,
    /// A reply has come since.
    Taken,
}

/// A [`Large`] that several threads use.
pub(super) struct LargeSend(Atomic<u32>);

impl LargeSend {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(Large::None as u32))
    }

    #[inline]
    fn is(&self, what: Large) -> bool {
        self.0.read_once() == what as u32
    }

    /// Records that a large message was posted; returns whether it is the first. One sender calls
    /// this at a time.
    #[inline]
    pub(super) fn sent(&self) -> bool {
        let first = self.is(Large::None);
        if first {
            // ORDERING: Full, see `KnownGrant::set`.
            self.0.xchg(Large::Sent as u32, Full);
        }
        first
    }

    /// Records that a reply came; returns whether it is the first one after the first large Send.
    pub(super) fn taken(&self) -> bool {
        let first = self.is(Large::Sent);
        if first {
            self.0.store(Large::Taken as u32, Relaxed);
        }
        first
    }
}

/// For how long calls for which no task waits may hold every credit, in milliseconds.
const STARVED_MS: u32 = 60_000;

/// The time since which calls that were given up have held every credit, in jiffies; zero if they
/// do not.
pub(super) struct Starvation(Atomic<usize>);

impl Starvation {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns whether no credit was free for so long that none will be. Called from time to time.
    pub(super) fn lasts(&self, has_credit: bool) -> bool {
        if has_credit {
            self.0.store(0, Relaxed);
            return false;
        }
        match self.0.load(Relaxed) {
            0 => {
                self.0.store(Jiffies::now().count().max(1), Relaxed);
                false
            }
            since => Jiffies::since(since).as_ms() >= STARVED_MS,
        }
    }
}
