// SPDX-License-Identifier: GPL-2.0

//! Facts about the peer that completion handlers and senders share.

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

/// The inline thresholds that the peers agreed on. Before the agreement, these are the minimum
/// thresholds. The agreement is recorded before the first call can be sent. The fields are plain
/// atomics, because reading a `SetOnce` calls a C function, which costs 20 instructions for each
/// RPC.
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

    /// Records the thresholds on which the peers have agreed. Called at most once for each
    /// connection.
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

    /// Returns whether the server may invalidate regions.
    #[inline]
    pub(super) fn remote_invalidation(&self) -> bool {
        self.remote_invalidation.read_once()
    }

    /// Returns whether the peers have agreed on the inline thresholds.
    pub(super) fn was_made(&self) -> bool {
        self.there_is_one.was()
    }
}

/// The last grant that was accepted unchanged. A reply that repeats this grant needs no further
/// work.
///
/// Zero means that no such grant is known, so the next reply is examined in full.
pub(super) struct KnownGrant(Atomic<u32>);

impl KnownGrant {
    pub(super) const fn none() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns whether this grant is the known grant. If it is, a reply with this grant needs no
    /// further work.
    #[inline]
    pub(super) fn is(&self, grant: Credits) -> bool {
        self.0.read_once() == grant.0 && grant.0 != 0
    }

    /// Records `grant`; `None` means that no grant is known.
    ///
    /// ORDERING: This store is a full barrier. The caller checks after the store whether a large
    /// message is in doubt ([`LargeSend::is_in_doubt`]). The sender of a large message first
    /// records that it was sent ([`LargeSend::sent`]), and then clears the grant. If the caller
    /// does not see the record, the grant is cleared after this store. So it stays cleared, and the
    /// next reply is examined in full.
    pub(super) fn set(&self, grant: Option<Credits>) {
        self.0.xchg(grant.map_or(0, |grant| grant.0), Full);
    }

    /// Forgets the last grant, so that the next reply is examined in full.
    pub(super) fn forget(&self) {
        self.0.store(0, Relaxed);
    }
}

/// An event that is recorded at most once for each connection.
pub(super) struct Once(Atomic<bool>);

impl Once {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(false))
    }

    /// Returns whether the event that this object represents has happened.
    pub(super) fn was(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Records that the event has happened. Returns whether the event was not recorded before. Only
    /// one caller at a time may call this function.
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        let first = !self.0.read_once();
        if first {
            self.0.store(true, Relaxed);
        }
        first
    }
}

/// State of the first Send above the minimum inline threshold (CM-24).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Large {
    /// No large Send (above the minimum inline threshold) was posted.
    None,
    /// A large Send (above the minimum inline threshold) was posted. No large call has been
    /// answered yet.
    Sent,
    /// The reply to a large call has arrived.
    Taken,
}

/// An atomic [`Large`], which senders and completion handlers share.
pub(super) struct LargeSend(Atomic<u32>);

impl LargeSend {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(Large::None as u32))
    }

    #[inline]
    fn is(&self, what: Large) -> bool {
        self.0.read_once() == what as u32
    }

    /// Records that a large call was posted, and returns whether it is the first. Only one sender
    /// at a time calls this.
    #[inline]
    pub(super) fn sent(&self) -> bool {
        let first = self.is(Large::None);
        if first {
            // ORDERING: A full barrier separates this store from the sender's next step, which
            // clears the known grant: see `KnownGrant::set`.
            self.0.xchg(Large::Sent as u32, Full);
        }
        first
    }

    /// Returns whether large calls were posted, and none of them has been answered.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.is(Large::Sent)
    }

    /// Records that the reply to a large call arrived.
    pub(super) fn taken(&self) {
        self.0.store(Large::Taken as u32, Relaxed);
    }
}

/// Time limit, in milliseconds: if abandoned calls hold every credit for longer, the connection is
/// starved.
const STARVED_MS: u32 = 60_000;

/// Time (in jiffies) at which a periodic check first found that abandoned calls hold all credits;
/// zero while a credit is available.
pub(super) struct Starvation(Atomic<usize>);

impl Starvation {
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns whether the credits have been exhausted for [`STARVED_MS`]. Called periodically.
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
