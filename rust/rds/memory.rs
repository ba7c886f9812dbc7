// SPDX-License-Identifier: GPL-2.0

//! Memory of a program that peers are to reach ([`Memory`]).

use core::ptr::NonNull;
use kernel::{
    bindings::{
        page,
        scatterlist, //
    },
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};
use xprtrdma_base::lend::{
    Lender,
    Loan,
    Piece, //
};
use xprtrdma_bindings as bindings;

/// Pages that RDS has pinned.
///
/// # Invariants
///
/// The pages are pinned until the last reference is gone; if `owned` is set then, they and the
/// table `sg` belong to this value.
struct Pinned {
    pages: KVec<*mut page>,
    sg: NonNull<scatterlist>,
    owned: Atomic<bool>,
    /// The driver has dropped the memory.
    free: Atomic<bool>,
}

// SAFETY: Addresses of pages, which any thread may unpin.
unsafe impl Send for Pinned {}
// SAFETY: `&Pinned` reads addresses only.
unsafe impl Sync for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        // ORDERING: Set before the reference was given up by the thread that set it.
        if self.owned.load(Relaxed) {
            let pages = self.pages.as_mut_ptr();
            // SAFETY: By the type invariant all are pinned, and the table is ours; neither is used
            // again. This may sleep, as the driver's regions may.
            unsafe { bindings::rdsrdma_unpin(pages, self.pages.len(), self.sg.as_ptr()) };
        }
    }
}

/// Memory of a program, which stays where it is until the value is dropped. That may sleep.
///
/// # Invariants
///
/// The memory begins `first` bytes behind the beginning of the first page, and lies in all of the
/// pages, of which there is at least one.
pub struct Memory {
    pinned: Arc<Pinned>,
    first: usize,
    len: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // ORDERING: Read by the thread that gave the memory to the driver, which drops it before it
        // answers, or keeps it.
        self.pinned.free.store(true, Relaxed);
    }
}

/// What becomes of the memory: it is that of RDS until it is claimed.
pub(crate) struct Claim(Arc<Pinned>);

impl Claim {
    /// Makes the memory the driver's.
    pub(crate) fn claim(self) {
        // ORDERING: Pairs with the count of the references.
        self.0.owned.store(true, Relaxed);
    }

    /// The driver has refused the memory, and RDS unpins it. If the driver keeps it all the same,
    /// because a device does not give it up, the pages are lost, so that nothing else gets them.
    pub(crate) fn give_back(self) {
        // ORDERING: See the drop of `Memory`.
        if self.0.free.load(Relaxed) {
            return;
        }
        // SAFETY: RDS has pinned the pages, and unpins them after this.
        unsafe { bindings::rdsrdma_keep(self.0.pages.as_ptr(), self.0.pages.len()) };
    }
}

impl Memory {
    /// Makes the value for the `len` bytes that begin at `first` of the pages in a table.
    ///
    /// # Safety
    ///
    /// The table has `count` entries with pinned pages. They stay so during the operation of RDS
    /// that passes them, and if the result is claimed until this gives them up.
    pub(crate) unsafe fn new(
        sg: NonNull<scatterlist>,
        count: usize,
        first: usize,
        len: usize,
    ) -> Result<(Self, Claim)> {
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        for index in 0..count {
            // SAFETY: Within the table, by this function's contract.
            let entry = unsafe { sg.add(index) };
            // SAFETY: As above.
            let page = unsafe { bindings::rdsrdma_sg_page(entry.as_ptr()) };
            pages.push(page, GFP_KERNEL)?;
        }
        let touched = first.saturating_add(len).div_ceil(kernel::page::PAGE_SIZE);
        if count == 0 || first >= kernel::page::PAGE_SIZE || len == 0 || touched != count {
            return Err(EINVAL);
        }
        let pinned = Pinned {
            pages,
            sg,
            owned: Atomic::new(false),
            free: Atomic::new(false),
        };
        let pinned = Arc::new(pinned, GFP_KERNEL)?;
        // INVARIANT: Checked above.
        let memory = Self {
            pinned: pinned.clone(),
            first,
            len,
        };
        Ok((memory, Claim(pinned)))
    }

    /// Returns the number of pages that it lies in.
    pub fn pages(&self) -> u32 {
        // CAST: A megabyte has few.
        self.pinned.pages.len() as u32
    }
}

// SAFETY: By the type invariant. The pages are pinned as long as the value is there, which is its
// own lender. No code of this module makes a reference to them.
unsafe impl Loan for Memory {
    type Lender = Self;

    fn len(&self) -> usize {
        self.len
    }

    fn pieces(&self, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
        if let (0, Some((page, more))) = (start, self.pinned.pages.split_first()) {
            take(Piece {
                page: *page,
                more,
                first: self.first,
                len: self.len,
            });
        }
    }

    fn into_lender(self) -> Self {
        self
    }
}

impl Lender for Memory {}
