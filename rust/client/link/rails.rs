// SPDX-License-Identifier: GPL-2.0

//! The rails of a link: chooses the rail for an attempt, reports what happens on the rail, and
//! decides when the connection moves to another rail.
//!
//! The policy is in the protocol core ([`Rails`](xprtrdma_proto::rail::Rails)), and all transports
//! of a server share the state of the policy. This module reports attempts, ends of connections and
//! port events to the policy.

use crate::{
    connection::Connection,
    counters::Ordinary,
    driver::Rdma,
    link::Link,
    log::{
        Entry,
        Named, //
    },
    machine::now,
    params,
    server::{
        Place,
        Server,
        Shared, //
    },
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use xprtrdma_proto::{
    conn::{
        Blame,
        Cause,
        ConnectError,
        Disconnect,
        Event,
        RailFacts, //
    },
    rail::{
        Local,
        Move,
        Name,
        Pairs,
        Rail,
        Rails,
        Seat,
        View,
        MAX_RAILS, //
    },
    time::{
        Millis,
        Time, //
    }, //
};
use xprtrdma_rdma::{
    local,
    qp::Qp, //
};
use xprtrdma_sunrpc::{
    util::{
        may_log,
        Show, //
    },
    xprt::Xprt, //
};

/// Maximum age of the list of rails that an attempt uses. [`RECENT`] is the maximum age of the list
/// that the keepalive uses.
const FRESH: Millis = Millis::new(250);
const RECENT: Millis = Millis::from_secs(5);

/// Interval of the keepalive while there are several rails, so that even an idle connection soon
/// leaves a dead rail.
const LOOK: Millis = Millis::from_secs(1);

/// Maximum time for which a healthy connection waits for its calls to complete before it moves to
/// another rail.
const CLOSING: Millis = Millis::from_secs(2);

/// Interval of the checks while a connection waits for its calls before it moves to another rail.
const CLOSING_LOOK: Millis = Millis::new(20);

impl Link {
    /// Returns the state that all transports of the server share. Returns `None` if memory is short
    /// or if the transport has no peer address. May sleep.
    pub(super) fn server(&self, xprt: &Xprt<Rdma>) -> Option<Arc<Server>> {
        let peer = xprt.peer()?;
        let known = self.server.lock().clone();
        if let Some(server) = known.filter(|server| server.peer() == peer) {
            return Some(server);
        }
        let common = self.services.common();
        let server = common.server(xprt.net(), peer, Shared::new().ok()?).ok()?;
        let server = Arc::new(server, GFP_KERNEL).ok()?;
        let old = self.server.lock().replace(server.clone());
        drop(old);
        Some(server)
    }

    /// Chooses the rail for an attempt. May sleep.
    pub(super) fn take_rail(&self, xprt: &Xprt<Rdma>, timeout: Millis) -> (RailFacts, Millis) {
        let last = self.place.lock().take();
        let after_death = self.rail_died.load(Relaxed);
        self.rail_died.store(false, Relaxed);
        let usual = (RailFacts::default(), timeout);
        if !params::has_rails(xprt.common(), xprt.net()) {
            return usual;
        }
        let Some(server) = self.server(xprt) else {
            return usual;
        };
        let Some(shared) = server.shared() else {
            return usual;
        };
        find_rails(xprt, shared, FRESH);
        let last = last.filter(|last| Arc::ptr_eq(last.server(), &server));
        let seat = last.and_then(Place::into_seat);
        let taken = shared.with_rails(|rails| rails.take(seat, after_death, now()));
        let Some((seat, choice)) = taken else {
            return usual;
        };
        let number = self.places.load(Relaxed).wrapping_add(1);
        self.places.store(number, Relaxed);
        let place = Place::new(server.clone(), seat, choice.rail, number);
        *self.place.lock() = Some(place);
        let facts = RailFacts {
            at_once: choice.at_once,
            watched: choice.limit.is_some(),
        };
        (facts, timeout.min(choice.limit.unwrap_or(timeout)))
    }

    /// Returns the rail of the present attempt or connection, and the number that identifies its
    /// [`Place`].
    pub(super) fn rail(&self) -> Option<(Rail, u32)> {
        let place = self.place.lock();
        place.as_ref().map(|place| (place.rail(), place.number()))
    }

    /// Releases the rail, because the attempt made no connection.
    pub(super) fn leave_rail(&self) {
        let place = self.place.lock().take();
        drop(place);
    }

    /// Reports to the policy that the attempt has made a connection.
    pub(super) fn rail_connected(&self) {
        if let Some(place) = &mut *self.place.lock() {
            place.with(|rails, seat| rails.connected(seat, now()));
        }
    }

    /// Reports that the attempt failed. Returns whether another rail should be tried without delay.
    pub(super) fn rail_failed(&self, reason: ConnectError) -> bool {
        if reason == ConnectError::Stale && self.place.lock().is_some() {
            // This host's device was removed and created again. But the peer still had a connection
            // to the removed device. Now the peer has dropped that connection, so the next attempt
            // may succeed.
            self.rail_died.store(true, Relaxed);
            return true;
        }
        let others = match reason.blame() {
            Blame::Nothing => return false,
            Blame::Refusal => self.tell(|rails, seat| rails.refused(seat, now())),
            Blame::Silence => self.tell(|rails, seat| rails.unanswered(seat, now())),
            Blame::Rail => self.tell(|rails, seat| rails.failed(seat, now())),
        };
        self.rail_died_with(others)
    }

    /// Reports an event on the present rail to the policy. Returns whether the connection can use
    /// another rail.
    fn tell(&self, what: impl FnOnce(&mut Rails, &mut Seat) -> bool) -> bool {
        let mut place = self.place.lock();
        let place = (*place).as_mut();
        place.and_then(|place| place.with(what)).unwrap_or(false)
    }

    /// Records that the rail of the attempt or connection died. `others` says whether there is
    /// another rail. If there is, this function also counts the death. It counts the death only
    /// once, although two reports may arrive: an event of the port, and the end of the attempt or
    /// connection. Returns `others`.
    fn rail_died_with(&self, others: bool) -> bool {
        let is_known = self.rail_died.xchg(true, Relaxed);
        if others && !is_known {
            self.services.counters().add(Ordinary::RailFailovers);
        }
        others
    }

    /// Reports that the connection ended, perhaps because of its rail. The next attempt waits for
    /// the usual pause. The pause is needed because a peer may accept each connection and then
    /// close it. Without the pause, this host would send connection requests without end, over one
    /// rail after the other.
    fn doubt_rail(&self) {
        if let Some(place) = &mut *self.place.lock() {
            place.with(|rails, seat| rails.doubted(seat, now()));
        }
    }

    /// Reports that the port of a rail is down, or that its device failed if `whole_device` is
    /// true. `number` identifies the [`Place`] of the connection or attempt on this rail. Returns
    /// whether that connection or attempt should end.
    pub(super) fn port_down(&self, number: u32, whole_device: bool) -> bool {
        let mut place = self.place.lock();
        let Some(place) = (*place).as_mut().filter(|place| place.number() == number) else {
            return false;
        };
        let others = place.with(|rails, seat| rails.port_failed(seat, whole_device, now()));
        others.unwrap_or(false) && self.rail_died_with(true)
    }

    /// Reports that the port of a rail is active again.
    pub(super) fn port_works(&self, number: u32) {
        let mut place = self.place.lock();
        if let Some(place) = (*place).as_mut().filter(|place| place.number() == number) {
            place.with(|rails, seat| rails.port_works(seat, now()));
        }
    }

    /// Reports to the policy how the connection ended. `busy` says that calls were in flight.
    /// Releases the rail, unless the connection ended because it moves to another rail. In that
    /// case the other rail is reserved for the next attempt.
    pub(super) fn rail_left(&self, lost: Option<Disconnect>, busy: bool) {
        // If the port is down, the policy knows this already from an event of the port.
        if let Some(lost) = lost.filter(|lost| lost.cause != Cause::PortDown) {
            if lost.blames_rail() {
                let of_this_host = lost.cause.is_of_this_host();
                let others = self.tell(|rails, seat| match of_this_host {
                    true => rails.failed(seat, now()),
                    false => rails.lost(seat, now()),
                });
                self.rail_died_with(others);
            } else if busy && lost.doubts_rail() {
                self.doubt_rail();
            }
        }
        let cause = lost.map(|lost| lost.cause);
        if cause != Some(Cause::RailMove) {
            self.leave_rail();
        }
    }

    /// Calls `show` for each rail of the server. The second argument of `show` says whether the
    /// connection uses that rail.
    pub(crate) fn each_rail(
        &self,
        mut show: impl FnMut(&View, bool) -> core::fmt::Result,
    ) -> core::fmt::Result {
        let ours = self.rail().map(|(rail, _)| rail);
        let server = self.server.lock().clone();
        let Some(shared) = server.as_deref().and_then(Server::shared) else {
            return Ok(());
        };
        // `show` may sleep, so it is called with a copy of each entry and without the lock.
        for index in 0..2 * MAX_RAILS {
            let view = shared.with_rails(|rails| rails.views(now()).nth(index));
            match view {
                Some(view) => show(&view, ours == Some(view.rail))?,
                None => break,
            }
        }
        Ok(())
    }

    /// Updates the rails while there is a connection. Returns the time until the next update, or
    /// `None` if the usual interval of the keepalive suffices. May sleep.
    pub(super) fn update_rails(self: &Arc<Self>, qp: &Qp<Connection>) -> Option<Millis> {
        let conn = qp.handler();
        let xprt = conn.xprt();
        if !params::has_rails(xprt.common(), xprt.net()) && self.place.lock().is_none() {
            return None;
        }
        let server = self.server(xprt)?;
        let shared = server.shared()?;
        find_rails(xprt, shared, RECENT);
        if self.place.lock().is_none() {
            self.adopt(xprt, &server);
        }
        let again = match conn.device().ends_early {
            true => self.watch(conn),
            false => None,
        };
        for _ in 0..MAX_RAILS {
            match shared.with_rails(|rails| rails.probe(now())) {
                Some((probe, rail)) => self.start_probe(xprt, &server, probe, rail),
                None => break,
            }
        }
        let soon = self.move_if_due(conn);
        let several = shared.with_rails(|rails| rails.are_several());
        soon.or(several.then_some(again.map_or(LOOK, |again| again.min(LOOK))))
    }

    /// Checks whether the peer is silent although it should respond. Returns the time until the
    /// next check, if one is needed.
    fn watch(&self, conn: &Connection) -> Option<Millis> {
        let (busy, heard) = signs(conn);
        let mut place = self.place.lock();
        let watch = |rails: &mut Rails, seat: &mut Seat| rails.watch(seat, busy, heard, now());
        (*place).as_mut()?.with(watch)?
    }

    /// Assigns a rail to a connection that was made before rails were configured.
    fn adopt(&self, xprt: &Xprt<Rdma>, server: &Arc<Server>) {
        let (Some(local), Some(peer), Some(shared)) =
            (self.local_addr(), xprt.peer(), server.shared())
        else {
            return;
        };
        let seat = shared.with_rails(|rails| rails.adopt(local.ip(), peer.ip(), now()));
        let rail = shared.with_rails(|rails| {
            let mut views = rails.views(now());
            let is_its = |rail: &Rail| (rail.local, rail.server) == (local.ip(), peer.ip());
            views.find(|view| is_its(&view.rail)).map(|view| view.rail)
        });
        if let (Some(seat), Some(rail)) = (seat, rail) {
            let number = self.places.load(Relaxed).wrapping_add(1);
            self.places.store(number, Relaxed);
            *self.place.lock() = Some(Place::new(server.clone(), seat, rail, number));
        }
    }

    /// Begins to move the connection to another rail if the policy requests this. Continues a move
    /// that has begun.
    fn move_if_due(self: &Arc<Self>, conn: &Connection) -> Option<Millis> {
        let (busy, heard) = signs(conn);
        let mut guard = self.place.lock();
        let place = (*guard).as_mut()?;
        let (leaves, closes) = match place.closing_since() {
            Some(since) if busy && now().since(since) < CLOSING => (false, None),
            Some(_) if busy => {
                place.set_closing(None);
                place.with(|rails, seat| rails.stay(seat, now()));
                (false, Some(false))
            }
            Some(_) => (true, None),
            None => match place.with(|rails, seat| rails.moves(seat, busy, heard, now()))? {
                None => return None,
                Some(Move::Flee) => (true, None),
                Some(Move::Shift) if busy => {
                    place.set_closing(Some(now()));
                    (false, Some(true))
                }
                Some(Move::Shift) => (true, None),
            },
        };
        let is_closing = place.closing_since().is_some();
        drop(guard);
        if let Some(closed) = closes {
            conn.close_window(closed);
        }
        if leaves {
            conn.counters().add(Ordinary::RailMoves);
            conn.react(Event::Lost(conn.epoch(), Cause::RailMove));
        }
        is_closing.then_some(CLOSING_LOOK)
    }
}

/// Returns whether calls are in flight, and the time of the last sign of life from the server.
fn signs(conn: &Connection) -> (bool, Time) {
    let busy = conn.xprt().is_busy() || conn.credits().abandoned() > 0;
    let silence = u64::from(conn.rail_silence().as_ms());
    let heard = now().as_millis().saturating_sub(silence);
    (busy, Time::from_millis(heard))
}

/// Enumerates the rails, unless the list is younger than `age`. May sleep.
fn find_rails(xprt: &Xprt<Rdma>, shared: &Shared, age: Millis) {
    let (common, net) = (xprt.common(), xprt.net());
    if !shared.shall_look(common.setting_changes(net), age) {
        return;
    }
    // If memory is short, the list of rails remains unchanged.
    let Ok(found) = local::locals(net) else {
        return;
    };
    make_rails(xprt, shared, &found);
    if shared.note_tables(common.setting_changes(net)) && may_log() {
        tell_missing(xprt, shared, &found);
    }
}

/// Converts the addresses of RDMA devices to local ends of rails.
fn ends(found: &[local::Local]) -> impl Iterator<Item = Local> + Clone + '_ {
    found.iter().filter_map(|end| {
        Some(Local {
            addr: end.addr,
            prefix_len: end.prefix_len,
            device: Name::new(end.device.name())?,
            port: end.device.port,
        })
    })
}

// Each of the functions `make_rails` and `tell_missing` needs kilobytes of stack. So they are not
// inlined, and are called one after the other.

/// Builds the rails from the addresses of this host's devices and from the configured tables of
/// rails. May sleep.
#[inline(never)]
fn make_rails(xprt: &Xprt<Rdma>, shared: &Shared, found: &[local::Local]) {
    let Some(peer) = xprt.peer() else {
        return;
    };
    let (common, net) = (xprt.common(), xprt.net());
    let servers = params::rail_servers(common, net);
    let pairs = params::rails(common, net, |locals| {
        Pairs::new(ends(found), locals, peer.ip(), &servers)
    });
    shared.with_rails(|rails| {
        rails.update(&pairs, now());
        for end in found.iter().filter(|end| !end.active) {
            rails.port_down(end.addr, now());
        }
    });
    if shared.note_left_out(pairs.left_out()) && may_log() {
        // LOG: The list of rails is full. To choose the rails, name the devices instead of `auto`.
        pr_warn!(
            "{} {} rails are left out: there is room for {}\n",
            Show(&Named(xprt)),
            pairs.left_out(),
            MAX_RAILS,
        );
    }
}

/// Logs each entry of the tables of rails for which this host has no device, no address or no rail.
/// Logs a warning if fewer than two rails lead to the server. May sleep.
#[inline(never)]
fn tell_missing(xprt: &Xprt<Rdma>, shared: &Shared, found: &[local::Local]) {
    let (common, net, name) = (xprt.common(), xprt.net(), Named(xprt));
    let is_off = params::rails(common, net, |locals| {
        for pick in locals.absent(ends(found)) {
            // LOG: The table `rails` names an address or an RDMA device that this namespace does
            // not have.
            pr_warn!(
                "{} rails: {} is not here\n",
                Show(&name),
                Show(&Entry(pick))
            );
        }
        locals.is_off()
    });
    let Some(peer) = xprt.peer().filter(|_| !is_off) else {
        return;
    };
    for addr in params::rail_servers(common, net).others(peer.ip()) {
        if !shared.with_rails(|rails| rails.lead_to(addr)) {
            // LOG: The table `rail_servers` names this address of the server, but no local address
            // is in its network. The mount itself uses another address of the server.
            pr_warn!(
                "{} rail_servers: no rail leads to {}\n",
                Show(&name),
                Show(&addr)
            );
        }
    }
    let rails = match shared.with_rails(|rails| rails.how_many()) {
        0 => "no rail",
        1 => "only one rail",
        _ => return,
    };
    // LOG: The message says `no rail` or `only one rail`. It is only a warning, because the
    // connections work. But if there is only one cable to the server and that cable fails, the
    // connections end.
    pr_warn!("{} {rails} to this server: no redundancy\n", Show(&name));
}
