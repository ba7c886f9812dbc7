// SPDX-License-Identifier: GPL-2.0

//! The credits of a connection: what the server grants, what calls that were given up still hold,
//! and what we grant for the server's own calls.

use super::Connection;
use crate::{
    counters::Ordinary,
    driver::Rdma, //
};
use xprtrdma_proto::{
    conn::Event,
    credit::{
        ForwardCredits,
        Granted, //
    },
    judge::Accept,
    Credits, //
};
use xprtrdma_sunrpc::xprt::SendLock;

/// Requests of the server that are served at the same time.
pub(crate) const CALLBACK_SLOTS: u16 = 16;

/// What we grant the server for its requests (BC-04).
pub(crate) fn callback_credits() -> Credits {
    Credits(CALLBACK_SLOTS.into())
}

/// The RPC client's window for our credits, in its units of 1/256.
fn cwnd(credits: &ForwardCredits) -> u32 {
    // CAST: We never ask for more credits than a transport has slots, and get no more than that.
    credits.cwnd() as u32
}

impl Connection {
    /// The credits that every call requests.
    #[inline]
    pub(crate) fn requested(&self) -> Credits {
        self.requested
    }

    /// The present state of the credits.
    pub(crate) fn credits(&self) -> ForwardCredits {
        *self.locked.credits.lock()
    }

    /// The RPC client starts with the credits that this connection has.
    pub(crate) fn open_window(&self, send: &SendLock<'_, Rdma>) {
        self.xprt.reset_window(send, cwnd(&self.credits()));
    }

    /// Takes note of the grant and of the other news in an accepted reply. Only the handler of
    /// completions calls this.
    #[inline]
    pub(crate) fn take_grant(&self, accept: &Accept) {
        // Usually nothing has changed.
        if !self.known_grant.is(accept.grant) {
            self.take_new_grant(accept.grant);
        }
    }

    #[cold]
    fn take_new_grant(&self, grant: Credits) {
        let granted = self.accept_grant(grant);
        let as_it_came = granted.note.is_none().then_some(grant);
        self.known_grant.set(as_it_came);
        self.proved_useful();
        if granted.changed {
            self.update_window();
        }
    }

    /// Sets the first window from the reply to the version probe, before any call is sent (V2-05).
    pub(crate) fn take_first_grant(&self, grant: Credits) {
        self.accept_grant(grant);
    }

    fn accept_grant(&self, grant: Credits) -> Granted {
        let granted = self.locked.credits.lock().accept(grant);
        if let Some(counter) = granted.note {
            self.counters().count(counter);
        }
        granted
    }

    /// The back-off starts again from its shortest pause after this connection has ended.
    fn proved_useful(&self) {
        if self.first_reply.is_first() {
            self.react(Event::Replied(self.epoch));
        }
        if self.large.taken() {
            self.react(Event::LargeSendTaken(self.epoch));
        }
    }

    /// A message above the minimum threshold was posted (CM-24).
    #[inline]
    pub(crate) fn large_send(&self) {
        if self.large.sent() {
            self.known_grant.forget();
            self.react(Event::LargeSend(self.epoch));
        }
    }

    fn update_window(&self) {
        self.xprt.set_window(|| cwnd(&self.locked.credits.lock()));
        // The answered request ends later, and perhaps much later: its task may be frozen.
        self.xprt.nudge_senders();
    }

    /// Stops new calls, so that those in flight end (`closed`), or allows them again.
    pub(crate) fn close_window(&self, closed: bool) {
        self.locked.credits.lock().close(closed);
        self.update_window();
    }

    /// Records that a call ends whose reply this connection still owes: the server keeps its
    /// credit. Returns the RPC client's window. Called with the lock of the window held.
    pub(crate) fn abandon(&self) -> u32 {
        let mut credits = self.locked.credits.lock();
        credits.abandon();
        cwnd(&credits)
    }

    /// Returns whether calls that were given up have held every credit for so long that their
    /// replies will not come: a server may drop a call that it takes for a repetition. Called from
    /// time to time, with the present state of the credits.
    pub(crate) fn starves(&self, credits: &ForwardCredits) -> bool {
        self.starvation.lasts(credits.cwnd() > 0)
    }

    /// Handles a reply that matches no waiting call. Returns true if it can be that of an abandoned
    /// call, whose credit is free then.
    pub(crate) fn unmatched_reply(&self) -> bool {
        let late = self.locked.credits.lock().unmatched_reply();
        if late {
            self.counters().add(Ordinary::LateReplies);
            self.update_window();
        }
        late
    }
}
