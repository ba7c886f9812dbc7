// SPDX-License-Identifier: GPL-2.0

//! Memory that is lent to a device ([`Loan`]), and its keeper until it is back ([`Lender`]).

use kernel::bindings::page;

/// A piece of memory, which is not empty.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// Its first page, which is not null.
    pub page: *mut page,
    /// The pages that follow, none of which is null. Bytes behind the last listed page lie in the
    /// pages that follow it physically.
    pub more: &'a [*mut page],
    /// Where it begins in its first page.
    pub first: usize,
    /// Bytes.
    pub len: usize,
}

/// Memory that is about to be lent to a device.
///
/// # Safety
///
/// Every piece that [`Loan::pieces`] and [`Loan::only_piece`] tell of lies in memory that stays
/// allocated until [`Loan::into_lender`] has been called and its result is dropped. Until then no
/// code reads or writes that memory through a Rust reference; the device may. A piece has `first`
/// less than a page, and `more` no longer than its bytes need.
///
/// # Examples
///
/// ```
/// # use kernel::{page::{Page, PAGE_SIZE}, prelude::*};
/// # use xprtrdma_base::lend::{Lender, Loan, Piece};
/// /// A whole page.
/// struct OnePage(Page);
///
/// struct Kept(Page);
///
/// impl Lender for Kept {}
///
/// // SAFETY: `Kept` keeps the page, and no code makes a reference to its bytes.
/// unsafe impl Loan for OnePage {
///     type Lender = Kept;
///
///     fn len(&self) -> usize {
///         PAGE_SIZE
///     }
///
///     fn pieces(&self, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
///         take(Piece {
///             page: self.0.as_ptr(),
///             more: &[],
///             first: start,
///             len: PAGE_SIZE - start,
///         });
///     }
///
///     fn into_lender(self) -> Kept {
///         Kept(self.0)
///     }
/// }
/// ```
pub unsafe trait Loan {
    /// Keeps the memory while it is lent.
    type Lender: Lender;

    /// Bytes lent.
    fn len(&self) -> usize;

    /// Calls `take` with the pieces of the lent memory in order, beginning with the byte at
    /// `start`, until it returns `false`. Does not sleep.
    fn pieces(&self, start: usize, take: impl FnMut(Piece<'_>) -> bool);

    /// Returns the one piece that all of the lent memory consists of, if that is easily seen.
    /// Mapping it is faster then.
    fn only_piece(&self) -> Option<Piece<'_>> {
        None
    }

    /// Turns the loan into the keeper of its memory. The borrower has the pieces now, and only the
    /// memory must be kept.
    fn into_lender(self) -> Self::Lender;

    /// Whether nothing is lent.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The keeper of memory that is lent to a device, until it is dropped; see [`Loan`].
pub trait Lender: Send {}
