// SPDX-License-Identifier: GPL-2.0

//! The memory of this host that a transfer accesses ([`Memory`]).

#[cfg(xprtrdma_rds)]
use crate::lent::MappedLoan;
use crate::{
    mapped::MappedPages,
    pages::Pages,
    pd::Pd,
    sink::Sink, //
};
use kernel::sync::Arc;

/// The memory of this host that a transfer accesses.
pub(super) enum Memory {
    Own(MappedPages),
    /// Pages that a Read fills, on an iWARP device.
    Sink(Sink),
    #[cfg(xprtrdma_rds)]
    Lent(MappedLoan),
}

impl Memory {
    /// Returns true if a transfer may be posted to the queue pair of the domain `pd`.
    #[inline]
    pub(super) fn may_be_posted(&self, pd: &Arc<Pd>) -> bool {
        #[cfg(xprtrdma_rds)]
        if let Memory::Lent(loan) = self {
            return loan.pd().as_raw() == pd.as_raw();
        }
        self.is_of(pd)
    }

    // For RDS this function is not inlined. Otherwise the compiler would merge the test of the
    // usual variant in `may_be_posted` with the tests here.
    #[cfg_attr(xprtrdma_rds, inline(never))]
    #[cfg_attr(not(xprtrdma_rds), inline)]
    fn is_of(&self, pd: &Arc<Pd>) -> bool {
        match self {
            Memory::Own(pages) => pages.pd().as_raw() == pd.as_raw(),
            Memory::Sink(sink) => sink.may_be_posted(pd),
            #[cfg(xprtrdma_rds)]
            Memory::Lent(loan) => loan.pd().as_raw() == pd.as_raw(),
        }
    }

    /// Ends the device's access. Returns the pages, see
    /// [`Transfer::into_pages`](super::Transfer::into_pages).
    pub(super) fn into_pages(self) -> Option<Pages> {
        match self {
            Memory::Own(mut pages) => pages.unmap(),
            Memory::Sink(sink) => sink.end(),
            #[cfg(xprtrdma_rds)]
            Memory::Lent(_) => None,
        }
    }

    /// Replaces the variant `Own` by the variant `Lent`, and returns the content of `Lent`. Returns
    /// `None` for the variant `Sink`.
    #[cfg(xprtrdma_rds)]
    #[cold]
    pub(super) fn prepare_loan(&mut self) -> Option<&mut MappedLoan> {
        if let Memory::Own(pages) = self {
            *self = Memory::Lent(MappedLoan::none(pages.pd()));
        }
        match self {
            Memory::Lent(mapped) => Some(mapped),
            _ => None,
        }
    }
}
