// SPDX-License-Identifier: GPL-2.0

//! The abilities of an RDMA device ([`DeviceInfo`]).

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

/// Drivers whose devices are not believed when they say that a message invalidated a region, each
/// with its reason.
///
/// A message proves that its region is out of the peer's reach if it repeats what left this host
/// with the Send that told of the region (see [`Echo`](crate::mr::Echo)) and if the device keeps
/// three promises:
///
/// 1. It executes the work requests of a send queue in order: when a Send leaves, the registrations
///    in front of it have been executed.
/// 2. A completion with `IB_WC_WITH_INVALIDATE` means that the region with this key was invalidated
///    when the message arrived, and that only a registration posted later makes it valid again.
/// 3. No access to the region that the peer began before goes on behind that completion.
///
/// * **siw** (tried): data of an RDMA Read leave while messages come in. `siw_check_sgl_tx` looks
///   at the key when they begin to leave, and `siw_tx_hdt` takes page after page from the region's
///   list, whatever the region is by then. A peer that keeps its TCP window closed has such a Read
///   wait as long as it likes, and gets what the pages hold in the end. An invalidation of our own
///   waits for it, because `siw_qp_sq_process` has one work request or answer at a time.
/// * **vmw_pvrdma**: a program of the hypervisor executes the work requests. Its source is not
///   public, and it may send again as rxe does.
///
/// All others are believed. What was read of the first two promises, and what was tried; the third
/// is kept by adapters, and their drivers' source says nothing of it:
///
/// * **rxe** (tried): `rxe_requester` takes one work request at a time; `rxe_invalidate_mr`. It
///   registers again when it sends again, see [`EXECUTE_AGAIN`]. It sends the data of a Read before
///   it looks at the next message (`get_req`).
/// * **mlx5** (read): in `mlx5_ib_post_send` what follows a registration has the fence that the
///   firmware asks for; the completion `MLX5_CQE_RESP_SEND_INV`.
/// * **mlx4** (read): `MLX4_WQE_CTRL_STRONG_ORDER`; the completion `MLX4_RECV_OPCODE_SEND_INVAL`.
/// * **bnxt_re, irdma, erdma, hns, qedr, ionic, cxgb4, ocrdma** (read): one queue takes both, and
///   the adapter keeps its order; the completion has a flag or an opcode for it, and the key.
/// * **hfi1** (read): registers when it is posted; `rvt_invalidate_rkey` compares the whole key,
///   and without a match the completion has no flag. Data of a Read that has begun follow, also
///   behind an invalidation of our own, which waits for nothing.
/// * **mana, efa, usnic**: no fast registration in the kernel, so no connection.
const DISTRUSTED: &[bindings::rdma_driver_id] = &[
    bindings::rdma_driver_id_RDMA_DRIVER_SIW,
    bindings::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA,
];

/// Whether this device is not believed when it says that a message invalidated a region.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn is_distrusted(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract.
    DISTRUSTED.contains(&unsafe { driver(dev) })
}

/// Drivers that execute a registration again when they repeat work requests that were not
/// acknowledged.
///
/// A registration that is executed behind the invalidation of its key brings the key back to life.
/// The region then has the rights of that registration. So on such a device a region that is taken
/// back covers no bytes (`Inner::cover_nothing`), is mapped for one kind of access only
/// ([`IdleMr::allows`](crate::mr::IdleMr::allows)), and is not deregistered while a send queue may
/// have its registration. A registration that is executed while its region is valid fails, and the
/// queue pair with it: see [`Repetitions`].
///
/// * **rxe**: `req_retry` (`rxe_req.c`) begins at the oldest work request that was not
///   acknowledged, and `rxe_requester` takes every one from there on, whatever its state, also
///   those that leave the queue at that time. `rxe_reg_fast_mr` refuses a region that is valid, and
///   registers one that was invalidated: key and rights are the work request's, address and length
///   those that the region has then. `mr_check_range` compares them with each packet: in
///   `check_rkey` and again in `rxe_mr_copy`, which copies what a packet brings or takes, and in
///   the atomic operations. A flush that checks no range copies nothing. The region's number and
///   its registration in the queue are a pointer (`wr.reg.mr`), without a reference.
///
/// None with `XPRTRDMA_UPSTREAM=1`, which is for a kernel whose rxe skips what it has executed
/// (`Documentation/upstream`).
const EXECUTE_AGAIN: &[bindings::rdma_driver_id] = if cfg!(xprtrdma_upstream) {
    &[]
} else {
    &[bindings::rdma_driver_id_RDMA_DRIVER_RXE]
};

/// Whether a registration on this device is executed again when the queue is sent again.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn executes_again(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract.
    EXECUTE_AGAIN.contains(&unsafe { driver(dev) })
}

/// What is known of the repetitions of one device.
///
/// A registration that is executed again while its region is valid costs the connection. It happens
/// when the device sends again while several messages are under way: packets were lost, or the
/// processor was busy. The first time it is noted here, and from then on a queue pair on the device
/// has a [fence](crate::qp) in front of the registrations of each message. The note outlives
/// domains and ends with the module.
#[derive(Clone, Copy)]
pub(crate) struct Repetitions(&'static Atomic<bool>);

/// What rxe counts of a port (`rxe_hw_counters.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sendings {
    /// Queues that were sent again.
    again: u64,
    /// Packets that could not be sent, which ends their queue pair without a status, too.
    failed: u64,
}

impl Sendings {
    /// Whether something was sent again since `before`, and everything could be sent.
    pub(crate) fn may_have_repeated(self, before: Self) -> bool {
        self.again != before.again && self.failed == before.failed
    }
}

/// Number of devices that can be told apart. Two devices that share a place both get the fence.
const DEVICES: usize = 64;

static REPEATED: [Atomic<bool>; DEVICES] = [const { Atomic::new(false) }; DEVICES];

impl Repetitions {
    /// Those of this device; `None` if it never executes a registration again.
    ///
    /// # Safety
    ///
    /// The device exists.
    pub(crate) unsafe fn of(dev: NonNull<bindings::ib_device>) -> Option<Self> {
        // SAFETY: By this function's contract.
        if !unsafe { executes_again(dev) } {
            return None;
        }
        // SAFETY: By this function's contract. The number is constant after registration.
        let index = unsafe { (*dev.as_ptr()).index };
        REPEATED.get(index as usize % DEVICES).map(Self)
    }

    /// How often the device has sent again, and could not send, on this port. May sleep.
    pub(crate) fn sendings(self, device: NonNull<bindings::ib_device>, port: u32) -> Sendings {
        let counter = |name: &CStr| {
            // SAFETY: The device is that of `of`, whose caller keeps it; the name ends with NUL.
            unsafe { bindings::xprtrdma_port_counter(device.as_ptr(), port, name.as_char_ptr()) }
        };
        Sendings {
            again: counter(c"completer_retry_err").wrapping_add(counter(c"rcvd_rnr_err")),
            failed: counter(c"send_err"),
        }
    }

    /// Whether there was one.
    pub(crate) fn are_known(self) -> bool {
        self.0.load(Relaxed)
    }

    /// There was one. Whether it is the first.
    pub(crate) fn note(self) -> bool {
        !self.0.xchg(true, Relaxed)
    }
}

/// Puts a fence in front of registrations from now on, on every device that might execute them
/// again (`fenced`), or only after it was seen to do so.
pub fn fence_registrations(fenced: bool) {
    for of in &REPEATED {
        of.store(fenced, Relaxed);
    }
}

/// Drivers whose queue pairs, once in the error state, reach no memory any more behind the first
/// Receive that they flush.
///
/// Verbs promise it, but some drivers flush Receives by themselves, or say that they have changed
/// the state, whatever the device does: cxgb4 when it could not stop the connection, hfi1 while a
/// flow of its TID RDMA is programmed, mlx5 when its firmware is gone. Where it cannot be read in
/// the source, the queue pair is destroyed before memory goes back.
///
/// * **rxe**: `rxe_receiver` looks at the state, under its lock, before each packet, and flushes in
///   the same task (`rxe_resp.c`). What a packet needs of a region is copied before.
/// * **siw**: the state is changed with its lock held for writing (`siw_verbs_modify_qp`); what
///   arrives and what is sent is handled with it held for reading, in the state RTS only, and
///   Receives are flushed under it.
const STOP_IN_ERROR: &[bindings::rdma_driver_id] = &[
    bindings::rdma_driver_id_RDMA_DRIVER_RXE,
    bindings::rdma_driver_id_RDMA_DRIVER_SIW,
];

/// Whether a queue pair on this device that has flushed a Receive reaches no memory any more.
///
/// # Safety
///
/// The device exists.
pub(crate) unsafe fn stops_in_error(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract.
    STOP_IN_ERROR.contains(&unsafe { driver(dev) })
}

/// Drivers whose work requests complete before RDMA Reads that were posted earlier, unless they
/// have a fence.
///
/// * **siw**: `siw_qp_sq_process` completes a Send or a Write when it was sent; a Read completes
///   when its data have come (`siw_rdmap_complete`). With a fence the work request is not begun
///   before.
#[cfg(xprtrdma_server)]
const OVERTAKE: &[bindings::rdma_driver_id] = &[bindings::rdma_driver_id_RDMA_DRIVER_SIW];

/// Whether work requests on this device complete before RDMA Reads that were posted earlier.
///
/// # Safety
///
/// The device exists.
#[cfg(xprtrdma_server)]
pub(crate) unsafe fn overtakes(dev: NonNull<bindings::ib_device>) -> bool {
    // SAFETY: By this function's contract.
    OVERTAKE.contains(&unsafe { driver(dev) })
}

/// The driver of the device.
///
/// # Safety
///
/// The device exists.
unsafe fn driver(dev: NonNull<bindings::ib_device>) -> bindings::rdma_driver_id {
    // SAFETY: By this function's contract. The operations are constant after registration.
    unsafe { (*dev.as_ptr()).ops.driver_id }
}

/// The limits of a device that matter to a client of reliable connections and fast registration.
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
    /// What is sent has ended when the device's TCP has taken it, not when the peer's device has it
    /// (iWARP; RFC 5040, 5.5): the end says nothing of the peer.
    pub ends_early: bool,
    /// A message of the peer that invalidates a region can prove it. Otherwise the peer had better
    /// send none: each region must be invalidated here all the same.
    pub proves_invalidations: bool,
    /// A queue pair may post one work request more in front of the registrations of a message, and
    /// regions are best mapped for one kind of access only ([`IdleMr::allows`]).
    ///
    /// [`IdleMr::allows`]: crate::mr::IdleMr::allows
    pub executes_again: bool,
}

impl DeviceInfo {
    /// The device of an id; `None` before its address is resolved.
    pub fn of(id: &CmId) -> Option<Self> {
        let raw = id.raw_device()?;
        // SAFETY: The device of a resolved id exists as long as the id.
        let proves_invalidations = unsafe { !is_distrusted(raw) };
        // SAFETY: As above.
        let executes_again = unsafe { executes_again(raw) };
        let dev = raw.as_ptr();
        // SAFETY: As above. Its attributes are constant after registration.
        let attrs = unsafe { &(*dev).attrs };
        // SAFETY: As above. What kind of node it is, is constant, too.
        let node = unsafe { (*dev).node_type };
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
            ends_early: u32::from(node) == bindings::RDMA_NODE_RNIC,
            proves_invalidations,
            executes_again,
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
pub(crate) fn limit<T: TryInto<u32>>(value: T) -> u32 {
    value.try_into().unwrap_or(0)
}
