// SPDX-License-Identifier: GPL-2.0

//! The order in which connections get memory while memory is short.
//!
//! Without an order, a connection that returns pages could take them again at once for its next
//! Call. The Calls of other connections would then wait for ever. The order has two levels:
//!
//! - The connections of one client address get pages in the order in which they began to wait. Each
//!   waiting connection has a *place* in this order.
//! - The client addresses take turns. The first waiting connection of an address draws a *turn* if
//!   its Call could be processed as soon as enough pages are free. While a connection has a turn,
//!   no Call with a later turn or without a turn gets pages. So small Calls cannot take all the
//!   pages that a large Call waits for.
//!
//! A connection waits in this order only for pages that other connections hold. If the limit for
//! the connection itself is reached, the connection has neither a place nor a turn, because only
//! its own Calls can help it. If the limit for its address is reached, the connection has a place,
//! but no turn.
//!
//! No connection waits for ever. While a connection has the first place of its address, no other
//! connection of the address gets pages, so at some time the address holds none. From then on the
//! connection keeps its turn, and each other address gets pages for at most one Call before it.

use crate::{
    responder::budget::{
        Pages,
        Wait, //
    },
    time::{
        Millis,
        Time, //
    }, //
};
use core::ops::DerefMut;

/// A waiting connection that has not requested its pages for this long delays no other connection.
/// A driver must request the pages of a waiting Call much more often than that.
pub const LAPSE: Millis = Millis::from_secs(1);

/// A connection that may have to wait. `T` is what the driver needs to make the connection request
/// its pages again.
#[derive(Debug)]
pub struct Member<T> {
    /// The number of the client address.
    address: u64,
    /// The place among the connections of the address; `None` if the connection does not wait.
    place: Option<u64>,
    /// The turn of the address. Only a connection that has a place has a turn.
    turn: Option<u64>,
    /// When the connection last requested pages and did not get them.
    asked: Time,
    waker: T,
}

/// All connections, and the order of those that wait. `S` is a list of `Option<Member<T>>` that the
/// driver provides. An element is `None` if no connection uses it.
#[derive(Debug)]
pub struct Turns<S> {
    members: S,
    /// Number of connections that wait.
    waiting: u32,
    /// The last number that was drawn for a place or a turn.
    drawn: u64,
}

impl<T> Member<T> {
    /// Returns true if the connection waits, and requests its pages regularly.
    fn delays_others(&self, now: Time) -> bool {
        self.place.is_some() && now.since(self.asked) <= LAPSE
    }

    /// Returns true if this connection has the same address as the other connection and a place
    /// before it.
    fn has_place_before(&self, other: &Self) -> bool {
        let is_before = |own| other.place.is_none_or(|place| own < place);
        self.address == other.address && self.place.is_some_and(is_before)
    }

    /// Returns true if this connection has a turn before the other connection.
    fn has_turn_before(&self, other: &Self) -> bool {
        let is_before = |own| other.turn.is_none_or(|turn| own < turn);
        self.turn.is_some_and(is_before)
    }
}

impl<S> Turns<S> {
    /// Creates the order. `members` contains no connection yet.
    #[inline]
    pub const fn new(members: S) -> Self {
        Self {
            members,
            waiting: 0,
            drawn: 0,
        }
    }

    /// Returns the number of connections that wait.
    #[inline]
    pub const fn waiting(&self) -> u32 {
        self.waiting
    }
}

impl<T: 'static, S: DerefMut<Target = [Option<Member<T>>]>> Turns<S> {
    /// Adds a connection. Returns the number of the connection, or returns `waker` if the list is
    /// full.
    pub fn join(&mut self, address: u64, waker: T) -> Result<usize, T> {
        // `enumerate` would check its counter for an overflow, and so could panic.
        let mut all = (0..self.members.len()).zip(self.members.iter_mut());
        let Some((number, unused)) = all.find(|(_, member)| member.is_none()) else {
            return Err(waker);
        };
        *unused = Some(Member {
            address,
            place: None,
            turn: None,
            asked: Time::default(),
            waker,
        });
        Ok(number)
    }

    /// Removes a connection that has ended, and returns its waker.
    pub fn leave(&mut self, number: usize) -> Option<T> {
        self.stop_waiting(number);
        let member = self.members.get_mut(number)?.take();
        member.map(|member| member.waker)
    }

    /// Returns the length of the list.
    pub fn capacity(&self) -> usize {
        self.members.len()
    }

    /// Moves all connections to another list, and returns the old list. All elements of `members`
    /// must be `None`. If the other list is too short, nothing is moved and the other list is
    /// returned.
    pub fn move_to(&mut self, mut members: S) -> S {
        let len = members.len();
        if self.members.iter().skip(len).any(Option::is_some) {
            return members;
        }
        for (new, old) in members.iter_mut().zip(self.members.iter_mut()) {
            core::mem::swap(new, old);
        }
        core::mem::replace(&mut self.members, members)
    }

    /// Requests pages for the first waiting Call of a connection, or for a Call that has just
    /// arrived while no Call of the connection waits. `wait` is the reason why the Call must wait
    /// if others are first (see [`Budget::wait`](super::budget::Budget::wait)). Calls `take` only
    /// if the Call may get its pages now.
    ///
    /// Also returns whether the connection has lost its place or its turn. If so, the driver must
    /// wake the connections of [`next`](Self::next).
    pub fn take(
        &mut self,
        number: usize,
        wait: Wait,
        now: Time,
        take: impl FnOnce() -> Result<Pages, Wait>,
    ) -> (Result<Pages, Wait>, bool) {
        let taken = match self.limit(number, wait, now) {
            Some(wait) => Err(wait),
            None => take(),
        };
        let lost = match taken {
            Ok(_) | Err(Wait::Share) => self.stop_waiting(number),
            Err(Wait::Address) => self.wait(number, now, false),
            Err(Wait::Budget) => self.wait(number, now, true),
        };
        (taken, lost)
    }

    /// Returns why the Call must wait, or `None` if its connection is first.
    fn limit(&self, number: usize, wait: Wait, now: Time) -> Option<Wait> {
        if wait != Wait::Budget {
            return Some(wait);
        }
        let member = self.members.get(number)?.as_ref()?;
        let others = || self.waiting_now(now);
        if others().any(|other| other.has_place_before(member)) {
            Some(Wait::Address)
        } else if others().any(|other| other.has_turn_before(member)) {
            Some(Wait::Budget)
        } else {
            None
        }
    }

    /// Returns the connections that wait and request their pages regularly.
    fn waiting_now(&self, now: Time) -> impl Iterator<Item = &Member<T>> {
        let members = self.members.iter().flatten();
        members.filter(move |member| member.delays_others(now))
    }

    /// Records that a connection waits, and whether it has a turn. Returns whether the connection
    /// had a turn and lost it.
    fn wait(&mut self, number: usize, now: Time, turn: bool) -> bool {
        // A counter of 64 bits does not reach its maximum.
        self.drawn = self.drawn.saturating_add(1);
        let drawn = self.drawn;
        let Some(Some(member)) = self.members.get_mut(number) else {
            return false;
        };
        member.asked = now;
        if member.place.is_none() {
            member.place = Some(drawn);
            self.waiting = self.waiting.saturating_add(1);
        }
        if turn {
            member.turn.get_or_insert(drawn);
            return false;
        }
        member.turn.take().is_some()
    }

    /// Records that a connection does not wait. Returns whether the connection did wait.
    pub fn stop_waiting(&mut self, number: usize) -> bool {
        let Some(Some(member)) = self.members.get_mut(number) else {
            return false;
        };
        member.turn = None;
        let waited = member.place.take().is_some();
        self.waiting = self.waiting.saturating_sub(waited.into());
        waited
    }

    /// Returns the wakers of the connections that may get the next pages: the connection with the
    /// first turn, and the first connection of this address. A driver wakes these connections when
    /// a Call of the address has returned pages.
    pub fn next(&self, address: u64, now: Time) -> impl Iterator<Item = &T> {
        let of_all = self
            .waiting_now(now)
            .filter(|member| member.turn.is_some())
            .min_by_key(|member| member.turn);
        // If the first connection of the address has a turn, the connection waits for this turn.
        let of_address = self
            .waiting_now(now)
            .filter(|member| member.address == address)
            .min_by_key(|member| member.place)
            .filter(|member| member.turn.is_none());
        of_all
            .into_iter()
            .chain(of_address)
            .map(|member| &member.waker)
    }
}
