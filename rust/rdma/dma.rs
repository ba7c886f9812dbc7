// SPDX-License-Identifier: GPL-2.0

//! Buffers of this module that are mapped for a device ([`DmaBuf`]).

use crate::pd::Pd;
use core::ptr;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// The direction of the data transfer: it says whether the device reads or writes the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Direction {
    /// The device reads the memory.
    ToDevice = bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_TO_DEVICE as u8,
    /// The device writes the memory.
    FromDevice = bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_FROM_DEVICE as u8,
}

impl Direction {
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        // CAST: The discriminants are the kernel's values.
        self as u32
    }
}

/// A buffer of this module that stays mapped for one device.
///
/// The device and the CPU share the memory, so the CPU accesses it through raw pointers only. The
/// send queue and the receive queue of this crate record which bytes the device may access.
///
/// # Invariants
///
/// - `mem` is mapped at `addr` for `dir` until `drop`.
/// - `lkey` is the key for all local memory in the protection domain.
/// - `need_sync` says whether the mapping must be synced. This depends on the coherence of the
///   device, and on whether the mapping uses a bounce buffer. Both are fixed when the mapping is
///   created.
pub(crate) struct DmaBuf {
    mem: KVec<u8>,
    ptr: *mut u8,
    addr: u64,
    dir: Direction,
    need_sync: bool,
    lkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: The object owns the memory, and any thread may use the mapping.
unsafe impl Send for DmaBuf {}
// SAFETY: The methods of a shared `DmaBuf` give no access to its bytes: they return addresses or
// sync the mapping.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Allocates and maps a buffer of `len` zero bytes. Returns `EINVAL` if `len` is zero. May
    /// sleep.
    pub(crate) fn new(pd: &Arc<Pd>, len: usize, dir: Direction) -> Result<Self> {
        if len == 0 {
            // An empty vector has no memory that could be mapped, only a dangling pointer.
            return Err(EINVAL);
        }
        // The allocator writes the zeroes, because `KVec::from_elem` would write the bytes one by
        // one.
        let mut mem = KVec::<u8>::with_capacity(len, GFP_KERNEL | __GFP_NOWARN | __GFP_ZERO)?;
        // SAFETY: The vector is empty and has the capacity `len`. The allocator has written zeroes.
        unsafe { mem.inc_len(len) };
        let ptr = mem.as_mut_ptr();
        let dev = pd.raw_device();
        // SAFETY: The device exists as long as `pd`. `mem` consists of `len` bytes of kmalloc
        // memory.
        let addr = unsafe { bindings::xprtrdma_dma_map_single(dev, ptr.cast(), len, dir.raw()) };
        // SAFETY: The device exists. `addr` is the result of a mapping call for it.
        if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
            return Err(EIO);
        }
        // SAFETY: The device exists, and the memory is mapped for it at `addr`.
        let need_sync = unsafe { bindings::xprtrdma_dma_need_sync(dev, addr) };
        // INVARIANT: The memory was mapped above, and `need_sync` was read after that.
        Ok(Self {
            mem,
            ptr,
            addr,
            dir,
            need_sync,
            lkey: pd.local_dma_lkey(),
            pd: pd.clone(),
        })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.mem.len()
    }

    #[inline]
    pub(crate) fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Returns a scatter/gather element for `len` bytes at `offset`. All these bytes must be inside
    /// the buffer.
    #[inline]
    pub(crate) fn sge(&self, offset: usize, len: usize) -> bindings::ib_sge {
        bindings::ib_sge {
            // NO-OVERFLOW: A mapping does not wrap around the address space.
            addr: self.addr.wrapping_add(offset as u64),
            length: len as u32,
            lkey: self.lkey,
        }
    }

    /// Syncs `len` bytes at `offset` for the CPU, after the device has written them.
    #[inline]
    pub(crate) fn sync_for_cpu(&self, offset: usize, len: usize) {
        if !self.need_sync {
            return;
        }
        // SAFETY: The range is part of a live mapping on the device.
        unsafe {
            bindings::xprtrdma_dma_sync_for_cpu(
                self.pd.raw_device(),
                self.addr.wrapping_add(offset as u64),
                len,
                self.dir.raw(),
            )
        }
    }

    /// Syncs `len` bytes at `offset` for the device, after the CPU has written them.
    #[inline]
    pub(crate) fn sync_for_device(&self, offset: usize, len: usize) {
        if !self.need_sync {
            return;
        }
        // SAFETY: The range is part of a live mapping on the device.
        unsafe {
            bindings::xprtrdma_dma_sync_for_device(
                self.pd.raw_device(),
                self.addr.wrapping_add(offset as u64),
                len,
                self.dir.raw(),
            )
        }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the memory is mapped. It is not used again.
        unsafe {
            bindings::xprtrdma_dma_unmap_single(
                self.pd.raw_device(),
                self.addr,
                self.mem.len(),
                self.dir.raw(),
            )
        };
        self.ptr = ptr::null_mut();
    }
}
