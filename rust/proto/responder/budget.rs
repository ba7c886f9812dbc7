// SPDX-License-Identifier: GPL-2.0

//! Bounds on the memory and the RDMA Reads of Calls: per connection, and over all of them.
//!
//! A Call may ask for a Read of megabytes with a message of a hundred bytes, before anything is
//! known of its sender. So pages are counted before they are taken, and a Call that finds none
//! waits in its Receive buffer: no thread waits, nothing is refused, others go on.

/// The pages of all connections of a server. Keep it behind one lock.
#[derive(Debug)]
pub struct Budget {
    free: u32,
}

/// The pages and the RDMA Reads of one connection.
#[derive(Debug)]
pub struct Share {
    pages: u32,
    most_pages: u32,
    reads: u32,
    most_reads: u32,
}

/// Pages that a Call holds. They are returned with [`Budget::give_back`].
#[derive(Debug)]
#[must_use = "pages that are not given back are lost to everybody"]
pub struct Pages(u32);

impl Pages {
    /// Number of pages.
    #[inline]
    pub const fn count(&self) -> u32 {
        self.0
    }
}

/// Why a Call waits. Try again when pages came back or Reads completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wait {
    /// The connection holds as many pages as one connection may.
    Share,
    /// All connections together hold all pages.
    Budget,
}

impl Budget {
    /// The budget of a server that holds at most `pages` for Calls, of which the longest may have
    /// `longest`. At least these are there, so that no Call waits for ever.
    #[inline]
    pub const fn new(pages: u32, longest: u32) -> Self {
        Self {
            free: if pages > longest { pages } else { longest },
        }
    }

    /// Takes pages for a Call of this connection. A Call that alone is above the connection's
    /// share has it when the connection holds nothing else, so that it cannot wait for ever.
    /// Ask for the Calls that wait in their order, and for no other before them: otherwise small
    /// Calls take whatever comes back, and a large one never finds enough.
    ///
    /// # Errors
    ///
    /// [`Wait`]; nothing was taken then.
    pub fn take(&mut self, share: &mut Share, pages: u32) -> Result<Pages, Wait> {
        let all = share.pages.saturating_add(pages);
        if all > share.most_pages && share.pages != 0 {
            return Err(Wait::Share);
        }
        self.free = self.free.checked_sub(pages).ok_or(Wait::Budget)?;
        share.pages = all;
        Ok(Pages(pages))
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

    /// Sets how many pages the connection may hold: more once the client is authenticated.
    #[inline]
    pub fn allow(&mut self, most_pages: u32) {
        self.most_pages = most_pages;
    }

    /// Pages that the Calls of this connection hold.
    #[inline]
    pub const fn pages(&self) -> u32 {
        self.pages
    }

    /// Takes the right to post a Read. `false`: as many as are allowed are under way. Replies can
    /// still be sent, which a Read posted above the limit would delay.
    #[must_use = "a Read above the limit holds up what is posted behind it"]
    pub fn begin_read(&mut self) -> bool {
        let room = self.reads < self.most_reads;
        if room {
            self.reads = self.reads.saturating_add(1);
        }
        room
    }

    /// A Read completed.
    pub fn end_read(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }
}
