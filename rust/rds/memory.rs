// SPDX-License-Identifier: GPL-2.0

//! Memory of a program that peers can access ([`Memory`]).

use core::{
    ptr::NonNull,
    slice, //
};
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
    page_of,
    Lender,
    Loan,
    Piece, //
};
use xprtrdma_bindings as bindings;

/// Pages that RDS has pinned.
///
/// # Invariants
///
/// The pages are pinned until the last reference is dropped. If `owned` is set at that time, the
/// pages and the scatterlist `sg` belong to this object.
struct Pinned {
    pages: KVec<*mut page>,
    sg: NonNull<scatterlist>,
    owned: Atomic<bool>,
    /// Whether the driver has dropped its [`Memory`].
    free: Atomic<bool>,
}

// SAFETY: The object contains addresses of pages, which any thread may unpin.
unsafe impl Send for Pinned {}
// SAFETY: Through a `&Pinned`, threads only read addresses and access atomic variables.
unsafe impl Sync for Pinned {}

impl Drop for Pinned {
    fn drop(&mut self) {
        // ORDERING: The thread that set `owned` dropped its reference to this object afterwards.
        // The reference count orders that drop, and so the store, before this load.
        if self.owned.load(Relaxed) {
            let pages = self.pages.as_mut_ptr();
            // SAFETY: By the type invariant all pages are pinned, and the scatterlist belongs to
            // this object. Neither the pages nor the scatterlist are used again. The call may
            // sleep, because the drop of [`Memory`] may sleep.
            unsafe { bindings::rdsrdma_unpin(pages, self.pages.len(), self.sg.as_ptr()) };
        }
    }
}

/// Memory of a program. The memory stays pinned until this object is dropped. The drop may sleep.
///
/// # Invariants
///
/// The memory begins `first` bytes after the beginning of the first page. Each page contains at
/// least one byte of the memory, and there is at least one page.
pub struct Memory {
    pinned: Arc<Pinned>,
    first: usize,
    len: usize,
}

impl Drop for Memory {
    fn drop(&mut self) {
        // ORDERING: The thread that passed the memory to the driver reads `free` after the driver
        // has returned. So if the driver dropped the memory before it returned, the thread sees
        // that `free` is set.
        self.pinned.free.store(true, Relaxed);
    }
}

/// The right to take over pinned pages from RDS. Until [`Claim::claim`] the pages belong to RDS.
pub(crate) struct Claim(Arc<Pinned>);

impl Claim {
    /// Takes over the pages from RDS. From then on the last reference to the `Pinned` object unpins
    /// them.
    #[inline]
    pub(crate) fn claim(self) {
        // ORDERING: The reference count of `Pinned` orders this store before the load of `owned` in
        // the drop of `Pinned`.
        self.0.owned.store(true, Relaxed);
    }

    /// Leaves the pages to RDS, because the driver has refused the memory. RDS then unpins the
    /// pages.
    ///
    /// If the driver has not dropped its [`Memory`], a device may still access the pages. In this
    /// case this function takes a reference to each page, and never drops it. So the pages are
    /// never freed, and are not used for anything else.
    pub(crate) fn give_back(self) {
        // ORDERING: This thread reads `free` after the driver has returned. So if the driver
        // dropped the memory before it returned, this thread sees that `free` is set.
        if self.0.free.load(Relaxed) {
            return;
        }
        // SAFETY: RDS has pinned the pages, and does not unpin them before this call returns.
        unsafe { bindings::rdsrdma_keep(self.0.pages.as_ptr(), self.0.pages.len()) };
    }
}

impl Memory {
    /// Creates the object for `len` bytes of memory. The memory begins at offset `first` of the
    /// first page in the scatterlist `sg`.
    ///
    /// # Safety
    ///
    /// - `sg` has `count` entries with pinned pages.
    /// - RDS has passed `sg` to an operation of the driver. The pages stay pinned until this
    ///   operation returns.
    /// - After [`Claim::claim`] the pages stay pinned until the `Pinned` object unpins them.
    #[inline]
    pub(crate) unsafe fn new(
        sg: NonNull<scatterlist>,
        count: usize,
        first: usize,
        len: usize,
    ) -> Result<(Self, Claim)> {
        // SAFETY: By this function's contract `sg` has `count` entries. Nothing writes to the
        // entries during the call.
        let entries = unsafe { slice::from_raw_parts(sg.as_ptr().cast_const(), count) };
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        for entry in entries {
            let page = page_of(entry);
            pages.push_within_capacity(page).map_err(|_| ENOMEM)?;
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
        // INVARIANT: The number of pages was checked above.
        let memory = Self {
            pinned: pinned.clone(),
            first,
            len,
        };
        Ok((memory, Claim(pinned)))
    }

    /// Returns the number of pages that contain bytes of the memory.
    pub fn pages(&self) -> u32 {
        // CAST: RDS limits the memory to a mebibyte, so the number is small.
        self.pinned.pages.len() as u32
    }
}

// SAFETY: By the type invariant the pages stay pinned while the object exists, and the object is
// its own `Lender`. No code of this module creates a reference to the pages.
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
