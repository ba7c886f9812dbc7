// SPDX-License-Identifier: GPL-2.0

//! Tests of memory that is mapped for a device without a region: memory of the RPC client
//! (`MappedLoan`), and pages (`MappedPages`).

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        domain,
        virtual_domain,
        Census,
        Verb,
        DOMAIN, //
    },
    lent::Lent, //
};
use crate::{
    dma::Direction,
    lent::MappedLoan,
    mapped::MappedPages,
    pages::{
        Mappable,
        Pages, //
    },
    pd::Pd,
};
use core::cell::Cell;
use kernel::{
    bindings::scatterlist,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    },
};
use xprtrdma_base::{
    buffer::{
        PageArray,
        PageRefs, //
    },
    lend::{
        Lender,
        Loan,
        Table, //
    }, //
};
use xprtrdma_bindings as bindings;

/// Memory with a table of its pieces, each of which is in one page.
struct Listed {
    lent: Lent,
    table: KVec<scatterlist>,
    is_writable: bool,
}

impl Listed {
    fn new(pieces: &[(usize, usize)], is_writable: bool) -> Result<Self> {
        let lent = Lent::new(pieces)?;
        let mut table = KVec::new();
        let mut listed = Ok(());
        lent.pieces(0, |piece| {
            let entry = scatterlist {
                page_link: piece.page.addr(),
                offset: piece.first as u32,
                length: piece.len as u32,
                ..Default::default()
            };
            listed = table.push(entry, GFP_KERNEL);
            listed.is_ok()
        });
        listed?;
        Ok(Self {
            lent,
            table,
            is_writable,
        })
    }
}

// SAFETY: The table is only read.
unsafe impl Send for Listed {}

impl Lender for Listed {}

// SAFETY: The table describes memory of `lent`, which the test only reads while it is mapped. Each
// entry is within one page, is not marked as a chain or as the last entry, and was never mapped.
unsafe impl Table for Listed {
    fn entries(&self) -> &[scatterlist] {
        &self.table
    }

    fn is_writable(&self) -> bool {
        self.is_writable
    }
}

/// Returns the bytes that the device reads through these elements.
fn read(sges: &[bindings::ib_sge]) -> Result<KVec<u8>> {
    let mut bytes = KVec::new();
    for sge in sges {
        let mut part = KVec::from_elem(0u8, sge.length as usize, GFP_KERNEL)?;
        // SAFETY: The buffer is writable and has this length.
        let errno =
            unsafe { bindings::fake_dma_read(sge.addr, part.as_mut_ptr().cast(), sge.length) };
        kernel::error::to_result(errno)?;
        bytes.extend_from_slice(&part, GFP_KERNEL)?;
    }
    Ok(bytes)
}

const P: usize = PAGE_SIZE;
/// Lists of pieces. In each of the first three lists, the pieces are adjacent in memory.
const LISTS: [&[(usize, usize)]; 6] = [
    &[(0, P)],
    &[(0, P), (P, P), (2 * P, 100)],
    &[(100, P - 100), (P, 1), (P + 1, 5)],
    &[(P, P), (0, P), (2 * P, P)],
    &[(0, 10), (20, 10), (2 * P + 7, 3)],
    &[(5, 1), (7, 1), (8, 1), (P - 1, 1), (P, 1)],
];

#[kunit_tests(xprtrdma_mapped)]
mod suite {
    use super::*;

    /// Returns an object to which the memory of `listed` is mapped.
    fn mapped(pd: &Arc<Pd>, listed: Listed, dir: Direction) -> Result<MappedLoan> {
        let mut mapped = MappedLoan::none(pd);
        mapped.map(listed, dir)?;
        Ok(mapped)
    }

    #[test]
    fn the_elements_of_a_loan_are_its_bytes() -> Test {
        let pd = domain()?;
        // One object maps several loans, one after another.
        let mut mapped = MappedLoan::none(&pd);
        for list in LISTS {
            let listed = Listed::new(list, true)?;
            let given_back = listed.lent.given_back();
            let mut expected = KVec::new();
            for &(first, len) in list {
                let piece = listed.lent.bytes().get(first..first + len);
                expected.extend_from_slice(piece.ok_or(EINVAL)?, GFP_KERNEL)?;
            }
            mapped.map(listed, Direction::ToDevice)?;
            ensure_eq!(Census::now().mappings, 1);
            let sges = mapped.sges();
            ensure!(read(sges)? == expected);
            // Adjacent pieces become one element: no element begins where the previous element
            // ends.
            for two in sges.windows(2) {
                ensure!(two[0].addr + u64::from(two[0].length) != two[1].addr);
            }
            let other = Listed::new(list, true)?;
            ensure_eq!(mapped.map(other, Direction::ToDevice).err(), Some(EINVAL));
            ensure_eq!(given_back.load(Relaxed), 0);
            mapped.unmap();
            ensure_eq!(given_back.load(Relaxed), 1);
            ensure!(mapped.sges().is_empty());
            ensure_eq!(Census::now(), DOMAIN);
        }
        Ok(())
    }

    #[test]
    fn a_dropped_loan_goes_back() -> Test {
        let pd = domain()?;
        let listed = Listed::new(LISTS[1], true)?;
        let given_back = listed.lent.given_back();
        drop(mapped(&pd, listed, Direction::ToDevice)?);
        ensure_eq!(given_back.load(Relaxed), 1);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn a_loan_that_cannot_be_mapped_goes_back() -> Test {
        let pd = domain()?;
        for list in LISTS {
            let listed = Listed::new(list, true)?;
            let given_back = listed.lent.given_back();
            Verb::DmaMapSg.fail(1);
            let error = mapped(&pd, listed, Direction::FromDevice).err();
            ensure_eq!(error, Some(EIO));
            ensure_eq!(given_back.load(Relaxed), 1);
            ensure_eq!(Census::now(), DOMAIN);
        }
        Ok(())
    }

    #[test]
    fn a_loan_without_memory_for_tables_goes_back() -> Test {
        let pd = domain()?;
        let errors = each_allocation(
            || Listed::new(LISTS[1], true).map(|listed| Cell::new(Some(listed))),
            |cell| {
                let listed = cell.take().ok_or(EINVAL)?;
                mapped(&pd, listed, Direction::ToDevice).map(drop)
            },
            |cell| {
                drop(cell);
                ensure_eq!(Census::now(), DOMAIN);
                Ok(())
            },
        )?;
        // The call fails if there is no memory for the lender. The call may succeed although an
        // allocation for a list fails, because the kernel may then allocate the list page by page
        // (`kvmalloc`).
        ensure_at_least!(errors, 1);
        Ok(())
    }

    #[test]
    fn a_device_writes_only_to_memory_that_may_be_written() -> Test {
        let pd = domain()?;
        let listed = Listed::new(LISTS[0], false)?;
        let error = mapped(&pd, listed, Direction::FromDevice).err();
        ensure_eq!(error, Some(EACCES));
        let listed = Listed::new(LISTS[0], false)?;
        drop(mapped(&pd, listed, Direction::ToDevice)?);
        let error = mapped(&pd, Listed::new(&[], true)?, Direction::ToDevice).err();
        ensure_eq!(error, Some(EINVAL));
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    /// Maps the `left` bytes at offset `at`, or only the first part of these bytes. Returns the
    /// number of mapped bytes.
    fn next(mapped: &mut MappedPages, (at, left): (usize, usize), most: usize) -> Result<usize> {
        // CAST: The tests map few pages.
        let left = left as u32;
        let bytes = match mapped.add(at, left)? {
            true => left,
            false => mapped.map(at, left, most)?,
        };
        Ok(bytes as usize)
    }

    /// Maps all bytes of `memory`, with at most `most` elements in each call.
    fn all(pd: &Arc<Pd>, memory: Mappable, dir: Direction, most: usize) -> Result<MappedPages> {
        let (mut mapped, len) = (MappedPages::none(pd), memory.len());
        mapped.hold(memory, dir)?;
        let (mut at, mut elements) = (0, 0);
        while at < len {
            at += next(&mut mapped, (at, len - at), most)?;
            let count = mapped.sges().len() - elements;
            ensure!(count >= 1 && count <= most);
            elements += count;
        }
        Ok(mapped)
    }

    /// Allocates pages in which each byte contains its offset, modulo 251.
    fn filled(len: usize) -> Result<Pages> {
        let mut pages = Pages::new(len)?;
        pages.change(0, len, |at, part| {
            for (i, byte) in part.iter_mut().enumerate() {
                // CAST: The remainder is less than 251.
                *byte = ((at + i) % 251) as u8;
            }
            Ok(())
        })?;
        Ok(pages)
    }

    /// Returns whether the device reads exactly `len` bytes of [`filled`], beginning at the offset
    /// `from`.
    fn are_right(mapped: &MappedPages, from: usize, len: usize) -> Result<bool> {
        let bytes = read(mapped.sges())?;
        let mut all = bytes.iter().enumerate();
        Ok(bytes.len() == len && all.all(|(i, b)| usize::from(*b) == (from + i) % 251))
    }

    #[test]
    fn the_elements_of_pages_are_their_bytes() -> Test {
        for (len, is_virtual) in [
            (1, false),
            (P, false),
            (P + 1, false),
            (P - 1, true),
            (5 * P, true),
        ] {
            let pd = device(is_virtual)?;
            for most in [1, 32] {
                let pages = filled(len)?;
                let runs = pages.runs().len();
                let mut mapped = all(&pd, Mappable::Own(pages), Direction::ToDevice, most)?;
                // Each physically contiguous run of pages needs at most one mapping.
                ensure!(Census::now().mappings as usize <= runs);
                ensure!(are_right(&mapped, 0, len)?);
                let pages = mapped.unmap().ok_or(EINVAL)?;
                ensure_eq!(Census::now(), DOMAIN);
                ensure_eq!(PageArray::len(&pages), len);
            }
        }
        calm();
        Ok(())
    }

    /// Resets the device, and creates a protection domain.
    fn device(is_virtual: bool) -> Result<Arc<Pd>> {
        match is_virtual {
            false => domain(),
            true => virtual_domain(),
        }
    }

    /// The order of the pages of [`mixed`]. In this order the pages form five contiguous runs.
    const ORDER: [usize; 8] = [0, 1, 2, 4, 3, 7, 5, 6];

    /// Returns references to pages of [`filled`] in the order [`ORDER`]. Together they cover `len`
    /// bytes, which begin at `offset`.
    fn mixed(offset: usize, len: usize) -> Result<PageRefs> {
        let pages = filled(ORDER.len() * P)?;
        let mut array = KVec::new();
        for index in ORDER {
            let page = pages.raw_from(index).first().ok_or(EINVAL)?;
            array.push(*page, GFP_KERNEL)?;
        }
        for page in &array[offset / P..(offset + len).div_ceil(P)] {
            // SAFETY: `pages` holds a reference to the page during the call.
            unsafe { bindings::fake_get_page(*page) };
        }
        // SAFETY: The array contains the addresses of pages, and is not changed. This value owns
        // one reference to each page that contains some of the bytes.
        unsafe { PageRefs::take(array.as_ptr(), offset, len, None) }
    }

    #[test]
    fn shared_pages_may_have_any_order() -> Test {
        for (offset, len) in [
            (0, 8 * P),
            (99, 8 * P - 99),
            (99, 5 * P),
            (P + 1, 2 * P + 1),
            (2 * P - 1, 2 * P + 2),
        ] {
            for (most, is_virtual) in [(1, false), (32, false), (1, true), (2, true), (32, true)] {
                let pd = device(is_virtual)?;
                let refs = mixed(offset, len)?;
                let mapped = all(&pd, Mappable::Shared(refs), Direction::ToDevice, most)?;
                ensure!(mapped.sges().len() <= ORDER.len());
                ensure!(most != 32 || mapped.sges().len() <= 5);
                let bytes = read(mapped.sges())?;
                ensure_eq!(bytes.len(), len);
                for (at, byte) in (offset..).zip(&bytes) {
                    ensure!(usize::from(*byte) == (ORDER[at / P] * P + at % P) % 251);
                }
                drop(mapped);
                ensure_eq!(Census::now(), DOMAIN);
            }
        }
        calm();
        Ok(())
    }

    #[test]
    fn any_part_of_pages_can_be_mapped() -> Test {
        let pd = domain()?;
        let len = 3 * P;
        for (at, left) in [(0, 1), (1, 2 * P), (P - 1, 2), (P, P), (2 * P + 7, P - 7)] {
            let (first, second) = (Mappable::Own(filled(len)?), Mappable::Own(filled(len)?));
            let shared = Mappable::Shared(shared(len)?);
            // Each case: the memory, and the mapping call that fails.
            for (memory, nth) in [(first, 0), (second, 1), (shared, 0)] {
                let mut mapped = MappedPages::none(&pd);
                Verb::DmaMap.fail(nth);
                mapped.hold(memory, Direction::ToDevice)?;
                let mut found = 0;
                while found < left {
                    found += next(&mut mapped, (at + found, left - found), 32)?;
                }
                ensure!(are_right(&mapped, at, left)?);
                drop(mapped);
                ensure_eq!(Census::now(), DOMAIN);
            }
        }
        for (at, left) in [
            (0, 0),
            (0, len as u32 + 1),
            (len, 1),
            (usize::MAX, 1),
            (1, u32::MAX),
        ] {
            let mut mapped = MappedPages::none(&pd);
            mapped.hold(Mappable::Own(filled(len)?), Direction::ToDevice)?;
            ensure!(left == 0 || !mapped.add(at, left)?);
            ensure_eq!(mapped.map(at, left, 32).err(), Some(EINVAL));
        }
        let refs = Mappable::Shared(shared(P)?);
        let error = MappedPages::none(&pd).hold(refs, Direction::FromDevice);
        ensure_eq!(error.err(), Some(EINVAL));
        Ok(())
    }

    #[test]
    fn a_piece_that_cannot_be_mapped_is_mapped_in_shorter_ones() -> Test {
        let pd = domain()?;
        let pages = filled(4 * P)?;
        ensure_eq!(pages.runs().len(), 1);
        Verb::DmaMap.fail(1);
        let mapped = all(&pd, Mappable::Own(pages), Direction::ToDevice, 32)?;
        ensure_eq!(Census::now().mappings, 2);
        ensure!(are_right(&mapped, 0, 4 * P)?);
        drop(mapped);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn shorter_pieces_need_one_mapping_a_page() -> Test {
        let pd = domain()?;
        let memory = Mappable::Shared(mixed(99, 8 * P - 99)?);
        // The first piece has three pages, and cannot be mapped. After this failure no piece is
        // longer than a page.
        Verb::DmaMap.fail(1);
        let mapped = all(&pd, memory, Direction::ToDevice, 32)?;
        ensure_eq!(mapped.sges().len(), ORDER.len());
        drop(mapped);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    /// Returns references to pages that contain the bytes of [`filled`].
    fn shared(len: usize) -> Result<PageRefs> {
        let pages = filled(len)?;
        let array = pages.raw_from(0);
        for page in array {
            // SAFETY: `pages` holds a reference to the page during the call.
            unsafe { bindings::fake_get_page(*page) };
        }
        // SAFETY: The array contains the addresses of all pages, and is not changed. This value
        // owns one reference to each page, which the loop above took.
        unsafe { PageRefs::take(array.as_ptr(), 0, len, None) }
    }

    #[test]
    fn a_shared_piece_that_cannot_be_mapped_is_mapped_in_shorter_ones() -> Test {
        let pd = domain()?;
        // Each case: the number of pages, the mapping call that fails, the expected number of
        // mapping calls, and the expected number of mappings.
        for (count, nth, calls, mappings) in [(4, 0, 1, 1), (4, 1, 3, 2), (8, 1, 3, 2)] {
            let refs = shared(count * P)?;
            Verb::DmaMap.fail(nth);
            let mapped = all(&pd, Mappable::Shared(refs), Direction::ToDevice, 32)?;
            // The length that could not be mapped is not tried again.
            ensure_eq!(Verb::DmaMap.calls(), calls);
            ensure_eq!(Census::now().mappings, mappings);
            ensure!(are_right(&mapped, 0, count * P)?);
            drop(mapped);
            ensure_eq!(Census::now(), DOMAIN);
            calm();
        }
        Ok(())
    }

    #[test]
    fn pages_that_cannot_be_mapped_leave_nothing() -> Test {
        let pd = domain()?;
        // In each case the last piece is a single page. Such a piece cannot be mapped in shorter
        // pieces.
        for (count, nth) in [(1, 1), (3, 2), (7, 3)] {
            let pages = filled(count * P)?;
            ensure_eq!(pages.runs().len(), nth as usize);
            Verb::DmaMap.fail(nth);
            let mapped = all(&pd, Mappable::Own(pages), Direction::FromDevice, 32);
            ensure_eq!(mapped.err(), Some(EIO));
            ensure_at_least!(Verb::DmaMap.calls(), nth);
            ensure_eq!(Census::now(), DOMAIN);
            calm();
        }
        Ok(())
    }

    #[test]
    fn pages_without_memory_leave_nothing() -> Test {
        let pd = domain()?;
        let errors = each_allocation(
            || Ok(()),
            |()| {
                let memory = Mappable::Own(Pages::new(3 * P)?);
                all(&pd, memory, Direction::ToDevice, 32).map(drop)
            },
            |()| {
                ensure_eq!(Census::now(), DOMAIN);
                Ok(())
            },
        )?;
        // Besides the pages, the calls allocate the list of pages, the list of runs, the object
        // that contains these two lists, and the list of mappings.
        ensure_at_least!(errors, 3);
        Ok(())
    }
}
