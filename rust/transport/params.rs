// SPDX-License-Identifier: GPL-2.0

//! What an administrator can set, with its bounds ([`check`]).

use crate::module_parameters;
use core::{
    borrow::Borrow,
    ops::RangeInclusive, //
};
use kernel::prelude::*;
use xprtrdma_proto::header::MAX_SEGMENTS;

/// Octets of data in one request: the NFS client's maximum, at any offset in a page.
pub(crate) const MAX_PAYLOAD: usize = 1 << 20;

/// Refuses the module's start with a parameter out of its range.
pub(crate) fn check() -> Result {
    let bounds: [(&str, u32, RangeInclusive<u32>); 4] = [
        ("slots", number(module_parameters::slots.value()), 4..=4096),
        (
            "inline_size",
            number(module_parameters::inline_size.value()),
            1024..=65536,
        ),
        (
            "region_pages",
            number(module_parameters::region_pages.value()),
            1..=1025,
        ),
        ("strict", number(module_parameters::strict.value()), 0..=1),
    ];
    for (name, value, range) in bounds {
        if !range.contains(&value) {
            pr_err!(
                "parameter {name}={value} is out of range ({} to {})\n",
                range.start(),
                range.end()
            );
            return Err(EINVAL);
        }
    }
    Ok(())
}

/// Requests in flight on one connection.
pub(crate) fn slots() -> u16 {
    // The range was checked when the module was loaded.
    number(module_parameters::slots.value()).min(4096) as u16
}

/// Largest message without RDMA, in octets, a multiple of 1024.
pub(crate) fn inline_size() -> u32 {
    number(module_parameters::inline_size.value()).clamp(1024, 65536) & !1023
}

/// Most pages in one region.
pub(crate) fn region_pages() -> u32 {
    number(module_parameters::region_pages.value())
}

/// Whether returned segments must equal ours (MAL-068, MAL-069).
pub(crate) fn strict() -> bool {
    number(module_parameters::strict.value()) != 0
}

/// Octets of data in one request when a region holds `pages` pages.
pub(crate) fn max_payload(pages: u32) -> usize {
    // An unaligned payload needs one page more than it is long.
    let reach = (pages as usize * MAX_SEGMENTS - 1) * kernel::page::PAGE_SIZE;
    MAX_PAYLOAD.min(reach)
}

/// The value of a parameter, which some kernels hand out by reference.
fn number(value: impl Borrow<u32>) -> u32 {
    *value.borrow()
}
