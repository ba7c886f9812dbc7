// SPDX-License-Identifier: GPL-2.0

//! The work requests of a [`Transfer`].

use super::{
    memory::Memory,
    Kind,
    Transfer, //
};
use crate::{
    mapped::MappedPages,
    pages::Mappable,
    stretch::Stretch, //
};
use kernel::prelude::*;
use xprtrdma_base::list;
use xprtrdma_bindings as bindings;

impl Transfer {
    /// Maps memory and makes work requests, see [`Blank::fill`]. If `most_sges` is `None`, a work
    /// request may have as many elements as the device allows.
    pub(super) fn make(
        &mut self,
        kind: Kind,
        memory: Mappable,
        most_sges: Option<usize>,
        stretches: impl Iterator<Item = Stretch>,
    ) -> Result {
        let Memory::Own(pages) = &mut self.memory else {
            return Err(EINVAL);
        };
        let (opcode, dir) = kind.raw();
        self.kind = kind;
        pages.hold(memory, dir)?;
        let most_sges = most_sges.unwrap_or(pages.most_sges());
        let room = pages.capacity();
        let mut count = 0usize;
        for stretch in stretches {
            if stretch.len == 0 {
                continue;
            }
            let first = pages.end();
            if pages.add(stretch.at as usize, stretch.len)? {
                let wr = place(&mut self.wrs, count)?;
                set(wr, opcode, (stretch.handle, stretch.offset), (first, 1));
                // NO-OVERFLOW: `count` counts work requests in memory.
                count = count.wrapping_add(1);
            } else {
                let wrs = &mut self.wrs;
                count = make_several(pages, wrs, count, (opcode, most_sges), stretch)?;
            }
        }
        if count == 0 {
            return Err(EINVAL);
        }
        self.wrs.truncate(count);
        // INVARIANT: Both vectors are complete and no longer grow, so pointers to their elements
        // stay valid. If the code above has added memory to the list of elements, the elements may
        // have moved. In that case the pointers to the elements are set again.
        match pages.capacity() == room {
            true => Ok(()),
            false => self.give_elements(),
        }
    }

    /// Sets the element list of each work request. Returns `EINVAL` if there is no work request.
    #[inline(never)]
    pub(super) fn give_elements(&mut self) -> Result {
        if self.wrs.is_empty() {
            return Err(EINVAL);
        }
        let mut rest = match &self.memory {
            Memory::Own(pages) => pages.sges(),
            _ => &self.sges,
        };
        for wr in self.wrs.iter_mut() {
            // CAST: The number counts elements of a vector, so it is not negative.
            let (own, others) = rest
                .split_at_checked(wr.wr.num_sge as usize)
                .ok_or(EINVAL)?;
            // `ib_post_send` only reads the elements.
            wr.wr.sg_list = own.as_ptr().cast_mut();
            rest = others;
        }
        Ok(())
    }

    /// Links the work requests before `next`, and sets the same completion entry in all of them.
    /// Returns the first work request. `last_flags` are the flags of the last work request.
    #[cfg_attr(xprtrdma_rds, inline(always))]
    #[cfg_attr(not(xprtrdma_rds), inline)]
    pub(crate) fn link(
        &mut self,
        cqe: *mut bindings::ib_cqe,
        last_flags: c_int,
        next: *mut bindings::ib_send_wr,
    ) -> *mut bindings::ib_send_wr {
        let link = |wr: &mut bindings::ib_rdma_wr, flags, next| {
            wr.wr.next = next;
            wr.wr.send_flags = flags;
            // CAST: The union of `wr_id` and `wr_cqe` holds the pointer as 64 bits.
            wr.wr.__bindgen_anon_1.bindgen_union_field = cqe as u64;
            // CAST: An RDMA work request begins with the part that all types of work requests
            // share.
            core::ptr::from_mut(wr).cast()
        };
        // Usually there is a single work request.
        if let [only] = self.wrs.as_mut_slice() {
            return link(only, last_flags, next);
        }
        let (mut next, mut flags) = (next, last_flags);
        for wr in self.wrs.iter_mut().rev() {
            next = link(wr, core::mem::take(&mut flags), next);
        }
        next
    }
}

/// Returns the work request with this index, and adds it if it does not exist. All work requests
/// with lower indexes must exist.
#[inline(always)]
fn place(wrs: &mut KVec<bindings::ib_rdma_wr>, index: usize) -> Result<&mut bindings::ib_rdma_wr> {
    if index == wrs.len() {
        add_empty(wrs)?;
    }
    wrs.get_mut(index).ok_or(EINVAL)
}

#[cold]
#[inline(never)]
fn add_empty(wrs: &mut KVec<bindings::ib_rdma_wr>) -> Result {
    list::add(wrs, bindings::ib_rdma_wr::default())
}

/// Sets the opcode, the peer's key and offset, and the list of elements. [`Transfer::link`] sets
/// all other fields that a Read or a Write needs. So a work request of an earlier transfer can be
/// used again.
#[inline(always)]
fn set(
    wr: &mut bindings::ib_rdma_wr,
    opcode: u32,
    (handle, offset): (u32, u64),
    (first, count): (*const bindings::ib_sge, usize),
) {
    wr.remote_addr = offset;
    wr.rkey = handle;
    wr.wr.opcode = opcode;
    // `ib_post_send` only reads the elements.
    wr.wr.sg_list = first.cast_mut();
    // CAST: A work request has few elements.
    wr.wr.num_sge = count as c_int;
}

/// Makes the work requests of a [`Stretch`], each with at most `most_sges` elements. The first of
/// these work requests gets the index `count`. Returns the new number of all work requests.
#[inline(never)]
fn make_several(
    pages: &mut MappedPages,
    wrs: &mut KVec<bindings::ib_rdma_wr>,
    mut count: usize,
    (opcode, most_sges): (u32, usize),
    stretch: Stretch,
) -> Result<usize> {
    let (mut at, mut left) = (stretch.at as usize, stretch.len);
    let mut offset = stretch.offset;
    while left != 0 {
        let (first, before) = (pages.end(), pages.sges().len());
        let bytes = pages.map(at, left, most_sges)?;
        // NO-OVERFLOW: `map` only adds elements, so the length is at least `before`.
        let added = pages.sges().len().wrapping_sub(before);
        let wr = place(wrs, count)?;
        set(wr, opcode, (stretch.handle, offset), (first, added));
        // NO-OVERFLOW: `count` counts objects in memory. `at` and `left` stay within `stretch`.
        // `offset` may wrap around; the peer then refuses the address.
        count = count.wrapping_add(1);
        at = at.wrapping_add(bytes as usize);
        left = left.wrapping_sub(bytes);
        offset = offset.wrapping_add(bytes.into());
    }
    Ok(count)
}
