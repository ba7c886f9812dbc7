// SPDX-License-Identifier: GPL-2.0

//! The credits of a connection: what the server grants, and what of it is held for nothing.

use crate::{
    connection::{
        large,
        Connection, //
    },
    driver::Rdma, //
};
use kernel::sync::atomic::{
    Full,
    Relaxed, //
};
use xprtrdma_proto::{
    conn::Event,
    credit::ForwardCredits,
    judge::Accept,
    Credits, //
};
use xprtrdma_rdma::marked::Marked;
use xprtrdma_sunrpc::{
    util::Jiffies,
    xprt::Xprt, //
};

/// The RPC client's window for our credits.
pub(crate) fn cwnd(credits: &ForwardCredits) -> u32 {
    // CAST: We never ask for more credits than a transport has slots, and get no more than that.
    credits.cwnd() as u32
}

/// For how long calls that nobody waits for may hold every credit, in milliseconds.
const STARVED_MS: u32 = 60_000;

impl Connection {
    /// Learns what an accepted reply says beside its message. Called by the handler of completions
    /// only.
    #[inline]
    pub(crate) fn learn(&self, accept: &Accept) {
        let grant = accept.grant;
        // Mostly that is nothing new.
        if self.known_grant.read_once() != grant.0 || grant.0 == 0 {
            self.learn_new(grant);
        }
    }

    #[cold]
    fn learn_new(&self, grant: Credits) {
        let granted = self.state.credits.lock().accept(grant);
        let as_it_came = if granted.note.is_none() { grant.0 } else { 0 };
        // ORDERING: Full, between this and the look for a large message in `heard`: whoever sends one
        // writes the two in the opposite order, so it cannot be missed for good.
        self.known_grant.xchg(as_it_came, Full);
        self.heard();
        if let Some(counter) = granted.note {
            self.client().stats.count(counter);
        }
        if granted.changed {
            self.update_window();
        }
    }

    fn update_window(&self) {
        self.xprt.set_window(|| cwnd(&self.state.credits.lock()));
        // The request that was answered ends later, and perhaps not for long: its task may be frozen.
        self.xprt.nudge_senders();
    }

    /// A reply for nobody. True if it can be that of an abandoned call, whose credit comes back.
    pub(crate) fn late(&self) -> bool {
        let late = self.state.credits.lock().unmatched_reply();
        if late {
            self.client().stats.late_replies.add(1);
            self.update_window();
        }
        late
    }

    /// A message above the minimum threshold was posted (CM-24).
    #[inline]
    pub(crate) fn large_send(&self) {
        if self.large.load(Relaxed) == large::NONE {
            // ORDERING: Full, see `learn_new`.
            self.large.xchg(large::SENT, Full);
            self.known_grant.store(0, Relaxed);
            self.react(Event::LargeSend(self.epoch));
        }
    }

    /// The connection proved useful: the back-off starts anew after its end.
    fn heard(&self) {
        if !self.replied.load(Relaxed) {
            self.replied.store(true, Relaxed);
            self.react(Event::Replied(self.epoch));
        }
        if self.large.load(Relaxed) == large::SENT {
            self.large.store(large::TAKEN, Relaxed);
            self.react(Event::LargeSendTaken(self.epoch));
        }
    }
}

/// A call ends whose reply the connection with the number `owed_on` still owes.
#[cold]
pub(crate) fn abandon(xprt: &Xprt<Rdma>, owed_on: u32) -> Option<u32> {
    // No reference is taken: the last one must not be dropped here.
    let current = xprt.data().current.lock();
    let conn = current.as_ref()?.handler();
    if conn.epoch.raw() != owed_on {
        return None;
    }
    let mut credits = conn.state.credits.lock();
    credits.abandon();
    Some(cwnd(&credits))
}

/// Whether calls that were given up have held every credit for so long that their replies will
/// not come: a server may drop what it takes for a repetition.
pub(crate) fn starves(conn: &Connection, credits: &ForwardCredits) -> bool {
    let since = &conn.no_credit_since;
    if credits.cwnd() > 0 {
        since.store(0, Relaxed);
        return false;
    }
    match since.load(Relaxed) {
        0 => {
            since.store(Jiffies::now().count().max(1), Relaxed);
            false
        }
        start => Jiffies::since(start).as_ms() >= STARVED_MS,
    }
}
