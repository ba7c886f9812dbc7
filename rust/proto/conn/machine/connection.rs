// SPDX-License-Identifier: GPL-2.0

//! Events of an established connection, and the actions that follow.

use super::Machine;
use crate::{
    conn::{
        action::Action,
        cause::Cause,
        keepalive::Verdict,
        state::{
            State,
            Then, //
        },
        unserved::RpcTimer, //
    },
    time::Time, //
};

impl Machine {
    pub(crate) fn replied(&mut self) {
        if let Some(up) = self.state.up() {
            up.replied();
            self.peer.replied();
        }
    }

    pub(crate) fn large_send(&mut self, now: Time) {
        if self.state.is_up() {
            self.peer.large_send(now);
        }
    }

    pub(crate) fn large_send_taken(&mut self) {
        if self.state.is_up() {
            self.peer.large_send_taken();
        }
    }

    pub(crate) fn memory_revoked(&mut self, now: Time) {
        if let Some(up) = self.state.up() {
            up.memory_revoked(now);
        }
    }

    pub(crate) fn probe_answered(&mut self, now: Time) {
        if let Some(up) = self.state.up() {
            up.probe_answered(now);
        }
    }

    pub(crate) fn probe_not_sent(&mut self) {
        if let Some(up) = self.state.up() {
            up.probe_not_sent();
        }
    }

    pub(crate) fn rpc_timeout(&mut self, cookie: u32, timer: RpcTimer, now: Time) {
        if cookie != self.cookie {
            return;
        }
        let patience = self.peer.patience();
        if let Some(up) = self.state.up() {
            match up.rpc_timeout(timer, patience, now) {
                Ok(verdict) => self.probe_or_lose(verdict, Cause::RpcTimeout, now),
                Err(cause) => self.lose(cause, now),
            }
        }
    }

    /// Requests an immediate probe, to find out whether the peer can still be reached.
    pub(super) fn suspect(&mut self, now: Time) {
        if let Some(up) = self.state.up() {
            let verdict = up.suspect(now);
            self.probe_or_lose(verdict, Cause::PeerUnreachable, now);
        }
    }

    /// Does what the keepalive has decided: nothing, a probe, or the end of the connection with the
    /// cause `cause`.
    pub(super) fn probe_or_lose(&mut self, verdict: Verdict, cause: Cause, now: Time) {
        let epoch = self.epoch;
        match verdict {
            Verdict::Fine => {}
            Verdict::Probe => self.actions.push(Action::Keepalive { epoch }),
            Verdict::Dead => self.lose(cause, now),
        }
    }

    /// Handles a failure of the connection or the attempt.
    pub(crate) fn lost(&mut self, cause: Cause, now: Time) {
        // In this state the next attempt has not begun, so there is no connection that could be
        // lost.
        if !matches!(self.state, State::Waiting { .. }) {
            self.end(cause, now);
        }
    }

    pub(super) fn lose(&mut self, cause: Cause, now: Time) {
        let State::Up(up) = &self.state else {
            return;
        };
        let epoch = self.epoch;
        let cause = self.peer.connection_lost(up, epoch, cause, now);
        self.disconnecting = false;
        self.cookie = self.cookie.wrapping_add(1);
        self.state = State::closing(Then::Rest);
        self.actions.push(Action::Disconnect {
            epoch,
            cookie: self.cookie,
            cause,
        });
    }
}
