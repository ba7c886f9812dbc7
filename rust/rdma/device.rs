// SPDX-License-Identifier: GPL-2.0

//! What an RDMA device can do ([`DeviceInfo`]).

use crate::cm::CmId;
use core::cmp::min;
use xprtrdma_bindings as bindings;

/// The limits of a device that matter to a client of reliable connections and fast registration.
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    name: [u8; 64],
    /// The port that the id uses.
    pub port: u32,
    /// Work requests on one queue.
    pub max_qp_wr: u32,
    /// Entries of one completion queue.
    pub max_cqe: u32,
    /// Pages that one fast registration covers.
    pub max_fast_reg_pages: u32,
    /// Memory regions on the device.
    pub max_mr: u32,
    /// RDMA Reads that the device serves at a time.
    pub max_qp_rd_atom: u32,
    /// The device offers fast registration work requests.
    pub fast_reg: bool,
    /// A region may have gaps between its pages.
    pub sg_gaps: bool,
}

impl DeviceInfo {
    /// The device of an id; `None` before its address is resolved.
    pub fn of(id: &CmId) -> Option<Self> {
        let dev = id.raw_device()?.as_ptr();
        // SAFETY: The device of a resolved id exists as long as the id. Its attributes are
        // constant after registration.
        let attrs = unsafe { &(*dev).attrs };
        // SAFETY: The name has a fixed size and is NUL-terminated; a concurrent rename can only
        // mix two names.
        let raw = unsafe { (*dev).name };
        // SAFETY: The id is valid by its type; the port is written before the device.
        let port = unsafe { (*id.as_raw()).port_num };
        let mut name = [0u8; 64];
        for (dst, src) in name.iter_mut().zip(raw) {
            *dst = src;
        }
        Some(Self {
            name,
            port,
            max_qp_wr: limit(attrs.max_qp_wr),
            max_cqe: limit(attrs.max_cqe),
            max_fast_reg_pages: attrs.max_fast_reg_page_list_len,
            max_mr: limit(attrs.max_mr),
            max_qp_rd_atom: min(limit(attrs.max_qp_rd_atom), u8::MAX.into()),
            fast_reg: attrs.device_cap_flags
                & bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64
                != 0
                && attrs.max_fast_reg_page_list_len != 0,
            sg_gaps: attrs.kernel_cap_flags
                & u64::from(bindings::ib_kernel_cap_flags_IBK_SG_GAPS_REG)
                != 0,
        })
    }

    /// The device's name, e.g. `mlx5_0`.
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|&c| c == 0).unwrap_or(0);
        self.name
            .get(..len)
            .and_then(|n| core::str::from_utf8(n).ok())
            .unwrap_or("?")
    }
}

/// A limit as a number: in C it is an `int` in some kernels, a `u32` in others.
fn limit<T: TryInto<u32>>(value: T) -> u32 {
    value.try_into().unwrap_or(0)
}
