// SPDX-License-Identifier: GPL-2.0

//! Memory of our own that is mapped for a device ([`DmaBuf`]).

use crate::pd::Pd;
use core::ptr;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_bindings as bindings;

/// Which side writes the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads.
    ToDevice,
    /// The device writes.
    FromDevice,
}

impl Direction {
    #[inline]
    pub(crate) fn raw(self) -> u32 {
        match self {
            Self::ToDevice => bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_TO_DEVICE,
            Self::FromDevice => bindings::xprtrdma_dma_direction_XPRTRDMA_DMA_FROM_DEVICE,
        }
    }
}

/// A buffer of our own that stays mapped for one device.
///
/// The memory is shared with the device, so it is only reached through raw pointers. The queues of
/// this crate record which bytes belong to the device.
///
/// # Invariants
///
/// - `mem` is mapped at `addr` for `dir` until `drop`.
/// - `lkey` is the key of all local memory in the domain.
/// - `need_sync` is whether the mapping is one that must be synced. That is settled when it is
///   made: by the device's coherence, and by whether the memory behind it is a bounce buffer.
pub(crate) struct DmaBuf {
    mem: KVec<u8>,
    ptr: *mut u8,
    addr: u64,
    dir: Direction,
    need_sync: bool,
    lkey: u32,
    pd: Arc<Pd>,
}

// SAFETY: The memory is owned and the device has no thread affinity.
unsafe impl Send for DmaBuf {}
// SAFETY: `&DmaBuf` only gives out addresses.
unsafe impl Sync for DmaBuf {}

impl DmaBuf {
    /// Allocates and maps `len` bytes, zeroed; `EINVAL` for none. May sleep.
    pub(crate) fn new(pd: &Arc<Pd>, len: usize, dir: Direction) -> Result<Self> {
        if len == 0 {
            // Not memory, but a pointer to nothing.
            return Err(EINVAL);
        }
        let mut mem = KVec::from_elem(0u8, len, GFP_KERNEL | __GFP_NOWARN)?;
        let ptr = mem.as_mut_ptr();
        let dev = pd.raw_device();
        // SAFETY: The device exists while `pd` does; `mem` is `len` bytes of kmalloc memory.
        let addr = unsafe { bindings::xprtrdma_dma_map_single(dev, ptr.cast(), len, dir.raw()) };
        // SAFETY: The device exists; `addr` is the result of a mapping call on it.
        if unsafe { bindings::xprtrdma_dma_mapping_error(dev, addr) } != 0 {
            return Err(EIO);
        }
        // SAFETY: The device exists; the memory is mapped there.
        let need_sync = unsafe { bindings::xprtrdma_dma_need_sync(dev, addr) };
        // INVARIANT: Mapped just now, and asked for after that.
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

    /// A scatter/gather element for `len` bytes at `offset`, both within the buffer.
    #[inline]
    pub(crate) fn sge(&self, offset: usize, len: usize) -> bindings::ib_sge {
        bindings::ib_sge {
            // NO-OVERFLOW: A mapping does not wrap around the address space.
            addr: self.addr.wrapping_add(offset as u64),
            length: len as u32,
            lkey: self.lkey,
        }
    }

    /// Syncs `len` bytes at `offset` for the CPU after the device wrote them.
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

    /// Syncs `len` bytes at `offset` for the device.
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
        // SAFETY: Mapped by the type invariant; not used again.
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
