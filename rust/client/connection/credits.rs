// SPDX-License-Identifier: GPL-2.0

//! The credits of a connection: those that the server grants, those that abandoned calls still
//! hold, and those that this host grants for the server's calls.

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

/// Maximum number of the server's requests that are served at the same time.
pub(crate) const CALLBACK_SLOTS: u16 = 16;

/// Returns the credits that this host grants for the server's calls (BC-04).
pub(crate) fn callback_credits() -> Credits {
    Credits(CALLBACK_SLOTS.into())
}

/// Returns the RPC client's congestion window for these credits, in units of 1/256 request.
fn cwnd(credits: &ForwardCredits) -> u32 {
    // CAST: The cast cannot truncate: the credits that are used never exceed the number of the
    // transport's slots.
    credits.cwnd() as u32
}

impl Connection {
    /// Returns the credits that every call requests.
    #[inline]
    pub(crate) fn requested(&self) -> Credits {
        self.requested
    }

    /// Returns the present state of the credits.
    pub(crate) fn credits(&self) -> ForwardCredits {
        *self.locked.credits.lock()
    }

    /// Sets the RPC client's window to the credits of this new connection.
    pub(crate) fn open_window(&self, send: &SendLock<'_, Rdma>) {
        self.xprt.reset_window(send, cwnd(&self.credits()));
    }

    /// Applies the credit grant in an accepted reply, and records that the connection works.
    /// `was_large` says whether the message of the answered call was longer than the minimum inline
    /// threshold. Only completion handlers call this.
    #[inline]
    pub(crate) fn take_grant(&self, accept: &Accept, was_large: impl FnOnce() -> bool) {
        // Usually the grant has not changed.
        if !self.known_grant.is(accept.grant) {
            self.take_new_grant(accept.grant, was_large);
        }
    }

    #[cold]
    fn take_new_grant(&self, grant: Credits, was_large: impl FnOnce() -> bool) {
        let granted = self.accept_grant(grant);
        let as_it_came = granted.note.is_none().then_some(grant);
        self.known_grant.set(as_it_came);
        self.proved_useful(was_large);
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

    /// Reports that replies arrive on this connection. When the connection ends, the back-off then
    /// starts from the shortest pause.
    fn proved_useful(&self, was_large: impl FnOnce() -> bool) {
        if self.first_reply.is_first() {
            self.react(Event::Replied(self.epoch));
        }
        if self.large.is_in_doubt() {
            if was_large() {
                self.large.taken();
                self.react(Event::LargeSendTaken(self.epoch));
            } else {
                // The next reply may answer a large call, so it is examined in full.
                self.known_grant.forget();
            }
        }
    }

    /// Records that a call longer than the minimum inline threshold was posted. Must be called
    /// before the reply to this call is handled.
    #[inline]
    pub(crate) fn expect_large_send(&self) {
        if self.large.sent() {
            self.known_grant.forget();
        }
    }

    /// Reports that a message longer than the minimum inline threshold was posted (CM-24).
    #[inline]
    pub(crate) fn large_send(&self) {
        if self.large_reported.is_first() {
            self.react(Event::LargeSend(self.epoch));
        }
    }

    fn update_window(&self) {
        self.xprt.set_window(|| cwnd(&self.locked.credits.lock()));
        // The senders are woken now. They need not wait until the answered request is released,
        // which may take long, because the request's task may be frozen.
        self.xprt.nudge_senders();
    }

    /// If `closed` is true, stops new calls, so that the calls in flight complete. If it is false,
    /// allows new calls again.
    pub(crate) fn close_window(&self, closed: bool) {
        self.locked.credits.lock().close(closed);
        self.update_window();
    }

    /// Records that a call is abandoned before its reply has arrived on this connection. The server
    /// has not returned the credit of this call yet. Returns the RPC client's window. The caller
    /// holds the lock of the window.
    pub(crate) fn abandon(&self) -> u32 {
        let mut credits = self.locked.credits.lock();
        credits.abandon();
        cwnd(&credits)
    }

    /// Returns whether abandoned calls have held every credit for a long time. If they have, the
    /// replies to these calls will not arrive: a server may drop a call that it believes to be a
    /// retransmission. `credits` is the present state of the credits. Called periodically.
    pub(crate) fn starves(&self, credits: &ForwardCredits) -> bool {
        self.starvation.lasts(credits.cwnd() > 0)
    }

    /// Handles a reply that matches no waiting call. If an abandoned call exists, treats the reply
    /// as the reply to that call: releases the call's credit, and returns true.
    pub(crate) fn unmatched_reply(&self) -> bool {
        let late = self.locked.credits.lock().unmatched_reply();
        if late {
            self.counters().add(Ordinary::LateReplies);
            self.update_window();
        }
        late
    }
}
