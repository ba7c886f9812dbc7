// SPDX-License-Identifier: GPL-2.0

//! Memory that is lent to a device ([`Loan`]), and the object that keeps the memory until the
//! device no longer uses it ([`Lender`]).

use kernel::bindings::{
    page,
    scatterlist, //
};

/// A contiguous piece of memory, which is not empty.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// The first page of the piece; not null.
    pub page: *mut page,
    /// The following pages of the piece, none of which is null. If the piece continues after the
    /// last listed page, the further pages are physically contiguous.
    pub more: &'a [*mut page],
    /// Offset at which the piece begins in its first page.
    pub first: usize,
    /// Length of the piece in bytes.
    pub len: usize,
}

/// Memory that is about to be lent to a device.
///
/// # Safety
///
/// - The pieces that [`Loan::pieces`] and [`Loan::only_piece`] report are in memory that stays
///   allocated until [`Loan::into_lender`] has been called and its result is dropped.
/// - Until then no code reads or writes this memory through a Rust reference. The device may access
///   it.
/// - In every piece, `first` is less than the page size, and `more` has no more pages than `len`
///   needs.
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
    /// The type that keeps the memory while it is lent.
    type Lender: Lender;

    /// Returns the length of the lent memory in bytes.
    fn len(&self) -> usize;

    /// Calls `take` with the pieces of the lent memory in order, beginning with byte `start`, until
    /// `take` returns `false`. Does not sleep.
    fn pieces(&self, start: usize, take: impl FnMut(Piece<'_>) -> bool);

    /// Returns the piece if the lent memory is a single piece, and this can be determined cheaply.
    /// Mapping a single piece is faster.
    fn only_piece(&self) -> Option<Piece<'_>> {
        None
    }

    /// Converts the loan to an object that keeps the memory. The borrower calls this after it has
    /// read the pieces, so the object need not keep the list of pieces.
    fn into_lender(self) -> Self::Lender;

    /// Returns whether no memory is lent.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An object that keeps the memory that is lent to a device. The memory is kept until the object is
/// dropped; see [`Loan`].
pub trait Lender: Send {}

/// The bits of `scatterlist::page_link` that are not part of the page's address
/// (linux/scatterlist.h).
pub const SG_BITS: usize = 3;

/// Returns the page of an initialised entry of a scatter/gather table.
#[inline]
pub fn page_of(entry: &scatterlist) -> *mut page {
    (entry.page_link & !SG_BITS) as *mut page
}

/// Memory that a scatter/gather table describes and that is about to be lent to a device. The loan
/// ends when the object is dropped.
///
/// # Safety
///
/// - [`Table::entries`] returns initialised entries of a table that is a single array.
/// - Each entry describes at least one byte, and its bytes are in one page.
/// - Only the last entry may have the mark for the end of a table (`SG_END`).
/// - No entry was ever mapped for a device.
/// - The bytes stay allocated until the object is dropped. Until then no code reads or writes the
///   bytes through a Rust reference. The device may read them. It may write them if
///   [`Table::is_writable`] returns true.
///
/// # Examples
///
/// ```
/// # use kernel::{bindings::scatterlist, page::Page, prelude::*};
/// # use xprtrdma_base::lend::{Lender, Table};
/// /// Pages, and a table of them.
/// struct Pages {
///     _pages: KVec<Page>,
///     table: KVec<scatterlist>,
/// }
///
/// // SAFETY: Any thread may use pages.
/// unsafe impl Send for Pages {}
///
/// impl Lender for Pages {}
///
/// // SAFETY: The table describes pages of the object. No code creates a reference to their bytes.
/// unsafe impl Table for Pages {
///     fn entries(&self) -> &[scatterlist] {
///         &self.table
///     }
///
///     fn is_writable(&self) -> bool {
///         true
///     }
/// }
/// ```
pub unsafe trait Table: Lender {
    /// Returns the entries, in the order of the memory that they describe.
    fn entries(&self) -> &[scatterlist];

    /// Returns whether the device may write to the bytes. The value never changes.
    fn is_writable(&self) -> bool;
}
