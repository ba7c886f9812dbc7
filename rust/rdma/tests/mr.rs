// SPDX-License-Identifier: GPL-2.0

//! Tests of memory regions that are not posted on a queue pair. The suite for queue pairs tests
//! posted memory regions.

use super::{
    allocations::each_allocation,
    ensure::Test,
    fake::{
        calm,
        domain,
        limit_entries,
        longest_entry,
        routed,
        short_maps,
        Census,
        Verb,
        DOMAIN, //
    },
    lent::{
        Lent,
        PAGES, //
    },
};
use crate::{
    mr::{
        Access,
        IdleMr, //
    },
    pd::Pd,
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::atomic::Relaxed, //
};

/// Columns: the number of pages that the region can hold, whether gaps are allowed, the pieces of
/// memory, the first byte to be mapped, the expected number of covered bytes, and the expected
/// offset in the first page.
type Row<'a> = (u32, bool, &'a [(usize, usize)], usize, usize, usize);

const REGION: Census = Census { mrs: 1, ..DOMAIN };
const MAPPED: Census = Census {
    mappings: 1,
    ..REGION
};

#[kunit_tests(xprtrdma_mr)]
mod suite {
    use super::*;

    #[test]
    fn a_region_comes_and_goes() -> Test {
        let pd = domain()?;
        let mr = IdleMr::alloc(&pd, 4, false)?;
        ensure_eq!(Census::now(), REGION);
        drop(mr);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn a_region_keeps_its_domain() -> Test {
        let pd = domain()?;
        let idle = IdleMr::alloc(&pd, 4, false)?;
        let lent = Lent::new(&[(0, 100)])?;
        let exposed = IdleMr::alloc(&pd, 4, false)?
            .map(lent, 0, Access::RemoteRead)
            .map_err(|e| e.error)?;
        drop(pd);
        drop(idle);
        ensure_eq!(Census::now(), MAPPED);
        drop(exposed);
        ensure_eq!(Census::now(), Census::NOTHING);
        Ok(())
    }

    #[test]
    fn a_domain_may_go_first_or_last() -> Test {
        // The test tries every order in which two regions and their domain can be dropped.
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let pd = domain()?;
            let lent = Lent::new(&[(0, 100)])?;
            let first = IdleMr::alloc(&pd, 1, false)?;
            let second = IdleMr::alloc(&pd, 1, true)?
                .map(lent, 0, Access::RemoteWrite)
                .map_err(|e| e.error)?;
            let (mut first, mut second, mut pd) = (Some(first), Some(second), Some(pd));
            for which in order {
                match which {
                    0 => drop(first.take()),
                    1 => drop(second.take()),
                    _ => drop(pd.take()),
                }
            }
            ensure_eq!(Census::now(), Census::NOTHING);
        }
        Ok(())
    }

    #[test]
    fn a_device_without_a_region_leaves_nothing() -> Test {
        let pd = domain()?;
        Verb::AllocMr.fail(1);
        ensure_eq!(IdleMr::alloc(&pd, 4, false).err(), Some(EAGAIN));
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn a_region_without_memory_leaves_nothing() -> Test {
        let pd = domain()?;
        let errors = each_allocation(
            || Ok(()),
            |()| IdleMr::alloc(&pd, 64, true).map(drop),
            |()| {
                ensure_eq!(Census::now(), DOMAIN);
                Ok(())
            },
        )?;
        // The call makes three allocations: the list, the device's region, and the Rust object.
        ensure_at_least!(errors, 3);
        Ok(())
    }

    #[test]
    fn a_window_shows_no_address_and_a_new_key_each_time() -> Test {
        let pd = domain()?;
        let mut mr = IdleMr::alloc(&pd, 4, false)?;
        let mut lent = Lent::new(&[(PAGE_SIZE + 100, 5000)])?;
        let given_back = lent.given_back();
        let mut last = None;
        let (mut ones, mut zeros) = (0u64, 0u64);
        // The eight variable bits of a key have 256 possible values. The test makes more mappings
        // than that.
        for _ in 0..300 {
            let exposed = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
            ensure_eq!(Census::now(), MAPPED);
            let window = exposed.window();
            ensure_eq!(window.length, 5000);
            ensure_eq!(window.offset as usize % PAGE_SIZE, 100);
            // The highest bit is zero, so the address of the last byte fits into 64 bits.
            ensure_eq!(window.offset >> 63, 0);
            ensure!(last.is_none_or(|(handle, offset)| {
                handle != window.handle && offset != window.offset
            }));
            last = Some((window.handle, window.offset));
            ones |= window.offset;
            zeros |= !window.offset;
            (mr, lent) = exposed.unposted().map_err(|_| EBUSY)?;
            ensure_eq!(Census::now(), REGION);
            ensure_eq!(given_back.load(Relaxed), 0);
        }
        // Each bit above the page offset, except the highest bit, was 1 at least once and 0 at
        // least once. This check fails by chance once in 2^290 runs.
        let drawn = (u64::MAX >> 1) & !(PAGE_SIZE as u64 - 1);
        ensure_eq!((ones & drawn, zeros & drawn), (drawn, drawn));
        drop(lent);
        ensure_eq!(given_back.load(Relaxed), 1);
        Ok(())
    }

    #[test]
    fn dropping_an_exposed_region_gives_its_memory_back() -> Test {
        let pd = domain()?;
        let lent = Lent::new(&[(0, PAGE_SIZE)])?;
        let given_back = lent.given_back();
        let exposed = IdleMr::alloc(&pd, 4, false)?
            .map(lent, 0, Access::RemoteWrite)
            .map_err(|e| e.error)?;
        drop(exposed);
        ensure_eq!(given_back.load(Relaxed), 1);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn a_region_that_cannot_be_mapped_comes_back() -> Test {
        let pd = domain()?;
        let mut mr = IdleMr::alloc(&pd, 4, false)?;
        let mut lent = Lent::new(&[(0, 2 * PAGE_SIZE)])?;
        for (verb, short) in [
            (Some(Verb::DmaMapSg), false),
            (Some(Verb::MapMrSg), false),
            (None, true),
        ] {
            if let Some(verb) = verb {
                verb.fail(1);
            }
            short_maps(short);
            match mr.map(lent, 0, Access::RemoteRead) {
                Ok(_) => {
                    pr_err!("mapped although {verb:?} failed\n");
                    return Err(EINVAL.into());
                }
                Err(failed) => {
                    ensure_eq!(failed.error, EIO);
                    mr = failed.mr;
                    lent = failed.loan;
                }
            }
            ensure_eq!(Census::now(), REGION);
            calm();
        }
        // The region and the memory can still be used after the failed mapping.
        let exposed = mr.map(lent, 0, Access::RemoteRead).map_err(|e| e.error)?;
        ensure_eq!(exposed.window().length as usize, 2 * PAGE_SIZE);
        ensure_eq!(Census::now(), MAPPED);
        Ok(())
    }

    // An IOMMU driver sets the flag SWIOTLB in a scatterlist that it maps through bounce buffers.
    // The next mapping of a region uses the same memory for its scatterlist. So the flag must be
    // cleared first. Kernels without such IOMMUs do not have the field for this flag.
    #[test]
    fn the_mark_of_a_list_that_was_bounced_is_gone_with_the_next() -> Test {
        const SWIOTLB: u32 = 1 << 1;
        let pd = domain()?;
        let mut mr = IdleMr::alloc(&pd, 4, false)?;
        let mut lent = Lent::new(&[(0, 2 * PAGE_SIZE)])?;
        for start in [0, PAGE_SIZE + 100] {
            let Some(flags) = mr.dma_flags() else {
                return Ok(());
            };
            *flags |= SWIOTLB;
            let exposed = mr
                .map(lent, start, Access::RemoteRead)
                .map_err(|e| e.error)?;
            (mr, lent) = exposed.unposted().map_err(|_| EBUSY)?;
            ensure_eq!(*mr.dma_flags().ok_or(EINVAL)? & SWIOTLB, 0);
        }
        Ok(())
    }

    #[test]
    fn a_region_has_pages() -> Test {
        let pd = domain()?;
        ensure_eq!(IdleMr::alloc(&pd, 0, false).err(), Some(EINVAL));
        ensure_eq!(IdleMr::alloc(&pd, 0, true).err(), Some(EINVAL));
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }

    #[test]
    fn nothing_cannot_be_mapped() -> Test {
        let pd = domain()?;
        for (pieces, start) in [(&[][..], 0), (&[(0, 0)][..], 0), (&[(0, 100)][..], 100)] {
            let mr = IdleMr::alloc(&pd, 4, false)?;
            let error = mr.map(Lent::new(pieces)?, start, Access::RemoteRead).err();
            ensure_eq!(error.map(|e| e.error), Some(EINVAL));
            ensure_eq!(Census::now(), DOMAIN);
        }
        Ok(())
    }

    #[test]
    fn a_region_covers_what_it_can() -> Test {
        const P: usize = PAGE_SIZE;
        let rows: [Row<'_>; 13] = [
            (4, false, &[(0, 100)], 0, 100, 0),
            (4, false, &[(5, 100)], 7, 93, 12),
            (4, false, &[(0, PAGES * P)], 0, 4 * P, 0),
            (4, false, &[(1, PAGES * P - 1)], 0, 4 * P - 1, 1),
            (PAGES as u32, false, &[(0, PAGES * P)], 0, PAGES * P, 0),
            (4, false, &[(0, PAGES * P)], 5 * P, 3 * P, 0),
            // The pieces of the next two rows meet at page borders. They are physically contiguous
            // in the first row only.
            (4, false, &[(100, P - 100), (P, P)], 0, 2 * P - 100, 100),
            (4, false, &[(3 * P, P), (P, P), (5 * P, 7)], 0, 2 * P + 7, 0),
            // In the next two rows the pieces of memory have a gap between them. In the first row
            // gaps are not allowed, so the region ends at the gap. In the second row gaps are
            // allowed.
            (4, false, &[(0, 100), (P, 100)], 0, 100, 0),
            (4, true, &[(0, 100), (P, 100)], 0, 200, 0),
            (
                4,
                true,
                &[(17, 100), (2 * P + 5, 100), (P, 33)],
                50,
                183,
                67,
            ),
            // In the next two rows, the region can hold only one page.
            (1, false, &[(P + 5, 2 * P)], 0, P - 5, 5),
            (1, true, &[(0, 10), (P, 10)], 0, 10, 0),
        ];
        let pd = domain()?;
        for row in 0..2 * rows.len() {
            let (depth, gaps, pieces, start, length, offset) = rows[row / 2];
            let lent = Lent::new(pieces)?;
            let lent = if row % 2 == 0 { lent } else { lent.as_arrays() };
            let exposed = IdleMr::alloc(&pd, depth, gaps)?
                .map(lent, start, Access::RemoteRead)
                .map_err(|e| {
                    pr_err!("row {row}\n");
                    e.error
                })?;
            let window = exposed.window();
            if (window.length as usize, window.offset as usize % PAGE_SIZE) != (length, offset) {
                pr_err!("row {row}: {window:?}, not {length} bytes at {offset}\n");
                return Err(EINVAL.into());
            }
            ensure_eq!(Census::now(), MAPPED);
        }
        Ok(())
    }

    #[test]
    fn an_entry_is_no_longer_than_the_device_takes() -> Test {
        const P: usize = PAGE_SIZE;
        calm();
        for limit in 1..=PAGES + 1 {
            limit_entries(limit * P + P / 2);
            let (id, _log) = routed()?;
            let pd = Pd::alloc(id)?;
            for (first, len) in [
                (0, PAGES * P),
                (100, PAGES * P - 100),
                (100, PAGES * P - 200),
                (P, (PAGES - 1) * P),
                (P - 1, P + 2),
                (5, 10),
            ] {
                for (gaps, arrays) in [(false, false), (false, true), (true, false), (true, true)] {
                    let lent = Lent::new(&[(first, len)])?;
                    let lent = if arrays { lent.as_arrays() } else { lent };
                    let exposed = IdleMr::alloc(&pd, PAGES as u32, gaps)?
                        .map(lent, 0, Access::RemoteRead)
                        .map_err(|e| e.error)?;
                    ensure_eq!(exposed.window().length as usize, len);
                    // Offset of the first piece in its page.
                    let begin = first % P;
                    let most = (limit * P).min(begin + len);
                    ensure!(longest_entry() <= most);
                    ensure_at_least!(longest_entry(), most - begin);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn regions_do_not_disturb_each_other() -> Test {
        let pd = domain()?;
        let mut exposed = KVec::new();
        for i in 0..16 {
            let lent = Lent::new(&[(i * 10, 1000)])?;
            let mr = IdleMr::alloc(&pd, 2, false)?;
            exposed.push(
                mr.map(lent, 0, Access::RemoteWrite).map_err(|e| e.error)?,
                GFP_KERNEL,
            )?;
        }
        for (i, one) in exposed.iter().enumerate() {
            ensure_eq!(one.window().offset as usize % PAGE_SIZE, i * 10);
            let same = exposed
                .iter()
                .filter(|o| o.window().handle == one.window().handle);
            ensure_eq!(same.count(), 1);
        }
        ensure_eq!(Census::now().mappings, 16);
        drop(exposed);
        ensure_eq!(Census::now(), DOMAIN);
        Ok(())
    }
}
