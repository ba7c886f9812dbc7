// SPDX-License-Identifier: GPL-2.0

//! Tests of the memory that references to pages keep allocated (`PageRefs`).

use super::ensure::Test;
use crate::pages::Pages;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};
use xprtrdma_base::buffer::{
    PageRefs,
    SMALL, //
};
use xprtrdma_bindings as bindings;

#[kunit_tests(xprtrdma_taken)]
mod suite {
    use super::*;

    const P: usize = PAGE_SIZE;

    /// Returns whether `len` bytes can be taken over, if they begin at `offset` in pages that all
    /// belong to one allocation of `count` pages.
    fn are_taken(count: usize, offset: usize, len: usize) -> Result<bool> {
        let pages = Pages::new(count * P)?;
        ensure_eq!(pages.runs().len(), 1);
        let array = pages.raw_from(0);
        let needed = &array[offset / P..(offset + len).div_ceil(P)];
        for page in needed {
            // SAFETY: `pages` holds a reference to the page during the call.
            unsafe { bindings::fake_get_page(*page) };
        }
        // SAFETY: The array contains the addresses of pages, and is not changed. This function owns
        // one reference to each page that contains some of the bytes.
        let taken = unsafe { PageRefs::take(array.as_ptr(), offset, len, None) };
        if taken.is_err() {
            for page in needed {
                // SAFETY: The references were not taken over.
                unsafe { bindings::xprtrdma_put_page(*page) };
            }
        }
        match taken.map(drop) {
            Ok(()) => Ok(true),
            Err(error) if error == E2BIG => Ok(false),
            Err(error) => Err(error),
        }
    }

    #[test]
    fn few_bytes_keep_no_other_pages() -> Test {
        // Each case: the pages of the allocation, where the bytes begin, and how many they are.
        for (count, offset, len) in [(1, 0, 1), (1, 9, P - 9), (2, 0, SMALL), (2, P - 1, 2)] {
            ensure!(are_taken(count, offset, len)?);
        }
        for (count, offset, len) in [
            (2, 0, 1),
            (2, P, P),
            (4, 0, SMALL),
            (4, P - 1, SMALL),
            (16, 0, SMALL),
            (16, 9, SMALL),
        ] {
            ensure!(!are_taken(count, offset, len)?);
        }
        Ok(())
    }

    #[test]
    fn more_bytes_keep_eight_times_as_many_pages() -> Test {
        ensure!(are_taken(16, 0, SMALL + 1)?);
        ensure!(are_taken(16, 15 * P - SMALL, SMALL + P)?);
        ensure!(!are_taken(32, 0, SMALL + 1)?);
        ensure!(are_taken(32, 0, 4 * P)?);
        Ok(())
    }
}
