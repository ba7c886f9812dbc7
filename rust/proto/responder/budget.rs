// SPDX-License-Identifier: GPL-2.0

//! Limits on the memory and the RDMA Reads of Calls: per connection, and for all connections
//! together.
//!
//! A message of a hundred bytes can request a Read of megabytes, before anything is known about its
//! sender. So pages are counted before they are allocated. A Call for which too few pages are free
//! waits in its Receive buffer: no thread blocks, the Call is not refused, and other connections
//! continue.

/// The number of free pages, which all connections of a server share. Every connection must be able
/// to access this number, so the driver protects it with a lock or stores it in an atomic variable.
#[derive(Debug)]
pub struct Budget {
    free: u32,
}

/// One connection's share of the budget: its pages and its RDMA Reads. When the connection closes,
/// the driver returns all pages that the share still holds (see [`Share::pages`]) to the budget in
/// one step.
#[derive(Debug)]
pub struct Share {
    pages: u32,
    most_pages: u32,
    reads: u32,
    most_reads: u32,
}

/// Pages that are counted for a Call. The pages must be returned with [`Budget::give_back`].
#[derive(Debug)]
#[must_use = "pages that are not given back are lost to the connection"]
pub struct Pages(u32);

impl Pages {
    /// Returns the number of pages.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.0
    }

    /// Returns an object for `count` pages that were counted, if the driver has stored only their
    /// number.
    #[inline]
    pub const fn of(count: u32) -> Self {
        Self(count)
    }

    /// Moves `count` pages into a new object. Returns `None` if this object has fewer pages.
    pub fn split(&mut self, count: u32) -> Option<Self> {
        self.0 = self.0.checked_sub(count)?;
        Some(Self(count))
    }
}

/// The reasons why a Call must wait. The driver tries again after pages were returned or Reads
/// completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// More pages would exceed the connection's share, or would leave too few pages free. A Call
    /// waits for this reason only while its connection holds pages. The connection tries again when
    /// it has returned some pages.
    Share,
    /// The server has too few free pages, or a connection of another address is first (see
    /// [`Turns`](super::turns::Turns)). A Call, perhaps of another connection, must return pages
    /// first.
    Budget,
    /// The connections from the client's address, taken together, must not hold more pages now, or
    /// another connection of the address is first. A Call, perhaps of another connection, must
    /// return pages first.
    Address,
}

impl Budget {
    /// Creates the budget of a server that holds at most `pages` pages for Calls. `longest` is the
    /// number of pages for the longest Call. The budget is never smaller than `longest`, so that no
    /// Call waits for ever.
    #[inline]
    pub const fn new(pages: u32, longest: u32) -> Self {
        Self::of(if pages > longest { pages } else { longest })
    }

    /// Creates a budget in which `free` pages are free.
    #[inline]
    pub const fn of(free: u32) -> Self {
        Self { free }
    }

    /// Takes pages for a Call of this connection. If the connection holds no pages, the Call may
    /// exceed the connection's share. So even a large Call does not wait for ever.
    ///
    /// The caller must request pages for Calls in the order of their arrival. So it must not
    /// request pages for a new Call while an older Call waits. Without this order, small Calls
    /// would take all returned pages, and a large Call would never find enough.
    ///
    /// A connection that already holds pages gets more pages only if it then holds no more pages
    /// than are still free. So connections that hold their maximum leave pages free, and the first
    /// Call of another connection finds free pages.
    ///
    /// # Errors
    ///
    /// Returns the reason why the Call must wait. In that case no page was taken.
    pub fn take(&mut self, share: &mut Share, pages: u32) -> Result<Pages, Wait> {
        let all = share.pages.saturating_add(pages);
        let left = self.free.checked_sub(pages);
        if share.is_exceeded_by(pages) || (share.pages != 0 && left.is_none_or(|left| all > left)) {
            return Err(Wait::Share);
        }
        self.free = left.ok_or(Wait::Budget)?;
        share.pages = all;
        Ok(Pages(pages))
    }

    /// Returns why a Call that needs `pages` pages must wait if connections of other addresses are
    /// first (see [`Turns`](super::turns::Turns)). All connections of the Call's address together
    /// hold `held` pages and may hold at most `most`.
    pub fn wait(&self, share: &Share, (held, most): (u32, u32), pages: u32) -> Wait {
        if share.is_exceeded_by(pages) {
            Wait::Share
        } else if !self.leaves(held, most, pages) {
            Wait::Address
        } else {
            Wait::Budget
        }
    }

    /// Returns true if the connections from one client address may take `pages` more pages.
    /// Together these connections hold `held` pages and may hold at most `most`. The rule is the
    /// same as in [`take`](Self::take), but for all these connections together. Without this rule,
    /// a client could open many connections, and their first Calls would hold all pages.
    #[inline]
    pub const fn leaves(&self, held: u32, most: u32, pages: u32) -> bool {
        let all = held.saturating_add(pages);
        held == 0 || (all <= most && all <= self.free.saturating_sub(pages))
    }

    /// Returns the pages of a Call to the budget, and removes them from the connection's share.
    pub fn give_back(&mut self, share: &mut Share, pages: Pages) {
        self.free = self.free.saturating_add(pages.0);
        share.pages = share.pages.saturating_sub(pages.0);
    }

    /// Returns the number of pages that no Call holds.
    #[inline]
    pub const fn free(&self) -> u32 {
        self.free
    }
}

impl Share {
    /// Creates the share of a new connection. `most_pages` is the maximum number of its pages.
    /// `most_reads` is the maximum number of RDMA Reads in flight that both ends support (RFC 8166
    /// 3.3.1).
    #[inline]
    pub const fn new(most_pages: u32, most_reads: u32) -> Self {
        Self {
            pages: 0,
            most_pages,
            reads: 0,
            most_reads,
        }
    }

    /// Returns the number of pages that the Calls and the RDMA transfers of this connection hold.
    #[inline]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns true if the connection holds pages, and `pages` more pages would exceed its share.
    #[inline]
    const fn is_exceeded_by(&self, pages: u32) -> bool {
        self.pages != 0 && self.pages.saturating_add(pages) > self.most_pages
    }

    /// Returns true if `count` RDMA Reads may be posted now. A Read above the limit would delay the
    /// replies that are posted after the Read. So one of these two conditions must hold:
    ///
    /// - The Reads in flight and the new Reads together do not exceed the limit.
    /// - No other Read is in flight, and the limit is not zero. `count` may then exceed the limit.
    #[inline]
    pub const fn may_read(&self, count: u32) -> bool {
        self.most_reads != 0
            && (self.reads == 0 || self.reads.saturating_add(count) <= self.most_reads)
    }

    /// Records that `count` RDMA Reads were posted.
    #[inline]
    pub fn begin_reads(&mut self, count: u32) {
        self.reads = self.reads.saturating_add(count);
    }

    /// Records that `count` RDMA Reads completed.
    #[inline]
    pub fn end_reads(&mut self, count: u32) {
        self.reads = self.reads.saturating_sub(count);
    }
}
