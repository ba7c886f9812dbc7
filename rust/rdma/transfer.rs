// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes that this host posts ([`Transfer`], [`Blank`]). They move bytes between
//! memory of the peer and memory of this host: pages of this module, or lent memory.
//!
//! [`Pages`] belong first to a driver, and then to a [`Transfer`], which maps them for a device. A
//! queue pair takes ownership of a posted transfer, and returns it after its completion. If a
//! transfer has not completed, it is dropped only after the queue pair has been destroyed. So a
//! page that a device may still use is never available for another purpose.

use crate::{
    dma::Direction,
    mapped::MappedPages,
    pages::{
        Mappable,
        Pages, //
    },
    pd::Pd,
    sink::{
        Sink,
        Sinks, //
    },
    stretch::Stretch, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::buffer::PageList;
#[cfg(xprtrdma_rds)]
use xprtrdma_base::lend::Table;
use xprtrdma_bindings as bindings;

mod memory;
mod requests;

use memory::Memory;

/// A transfer is kept to be used again only if its list of work requests has space for at most
/// `SPARE_WRS` work requests, and its list of elements has space for at most `SPARE_SGES` elements.
const SPARE_WRS: usize = 64;
const SPARE_SGES: usize = 512;

/// The direction of a [`Transfer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Read of the peer's memory.
    Read,
    /// A Write to the peer's memory.
    Write,
}

/// RDMA Reads or Writes that are ready to be posted.
///
/// # Invariants
///
/// - The work requests refer to elements. If `memory` is a [`Sink`], these are elements of `sges`,
///   otherwise elements of `memory`.
/// - The elements refer to the pages of `memory`.
/// - The vectors do not grow, so the elements do not move.
/// - There is at least one work request, except in a [`Blank`].
/// - In a [`Blank`] the work requests are those of the last transfer, and refer to no elements.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_base::buffer::PageArray;
/// # use xprtrdma_rdma::{
/// #     pages::Pages,
/// #     qp::{Qp, QpHandler},
/// #     stretch::Stretch,
/// #     transfer::{Kind, Transfer},
/// # };
/// /// Reads memory of the peer. The pages come back in `QpHandler::transferred`.
/// fn read<H: QpHandler>(qp: &Qp<H>, handle: u32, offset: u64, len: u32) -> Result {
///     let pages = Pages::new(len as usize)?;
///     let whole = Stretch { handle, offset, len, at: 0 };
///     let sges = qp.pd().max_send_sges() as usize;
///     let transfer = Transfer::new(Kind::Read, qp.pd(), pages, sges, core::iter::once(whole))?;
///     let batch = qp.begin(0, transfer.wrs()).map_err(|_| EAGAIN)?;
///     batch.post_transfer(KBox::new(transfer, GFP_KERNEL)?, None)
/// }
///
/// /// Returns the bytes that were read.
/// fn read_bytes(transfer: Transfer) -> Result<usize> {
///     let pages: Pages = transfer.into_pages().ok_or(EINVAL)?;
///     Ok(PageArray::len(&pages))
/// }
/// ```
pub struct Transfer {
    wrs: KVec<bindings::ib_rdma_wr>,
    /// The elements of a [`Sink`].
    sges: KVec<bindings::ib_sge>,
    memory: Memory,
    kind: Kind,
    tag: u64,
}

impl Kind {
    /// Returns the opcode, and the direction for which the memory must be mapped.
    fn raw(self) -> (u32, Direction) {
        match self {
            Kind::Read => (
                bindings::ib_wr_opcode_IB_WR_RDMA_READ,
                Direction::FromDevice,
            ),
            Kind::Write => (bindings::ib_wr_opcode_IB_WR_RDMA_WRITE, Direction::ToDevice),
        }
    }
}

/// A transfer without memory and work requests. Its empty lists keep their allocated memory, so
/// that the next transfer need not allocate.
///
/// # Invariants
///
/// `memory` is [`Memory::Own`] without pages, or [`Memory::Lent`] without a lender. There are no
/// elements. The work requests are those of the last transfer. The next transfer removes or
/// overwrites them.
///
/// # Examples
///
/// ```
/// # use kernel::{prelude::*, sync::Arc};
/// # use xprtrdma_rdma::{
/// #     pages::{Mappable, Pages},
/// #     pd::Pd,
/// #     stretch::Stretch,
/// #     transfer::{Blank, Kind, Transfer},
/// # };
/// fn example(pd: &Arc<Pd>, pages: Pages, whole: Stretch) -> Result<Option<Blank>> {
///     let blank = Blank::new(pd)?;
///     let memory = Mappable::Own(pages);
///     let transfer = blank.fill(Kind::Read, memory, core::iter::once(whole))?;
///     // It is posted, and comes back when it has completed.
///     let (_pages, blank) = Transfer::end(transfer);
///     Ok(blank)
/// }
/// ```
pub struct Blank(KBox<Transfer>);

impl Blank {
    /// Makes a transfer for the device of `pd`. May sleep.
    pub fn new(pd: &Arc<Pd>) -> Result<Self> {
        // INVARIANT: All lists are empty.
        Ok(Self(KBox::new(Transfer::none(pd), GFP_KERNEL)?))
    }

    /// Returns an empty list for pages. The list still has the allocated memory of an earlier use.
    /// Returns `None` if there is no such list.
    pub fn list(&mut self) -> Option<PageList> {
        match &mut self.0.memory {
            Memory::Own(pages) => pages.list(),
            Memory::Sink(_) => None,
            #[cfg(xprtrdma_rds)]
            Memory::Lent(_) => None,
        }
    }

    /// Maps the parts of `memory` that `stretches` need, and makes the work requests. May sleep.
    /// Returns `EINVAL` in three cases:
    ///
    /// - There are no stretches.
    /// - A stretch does not lie within the memory.
    /// - The device would write to pages that other code uses as well.
    pub fn fill(
        mut self,
        kind: Kind,
        memory: Mappable,
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result<KBox<Transfer>> {
        let this = &mut *self.0;
        this.tag = 0;
        this.make(kind, memory, None, stretches)?;
        Ok(self.0)
    }

    /// Makes Reads of `stretches` into `pages` on an iWARP device. The regions of `pages` are
    /// registered before the Reads, and the Reads invalidate the regions. Returns the same errors
    /// as [`Blank::fill`]. May sleep.
    pub fn fill_sink(
        mut self,
        sinks: &Arc<Sinks>,
        pages: Pages,
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result<KBox<Transfer>> {
        let this = &mut *self.0;
        (this.tag, this.kind) = (0, Kind::Read);
        this.wrs.clear();
        let mut sink = Sink::new(sinks, pages)?;
        sink.make(&mut this.wrs, &mut this.sges, stretches)?;
        this.memory = Memory::Sink(sink);
        this.give_elements()?;
        Ok(self.0)
    }

    /// Makes the work requests that move all bytes of some lent memory, each with at most
    /// `most_sges` elements. `place` is a key of the peer, and an offset in the region with this
    /// key. [`Transfer::end`] returns the memory to its lender. May sleep.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: The memory is empty.
    /// - `EACCES`: The device would write to memory that may only be read.
    /// - `EIO`: The memory cannot be mapped.
    #[cfg(xprtrdma_rds)]
    pub fn fill_loan<T: Table + 'static>(
        mut self,
        kind: Kind,
        loan: T,
        most_sges: usize,
        place: (u32, u64),
    ) -> Result<KBox<Transfer>> {
        let (opcode, dir) = kind.raw();
        let this = &mut *self.0;
        (this.tag, this.kind) = (0, kind);
        let mapped = match &mut this.memory {
            Memory::Lent(mapped) => mapped,
            other => {
                this.wrs.clear(); // They were not made for lent memory.
                other.prepare_loan().ok_or(EINVAL)?
            }
        };
        mapped.map(loan, dir)?;
        mapped.requests(opcode, most_sges, place, &mut this.wrs)?;
        // INVARIANT: The elements do not move, and there is a work request.
        Ok(self.0)
    }
}

// SAFETY: The pointers refer to memory that the value owns.
unsafe impl Send for Transfer {}

impl Transfer {
    /// Maps the parts of `pages` that `stretches` need, for the device of `pd`, and makes the work
    /// requests, each with at most `most_sges` elements. Returns the same errors as
    /// [`Blank::fill`]. May sleep.
    pub fn new(
        kind: Kind,
        pd: &Arc<Pd>,
        pages: Pages,
        most_sges: usize,
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result<Self> {
        let mut this = Self::none(pd);
        this.make(kind, Mappable::Own(pages), Some(most_sges), stretches)?;
        Ok(this)
    }

    /// Makes an object without memory and work requests.
    fn none(pd: &Arc<Pd>) -> Self {
        Self {
            wrs: KVec::new(),
            sges: KVec::new(),
            memory: Memory::Own(MappedPages::none(pd)),
            kind: Kind::Read,
            tag: 0,
        }
    }

    /// Ends a transfer that was not posted, or has completed. Returns the pages that the transfer
    /// owns. Also returns the empty transfer, unless its lists are too long to be kept. Drops the
    /// references to shared pages, and returns lent memory to its lender. May sleep.
    #[cfg_attr(xprtrdma_rds, inline)]
    #[cfg_attr(not(xprtrdma_rds), inline(always))]
    pub fn end(mut this: KBox<Self>) -> (Option<Pages>, Option<Blank>) {
        let pages = match &mut this.memory {
            Memory::Own(pages) => pages.unmap(),
            Memory::Sink(_) => this.end_sink(),
            #[cfg(xprtrdma_rds)]
            Memory::Lent(loan) => {
                loan.unmap();
                None
            }
        };
        (pages, Self::keep(this))
    }

    /// Ends a transfer whose memory is a [`Sink`], see [`Transfer::end`].
    #[inline(never)]
    fn end_sink(&mut self) -> Option<Pages> {
        let Memory::Sink(sink) = &self.memory else {
            return None;
        };
        self.sges.clear();
        let none = Memory::Own(MappedPages::none(sink.pd()));
        core::mem::replace(&mut self.memory, none).into_pages()
    }

    /// Ends a transfer of lent memory, see [`Transfer::end`]. Returns any other transfer unchanged.
    /// May sleep.
    #[cfg(xprtrdma_rds)]
    #[inline(always)]
    pub fn end_loan(mut this: KBox<Self>) -> Result<Option<Blank>, KBox<Self>> {
        let Self { wrs, memory, .. } = &mut *this;
        let Memory::Lent(loan) = memory else {
            return Err(this);
        };
        loan.unmap();
        let is_short = wrs.capacity() <= SPARE_WRS && loan.capacity() <= SPARE_SGES;
        // INVARIANT: The list of elements is empty.
        Ok(is_short.then(|| Blank(this)))
    }

    /// Turns a transfer without elements into a [`Blank`] that can be used again. Returns `None` if
    /// the lists of the transfer are too long to be kept.
    #[inline]
    fn keep(this: KBox<Self>) -> Option<Blank> {
        let elements = match &this.memory {
            #[cfg(xprtrdma_rds)]
            Memory::Lent(loan) => loan.capacity(),
            Memory::Own(pages) => pages.capacity(),
            Memory::Sink(_) => this.sges.capacity(),
        };
        let is_short = this.wrs.capacity() <= SPARE_WRS && elements <= SPARE_SGES;
        // INVARIANT: The list of elements is empty.
        is_short.then(|| Blank(this))
    }

    /// Stores a number of the driver's choice, see [`Qp::oldest_transfer`](crate::qp::Qp).
    pub fn set_tag(&mut self, tag: u64) {
        self.tag = tag;
    }

    /// Returns the number that the driver stored.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the direction of the transfer.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of work requests: Reads or Writes, and registrations.
    #[inline]
    pub fn wrs(&self) -> u32 {
        // CAST, NO-OVERFLOW: Vectors in memory have far fewer than 2^32 elements.
        match &self.memory {
            Memory::Sink(sink) => self.transfers().wrapping_add(sink.regions() as u32),
            _ => self.transfers(),
        }
    }

    /// Returns the number of Reads or Writes.
    #[inline]
    pub fn transfers(&self) -> u32 {
        // CAST: A vector in memory has far fewer than 2^32 elements.
        self.wrs.len() as u32
    }

    /// Returns the number of bytes in the pages of the transfer.
    #[inline]
    pub fn bytes(&self) -> usize {
        match &self.memory {
            Memory::Own(pages) => pages.len(),
            Memory::Sink(sink) => sink.len(),
            #[cfg(xprtrdma_rds)]
            Memory::Lent(_) => 0,
        }
    }

    /// Returns the pages of a transfer that was not posted, or has completed. Returns `None` if its
    /// memory was lent or is shared; that memory goes back to its owner.
    pub fn into_pages(self) -> Option<Pages> {
        self.memory.into_pages()
    }

    /// Returns true if the transfer may be posted to the queue pair of the domain `pd`.
    #[inline]
    pub(crate) fn may_be_posted(&self, pd: &Arc<Pd>) -> bool {
        self.memory.may_be_posted(pd)
    }

    /// Links the registrations of the transfer's regions in front of `next`, the first Read.
    /// Returns the first work request. All registrations use the completion entry `cqe`.
    ///
    /// `seq` is the number of the last invalidation on the send queue. If the transfer has regions,
    /// `seq` is increased by one, because the Reads invalidate the regions.
    #[inline]
    pub(crate) fn register(
        &mut self,
        seq: &mut u64,
        cqe: *mut bindings::ib_cqe,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        match &mut self.memory {
            Memory::Sink(sink) => sink.link(seq, cqe, next),
            _ => next,
        }
    }

    /// Records that all work requests of the transfer were posted and have completed.
    #[inline]
    pub(crate) fn completed(&mut self) {
        if let Memory::Sink(sink) = &mut self.memory {
            sink.completed();
        }
    }
}
