// SPDX-License-Identifier: GPL-2.0

//! The capabilities of an RDMA device ([`DeviceInfo`]).

use crate::cm::CmId;
use core::{
    cmp::min,
    ptr::NonNull, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};
use xprtrdma_bindings as bindings;

/// Drivers whose devices are not trusted when they report that a message invalidated a region.
///
/// Such a report proves that the peer can no longer access the region if two conditions hold.
/// First, the message repeats a value that this host sent with the region's handle (see
/// [`Echo`](crate::mr::Echo)). Second, the device keeps three promises:
///
/// 1. The device executes the work requests of a send queue in order: when a Send leaves, the
///    device has executed the registrations that were posted before that Send.
/// 2. A completion with `IB_WC_WITH_INVALIDATE` means that the region with this key was invalidated
///    when the message arrived. Only a registration that is posted later makes the key valid again.
/// 3. If the peer began an access to the region earlier, the access has ended before that
///    completion.
///
/// Two drivers are not trusted:
///
/// * **siw** (tested): when a message arrives, the device may still be sending the data of an RDMA
///   Read. `siw_check_sgl_tx` checks the key only before the first data are sent. After that
///   `siw_tx_hdt` takes page after page from the region's list, even if the region has been
///   invalidated. A peer that keeps its TCP window closed can delay such a Read as long as it
///   likes, and then receives the later content of the pages. A local invalidation waits for the
///   Read, because `siw_qp_sq_process` handles one work request or response at a time.
/// * **vmw_pvrdma**: the hypervisor executes the work requests. The source of the hypervisor is not
///   public, so it is not known whether the promises are kept. For example, the hypervisor may
///   execute registrations again, as rxe does. But the precautions at [`EXECUTE_AGAIN`] are taken
///   only for rxe.
///
/// All other drivers are trusted. The list below says what is known about the first two promises,
/// from the driver's source ("read") or also from tests ("tested"). The third promise depends on
/// the adapter, so the driver's source does not show whether it is kept.
///
/// * **rxe** (tested): `rxe_requester` takes one work request at a time, and `rxe_invalidate_mr`
///   invalidates the region. When rxe repeats work requests, it executes registrations again. The
///   precautions at [`EXECUTE_AGAIN`] protect the memory in this case. The data of a Read are sent
///   before the next message is handled (`get_req`).
/// * **mlx5** (read): in `mlx5_ib_post_send`, a work request after a registration has the fence
///   that the firmware requires. An invalidation is reported by the completion code
///   `MLX5_CQE_RESP_SEND_INV`.
/// * **mlx4** (read): `MLX4_WQE_CTRL_STRONG_ORDER` keeps the order. An invalidation is reported by
///   the opcode `MLX4_RECV_OPCODE_SEND_INVAL`.
/// * **bnxt_re, irdma, erdma, hns, qedr, ionic, cxgb4, ocrdma** (read): one queue contains the
///   registrations and the Sends, and the adapter keeps their order. The completion reports an
///   invalidation by a flag or an opcode, and contains the key.
/// * **hfi1** (read): a region is registered when its work request is posted. `rvt_invalidate_rkey`
///   compares the whole key, and without a match the completion has no flag. If a Read has begun,
///   its data are still sent after the region was invalidated. Even a local invalidation does not
///   wait until these data are sent.
/// * **mana, efa, usnic**: they offer no fast registration to the kernel, so no connection uses
///   them.
const DISTRUSTED: &[bindings::rdma_driver_id] = &[
    bindings::rdma_driver_id_RDMA_DRIVER_SIW,
    bindings::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA,
];

/// Returns true if this device is not trusted when it reports that a message invalidated a region.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn is_distrusted(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract the device exists.
    DISTRUSTED.contains(&unsafe { driver(dev) })
}

/// Drivers that execute a registration again when they repeat work requests that were not
/// acknowledged.
///
/// If a registration is executed again after its key was invalidated, the key becomes valid again,
/// with the rights of that registration. So three precautions are needed on such a device:
///
/// * A revoked region covers no bytes (`Inner::cover_nothing`).
/// * A region is mapped for one type of access only
///   ([`IdleMr::allows`](crate::mr::IdleMr::allows)).
/// * A region is not deregistered while a send queue may still contain its registration.
///
/// If a registration is executed again while its region is valid, the registration fails, and the
/// queue pair fails too: see [`Repetitions`].
///
/// The source of **rxe** shows:
///
/// * `req_retry` (`rxe_req.c`) starts at the oldest work request that was not acknowledged.
///   `rxe_requester` executes this work request and all later ones. It does not check their state,
///   and executes even those that are just being removed from the queue.
/// * `rxe_reg_fast_mr` refuses a region that is valid, and registers a region that was invalidated.
///   The key and the rights come from the work request. The address and the length are those of the
///   region at that time.
/// * `mr_check_range` checks the address and length of each packet against those of the region. It
///   is called in `check_rkey`, in `rxe_mr_copy`, which copies the data of a packet, and in the
///   atomic operations. The range of a flush is not checked, but a flush copies nothing.
/// * A registration in the queue refers to its region by a pointer (`wr.reg.mr`) without a
///   reference.
///
/// Without a [fence](crate::qp) these risks remain for a moment while an old key is valid:
///
/// * Until `renew` sets a new address, the new memory is addressed by its DMA address, which no
///   server knows. A packet with that address has the old key's rights.
/// * rxe reads a region's address and writes it back. If a new address is set between the read and
///   the write, the new address is lost, and the server's access fails. An access with the old key
///   and address would reach the new pages, at the old offset in the page.
/// * Processors that reorder writes may see the new length before the new pages.
///
/// The list is empty with `XPRTRDMA_UPSTREAM`. That setting is for a kernel whose rxe does not
/// execute a work request again (`Documentation/upstream`, patch 0001).
const EXECUTE_AGAIN: &[bindings::rdma_driver_id] = if cfg!(xprtrdma_upstream_rxe) {
    &[]
} else {
    &[bindings::rdma_driver_id_RDMA_DRIVER_RXE]
};

/// Returns true if this device executes a registration again when it repeats the work requests of a
/// send queue.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn executes_again(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract the device exists.
    EXECUTE_AGAIN.contains(&unsafe { driver(dev) })
}

/// Records whether one device has executed a registration again.
///
/// If packets are lost or the processor is busy, the device may send work requests again. If
/// several messages are in flight, it may then execute a registration again while the region is
/// valid. This breaks the connection. The first such event is recorded here. From then on each
/// queue pair on the device posts a [fence](crate::qp) before the registrations of each message.
/// The record outlives protection domains, and lasts until the module is unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Repetitions(&'static Atomic<bool>);

/// Counters that rxe keeps for one port (`rxe_hw_counters.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sendings {
    /// Number of times that the device repeated the work requests of a send queue.
    again: u64,
    /// Number of packets that could not be sent. Such a packet also makes its queue pair fail, but
    /// no completion reports the reason.
    failed: u64,
}

impl Sendings {
    /// Returns true if the device has repeated the work requests of a send queue since `before` was
    /// read, and has not failed to send any packet since then.
    pub(crate) fn may_have_repeated(self, before: Self) -> bool {
        self.again != before.again && self.failed == before.failed
    }
}

/// Number of entries in the table of the devices that have executed a registration again. If two
/// devices share an entry, a repeated registration on one of them makes both devices use fences.
const DEVICES: usize = 64;

static REPEATED: [Atomic<bool>; DEVICES] = [const { Atomic::new(false) }; DEVICES];

impl Repetitions {
    /// Returns the record that says whether this device has executed a registration again; `None`
    /// if the device never does this.
    ///
    /// # Safety
    ///
    /// The device exists.
    pub(crate) unsafe fn of(dev: NonNull<bindings::ib_device>) -> Option<Self> {
        // SAFETY: By this function's contract the device exists.
        if !unsafe { executes_again(dev) } {
            return None;
        }
        // SAFETY: By this function's contract the device exists. Its number is constant after
        // registration.
        let index = unsafe { (*dev.as_ptr()).index };
        REPEATED.get(index as usize % DEVICES).map(Self)
    }

    /// Returns two counters of the device for this port: how many times the device repeated the
    /// work requests of a send queue, and how many packets it failed to send. May sleep.
    pub(crate) fn sendings(self, device: NonNull<bindings::ib_device>, port: u32) -> Sendings {
        let counter = |name: &CStr| {
            // SAFETY: The device is the one that was passed to `of`, and the caller ensures that
            // it still exists. The name ends with NUL.
            unsafe { bindings::xprtrdma_port_counter(device.as_ptr(), port, name.as_char_ptr()) }
        };
        Sendings {
            again: counter(c"completer_retry_err").wrapping_add(counter(c"rcvd_rnr_err")),
            failed: counter(c"send_err"),
        }
    }

    /// Returns whether the record says that the device has executed a registration again.
    #[inline]
    pub(crate) fn are_known(self) -> bool {
        self.0.load(Relaxed)
    }

    /// Records that the device has executed a registration again. Returns true if this was not
    /// recorded before.
    pub(crate) fn note(self) -> bool {
        !self.0.xchg(true, Relaxed)
    }
}

/// Sets whether registrations get a fence from now on, on every device that might execute them
/// again. If `fenced` is false, registrations on a device get no fence until the device is seen to
/// execute a registration again.
pub fn fence_registrations(fenced: bool) {
    for of in &REPEATED {
        of.store(fenced, Relaxed);
    }
}

/// Drivers whose queue pairs no longer access memory after they have flushed a Receive in the error
/// state. This is known from the source of the drivers.
///
/// The verbs interface promises for all devices that a flush ends the access to memory. But some
/// drivers flush Receives themselves, or report the error state, while the device may still be
/// active:
///
/// * cxgb4, if it could not stop the connection
/// * hfi1, while a TID RDMA flow is programmed
/// * mlx5, if its firmware has failed
///
/// If a driver is not in this list, the queue pair is destroyed before its memory is released.
///
/// These drivers keep the promise:
///
/// * **rxe**: before each packet `rxe_receiver` checks the state under its lock, and the same task
///   flushes the Receives (`rxe_resp.c`). So the data of earlier packets were copied before the
///   flush.
/// * **siw**: `siw_verbs_modify_qp` changes the state with a lock held for writing. Receives are
///   flushed with this lock held for writing. Packets are received and sent only in the state RTS,
///   with the lock held for reading.
const STOP_IN_ERROR: &[bindings::rdma_driver_id] = &[
    bindings::rdma_driver_id_RDMA_DRIVER_RXE,
    bindings::rdma_driver_id_RDMA_DRIVER_SIW,
];

/// Returns true if a queue pair on this device no longer accesses memory after it has flushed a
/// Receive.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn stops_in_error(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract the device exists.
    STOP_IN_ERROR.contains(&unsafe { driver(dev) })
}

/// Drivers whose work requests may complete before RDMA Reads that were posted earlier, unless the
/// work requests have a fence.
///
/// * **siw**: `siw_qp_sq_process` completes a Send or a Write as soon as it was sent. A Read
///   completes when its data have arrived (`siw_rdmap_complete`). A work request with a fence
///   starts only after the data of all earlier Reads have arrived.
#[cfg(xprtrdma_server)]
const OVERTAKE: &[bindings::rdma_driver_id] = &[bindings::rdma_driver_id_RDMA_DRIVER_SIW];

/// Returns true if work requests on this device may complete before RDMA Reads that were posted
/// earlier.
///
/// # Safety
///
/// The device exists.
#[cfg(xprtrdma_server)]
pub(crate) unsafe fn overtakes(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract the device exists.
    OVERTAKE.contains(&unsafe { driver(dev) })
}

/// Returns true if the device is for iWARP.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn is_iwarp(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract the device exists. Its node type is constant.
    let node = unsafe { (*dev.as_ptr()).node_type };
    u32::from(node) == bindings::RDMA_NODE_RNIC
}

/// Returns the driver of the device.
///
/// # Safety
///
/// The device exists.
unsafe fn driver(dev: NonNull<bindings::ib_device>) -> bindings::rdma_driver_id {
    // SAFETY: By this function's contract the device exists. Its operations are constant after
    // registration.
    unsafe { (*dev.as_ptr()).ops.driver_id }
}

/// The device limits that matter for reliable connections and fast registration.
///
/// # Examples
///
/// ```
/// # use xprtrdma_rdma::{cm::CmId, device::DeviceInfo};
/// /// Whether one region on the device of `id` can cover a mebibyte.
/// fn covers_a_mebibyte(id: &CmId) -> bool {
///     DeviceInfo::of(id).is_some_and(|device| device.fast_reg && device.max_fast_reg_pages >= 257)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo {
    name: [u8; 64],
    /// The number of the port that the id uses.
    pub port: u32,
    /// Maximum number of work requests in one queue.
    pub max_qp_wr: u32,
    /// Maximum number of entries in one completion queue.
    pub max_cqe: u32,
    /// Maximum number of pages that one fast registration covers.
    pub max_fast_reg_pages: u32,
    /// Maximum number of memory regions on the device.
    pub max_mr: u32,
    /// Maximum number of RDMA Reads that the device serves at a time.
    pub max_qp_rd_atom: u32,
    /// Whether the device offers fast registration work requests.
    pub fast_reg: bool,
    /// Whether a region may have gaps between its pages.
    pub sg_gaps: bool,
    /// Whether a Send completes when the TCP stack of the device has accepted the data, rather than
    /// when the peer's device has received them (iWARP; RFC 5040, section 5.5). The completion then
    /// says nothing about the peer.
    pub ends_early: bool,
    /// Whether the device is trusted when it reports that a message of the peer invalidated a
    /// region. If not, the peer should invalidate no regions, because this host must invalidate
    /// each region anyway.
    pub proves_invalidations: bool,
    /// Whether the device may execute registrations again. If so, a message with registrations may
    /// need one more work request (a [fence](crate::qp)), and each region should be mapped for one
    /// type of access only ([`IdleMr::allows`]).
    ///
    /// [`IdleMr::allows`]: crate::mr::IdleMr::allows
    pub executes_again: bool,
}

impl DeviceInfo {
    /// Returns the capabilities of the id's device, or `None` before the address of the id is
    /// resolved.
    pub fn of(id: &CmId) -> Option<Self> {
        let raw = id.raw_device()?;
        // SAFETY: The device of a resolved id exists as long as the id.
        let proves_invalidations = unsafe { !is_distrusted(raw) };
        // SAFETY: The device of a resolved id exists as long as the id.
        let executes_again = unsafe { executes_again(raw) };
        let dev = raw.as_ptr();
        // SAFETY: The device exists as long as the id. Its attributes are constant after
        // registration.
        let attrs = unsafe { &(*dev).attrs };
        // SAFETY: The device of a resolved id exists as long as the id.
        let ends_early = unsafe { is_iwarp(raw) };
        // SAFETY: The name has a fixed size and ends with NUL. A rename at the same time can only
        // mix the two names.
        let raw = unsafe { (*dev).name };
        // SAFETY: By the invariant of its type, the id is valid. Its device is set. rdma_cm sets
        // the port number of an id before the device, so the port number is set as well.
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
            ends_early,
            proves_invalidations,
            executes_again,
        })
    }

    /// Returns the name of the device, for example `mlx5_0`.
    pub fn name(&self) -> &str {
        let len = self.name.iter().position(|&c| c == 0).unwrap_or(0);
        self.name
            .get(..len)
            .and_then(|n| core::str::from_utf8(n).ok())
            .unwrap_or("?")
    }
}

/// Converts a limit to a `u32`. In some kernels the limit is an `int`, in others a `u32`.
pub(crate) fn limit<T: TryInto<u32>>(value: T) -> u32 {
    value.try_into().unwrap_or(0)
}
