// SPDX-License-Identifier: GPL-2.0

//! Bounds on the memory and the RDMA Reads of Calls: per connection, and over all of them.
//!
//! A Call may ask for a Read of megabytes with a message of a hundred bytes, before anything is
//! known of its sender. So pages are counted before they are taken, and a Call that finds none
//! waits in its Receive buffer: no thread waits, nothing is refused, others go on.

/// The pages of all connections of a server: a number that a driver keeps where all of them find
/// it, behind a lock or in an atomic.
#[derive(Debug)]
pub struct Budget {
    free: u32,
}

/// The pages and the RDMA Reads of one connection. What it still holds at the end of the connection
/// goes back at once, see [`Share::pages`].
#[derive(Debug)]
pub struct Share {
    pages: u32,
    most_pages: u32,
    reads: u32,
    most_reads: u32,
}

/// Pages that a Call holds. They are returned with [`Budget::give_back`].
#[derive(Debug)]
#[must_use = "pages that are not given back are lost to the connection"]
pub struct Pages(u32);

impl Pages {
    /// Number of pages.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.0
    }

    /// The pages of RDMA Writes that have completed: [`split`](Self::split) took them from those of
    /// their Call, and the driver kept their number only.
    #[inline]
    pub const fn of_writes(count: u32) -> Self {
        Self(count)
    }

    /// Takes a part of them away. `None`: there are not as many.
    pub fn split(&mut self, count: u32) -> Option<Self> {
        self.0 = self.0.checked_sub(count)?;
        Some(Self(count))
    }
}

/// Why a Call waits. Try again when pages came back or Reads completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The connection holds as many pages as it may: the next that come back are its own.
    Share,
    /// All connections together hold all pages: the next that come back may be those of others.
    Budget,
    /// The connections of the client's address hold as many pages as they may together: the next
    /// that come back may be those of another connection.
    Address,
}

impl Budget {
    /// The budget of a server that holds at most `pages` for Calls, of which the longest may have
    /// `longest`. At least these are there, so that no Call waits for ever.
    #[inline]
    pub const fn new(pages: u32, longest: u32) -> Self {
        Self::of(if pages > longest { pages } else { longest })
    }

    /// The budget with this number of pages that no Call holds.
    #[inline]
    pub const fn of(free: u32) -> Self {
        Self { free }
    }

    /// Takes pages for a Call of this connection. A Call that alone is above the connection's
    /// share has it when the connection holds nothing else, so that it cannot wait for ever.
    /// Ask for the Calls that wait in their order, and for no other before them: otherwise small
    /// Calls take whatever comes back, and a large one never finds enough.
    ///
    /// A connection that holds pages gets more only as long as it holds no more than it leaves. So
    /// connections that hold all they can leave something, and the first Call of another one finds
    /// it.
    ///
    /// # Errors
    ///
    /// [`Wait`]; nothing was taken then.
    pub fn take(&mut self, share: &mut Share, pages: u32) -> Result<Pages, Wait> {
        let all = share.pages.saturating_add(pages);
        let left = self.free.checked_sub(pages);
        if share.pages != 0 && (all > share.most_pages || left.is_none_or(|left| all > left)) {
            return Err(Wait::Share);
        }
        self.free = left.ok_or(Wait::Budget)?;
        share.pages = all;
        Ok(Pages(pages))
    }

    /// Returns whether the connections of one address may have `pages` more. They hold `held`
    /// together, and may hold `most`. It is the rule of [`take`](Self::take) for one connection:
    /// otherwise a client makes many, and the first Calls of all of them hold everything.
    #[inline]
    pub const fn leaves(&self, held: u32, most: u32, pages: u32) -> bool {
        let all = held.saturating_add(pages);
        held == 0 || (all <= most && all <= self.free.saturating_sub(pages))
    }

    /// Returns the pages of a Call.
    pub fn give_back(&mut self, share: &mut Share, pages: Pages) {
        self.free = self.free.saturating_add(pages.0);
        share.pages = share.pages.saturating_sub(pages.0);
    }

    /// Pages that no Call holds.
    #[inline]
    pub const fn free(&self) -> u32 {
        self.free
    }
}

impl Share {
    /// The share of a new connection. `most_reads` is how many RDMA Reads both ends can have under
    /// way at once (RFC 8166 3.3.1).
    #[inline]
    pub const fn new(most_pages: u32, most_reads: u32) -> Self {
        Self {
            pages: 0,
            most_pages,
            reads: 0,
            most_reads,
        }
    }

    /// Changes how many pages the connection may hold: more for a client that is known.
    #[inline]
    pub fn allow(&mut self, most_pages: u32) {
        self.most_pages = most_pages;
    }

    /// Pages that the Calls of this connection hold, and its transfers.
    #[inline]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns whether this number of Reads may be posted: no more than the limit are under way
    /// then, or no others. A Read posted above the limit would delay the replies behind it.
    #[inline]
    pub const fn may_read(&self, count: u32) -> bool {
        self.most_reads != 0
            && (self.reads == 0 || self.reads.saturating_add(count) <= self.most_reads)
    }

    /// Reads were posted.
    pub fn begin_reads(&mut self, count: u32) {
        self.reads = self.reads.saturating_add(count);
    }

    /// Reads completed.
    pub fn end_reads(&mut self, count: u32) {
        self.reads = self.reads.saturating_sub(count);
    }
}
