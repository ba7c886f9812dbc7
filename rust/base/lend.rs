// SPDX-License-Identifier: GPL-2.0

//! Memory that is lent to a device ([`Loan`]), and what keeps it meanwhile ([`Lender`]).

use kernel::bindings::page;

/// Memory that is about to be lent to a device.
///
/// # Safety
///
/// Every piece that [`Loan::pieces`] tells of lies in memory that stays allocated, and that
/// nobody but the device reads or writes as a Rust reference, until [`Loan::into_lender`] has been
/// called and its result is dropped.
pub unsafe trait Loan {
    /// What keeps the memory while it is lent.
    type Lender: Lender;

    /// Octets lent.
    fn len(&self) -> usize;

    /// Calls `take` with the pieces of the lent memory in order, beginning with the octet at `start`,
    /// until it returns `false`: (pages, offset, octets). The offset is less than a page and counts
    /// from the first page; behind the last the piece goes on in those that follow it physically.
    /// No piece is empty. Does not sleep.
    fn pieces(&self, start: usize, take: impl FnMut(&[*mut page], usize, usize) -> bool);

    /// The pieces are known to the borrower now; what they lie in is all that must be kept.
    fn into_lender(self) -> Self::Lender;

    /// Whether nothing is lent.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What keeps memory that is lent to a device, until it is dropped; see [`Loan`].
pub trait Lender: Send {}
