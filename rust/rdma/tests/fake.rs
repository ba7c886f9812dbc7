// SPDX-License-Identifier: GPL-2.0

//! The fake RDMA device of the suites. Tests query the number of its objects, make its operations
//! fail, and use ids that are bound to it.

use super::log::Log;
use crate::{
    cm::{
        CmEvent,
        CmHandler,
        CmId, //
    },
    device::fence_registrations,
    pd::Pd, //
};
use core::net::{
    SocketAddr,
    SocketAddrV6, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use xprtrdma_base::net::Net;
use xprtrdma_bindings as bindings;

/// Operations of the device that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    AllocPd,
    CreateCq,
    CreateQp,
    DestroyQp,
    ModifyQp,
    AllocMr,
    MapMrSg,
    PostSend,
    PostRecv,
    DmaMap,
    DmaMapSg,
    Connect,
}

impl Verb {
    const ALL: [Self; 12] = [
        Self::AllocPd,
        Self::CreateCq,
        Self::CreateQp,
        Self::DestroyQp,
        Self::ModifyQp,
        Self::AllocMr,
        Self::MapMrSg,
        Self::PostSend,
        Self::PostRecv,
        Self::DmaMap,
        Self::DmaMapSg,
        Self::Connect,
    ];

    fn raw(self) -> bindings::fake_verb {
        match self {
            Self::AllocPd => bindings::fake_verb_FAKE_ALLOC_PD,
            Self::CreateCq => bindings::fake_verb_FAKE_CREATE_CQ,
            Self::CreateQp => bindings::fake_verb_FAKE_CREATE_QP,
            Self::DestroyQp => bindings::fake_verb_FAKE_DESTROY_QP,
            Self::ModifyQp => bindings::fake_verb_FAKE_MODIFY_QP,
            Self::AllocMr => bindings::fake_verb_FAKE_ALLOC_MR,
            Self::MapMrSg => bindings::fake_verb_FAKE_MAP_MR_SG,
            Self::PostSend => bindings::fake_verb_FAKE_POST_SEND,
            Self::PostRecv => bindings::fake_verb_FAKE_POST_RECV,
            Self::DmaMap => bindings::fake_verb_FAKE_DMA_MAP,
            Self::DmaMapSg => bindings::fake_verb_FAKE_DMA_MAP_SG,
            Self::Connect => bindings::fake_verb_FAKE_CONNECT,
        }
    }

    /// Makes the nth call of this operation after this point fail. If `nth` is zero, no call fails.
    /// The count of calls starts again at zero.
    pub(super) fn fail(self, nth: u32) {
        // SAFETY: `verb` is a verb of the device.
        unsafe { bindings::fake_fail(self.raw(), nth) }
    }

    /// Returns the number of calls of this operation since the last call of `fail`.
    pub(super) fn calls(self) -> u32 {
        // SAFETY: `verb` is a verb of the device.
        unsafe { bindings::fake_calls(self.raw()) }
    }
}

/// The number of objects of each kind that exist on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) pds: i32,
    pub(super) cqs: i32,
    pub(super) qps: i32,
    pub(super) mrs: i32,
    pub(super) mappings: i32,
    pub(super) connections: i32,
    pub(super) violations: i32,
}

impl Census {
    pub(super) const NOTHING: Self = Self {
        pds: 0,
        cqs: 0,
        qps: 0,
        mrs: 0,
        mappings: 0,
        connections: 0,
        violations: 0,
    };

    /// Returns how many objects of each kind exist on the device now.
    pub(super) fn now() -> Self {
        let mut raw = bindings::fake_census::default();
        // SAFETY: `raw` is writable.
        unsafe { bindings::fake_census(&mut raw) };
        Self {
            pds: raw.pds,
            cqs: raw.cqs,
            qps: raw.qps,
            mrs: raw.mrs,
            mappings: raw.mappings,
            connections: raw.connections,
            violations: raw.violations,
        }
    }
}

/// Resets the device, so that no call fails and the peer accepts connections.
pub(super) fn calm() {
    for verb in Verb::ALL {
        verb.fail(0);
    }
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_peer_answers(bindings::fake_peer_FAKE_ACCEPTS) };
    short_maps(false);
    Death::None.comes();
    Kind::Plain.always();
    // SAFETY: Before a test, nothing is mapped.
    unsafe { bindings::fake_begin() };
}

/// The operation that the device refuses from now on. The device then behaves like a removed
/// device: a drain that needs the refused operation fails without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    None,
    NoModify,
    NoPost,
}

impl Death {
    pub(super) fn comes(self) {
        // SAFETY: The suites run one after the other, and make this call only while no queue pair
        // is drained.
        unsafe {
            bindings::fake_dies(match self {
                Self::None => bindings::fake_death_FAKE_LIVES,
                Self::NoModify => bindings::fake_death_FAKE_NO_MODIFY,
                Self::NoPost => bindings::fake_death_FAKE_NO_POST,
            })
        }
    }
}

/// The type of device that the fake device imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary device. It does not check the keys that a message invalidates.
    Plain,
    /// A device like `Plain` that also checks the keys that a message invalidates.
    Checks,
    /// A device that is not trusted when it reports that a message invalidated a key.
    Distrusted,
    /// A device that accesses no memory after it has flushed a Receive.
    Stops,
    /// A device that executes a registration a second time.
    Repeats,
    /// A device like `Repeats`. This module has already recorded that the device executed a
    /// registration a second time.
    Fenced,
}

impl Kind {
    /// Makes the device behave like this type from now on.
    pub(super) fn always(self) {
        let driver = match self {
            Self::Plain | Self::Checks => bindings::rdma_driver_id_RDMA_DRIVER_UNKNOWN,
            Self::Distrusted => bindings::rdma_driver_id_RDMA_DRIVER_VMW_PVRDMA,
            Self::Stops => bindings::rdma_driver_id_RDMA_DRIVER_SIW,
            Self::Repeats | Self::Fenced => bindings::rdma_driver_id_RDMA_DRIVER_RXE,
        };
        fence_registrations(self == Self::Fenced);
        // SAFETY: The call has no requirements.
        unsafe { bindings::fake_invalidations(driver, self == Self::Checks) }
    }
}

/// The adapter that the fake device imitates, and the limits that it reports.
#[derive(Clone, Copy, Debug)]
pub(super) struct Adapter {
    pub(super) driver: bindings::rdma_driver_id,
    pub(super) send_sges: u32,
    pub(super) pages: u32,
    pub(super) wrs: u32,
    pub(super) gaps: bool,
}

impl Adapter {
    /// Sets the limits of the fake device to the limits of `self`. They apply until a test calls
    /// `calm`.
    pub(super) fn always(&self) {
        let limits = bindings::fake_limits {
            send_sges: self.send_sges,
            pages: self.pages,
            wrs: self.wrs,
            gaps: self.gaps.into(),
        };
        // SAFETY: The call has no requirements.
        unsafe { bindings::fake_invalidations(self.driver, false) };
        // SAFETY: The limits can be read, and no object exists on the device.
        unsafe { bindings::fake_limits(&limits) };
    }
}

/// Returns the number of breaches. There are two kinds of breach:
///
/// - Memory is given back to its owner while a key still gives access to it.
/// - A key gives access to memory that was given back earlier.
pub(super) fn breaches() -> u32 {
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_breaches() }
}

/// Returns the number of completions that the device has reported since the test started.
pub(super) fn completions() -> u32 {
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_completions() }
}

/// An event of an id, without the data that the event borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    AddrResolved,
    AddrError,
    RouteResolved,
    Established { greeting: bool, depth: u8 },
    Rejected(i32),
    Disconnected,
    Other,
}

impl CmHandler for Log<Seen> {
    fn event(&self, event: CmEvent<'_>) {
        self.add(match event {
            CmEvent::AddrResolved => Seen::AddrResolved,
            CmEvent::AddrError(_) => Seen::AddrError,
            CmEvent::RouteResolved => Seen::RouteResolved,
            CmEvent::Established {
                private_data,
                peer_read_depth,
                ..
            } => Seen::Established {
                greeting: private_data.starts_with(b"hello"),
                depth: peer_read_depth,
            },
            CmEvent::Rejected { reason, .. } => Seen::Rejected(reason),
            CmEvent::Disconnected => Seen::Disconnected,
            _ => Seen::Other,
        });
    }
}

/// Sets whether each region that is mapped later covers less memory than requested.
pub(super) fn short_maps(on: bool) {
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_short_maps(on) }
}

/// Sets the maximum length, in bytes, of an entry in each scatterlist that is mapped later.
pub(super) fn limit_entries(bytes: usize) {
    // CAST: The number of pages in a test is small.
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_max_entry(bytes as u32) }
}

/// Returns the length in bytes of the longest entry in the scatterlist that was last mapped for a
/// region.
pub(super) fn longest_entry() -> usize {
    // SAFETY: The call has no requirements.
    unsafe { bindings::fake_longest_entry() as usize }
}

/// Returns the namespace of the device.
pub(super) fn net() -> &'static Net {
    // SAFETY: The initial namespace is never freed.
    unsafe { Net::from_raw(bindings::fake_net()) }
}

/// Returns an address of the device.
pub(super) fn peer() -> SocketAddr {
    let mut bytes = [0; 16];
    // SAFETY: The buffer has 16 bytes.
    let scope = unsafe { bindings::fake_address(bytes.as_mut_ptr()) };
    SocketAddrV6::new(bytes.into(), 20049, 0, scope).into()
}

/// Returns an id whose address and route are resolved, and the log of its events.
pub(super) fn routed() -> Result<(Arc<CmId>, Arc<Log<Seen>>)> {
    let log = Log::new()?;
    let id = CmId::create(net(), log.clone())?;
    id.resolve_addr(&peer(), 5000)?;
    if log.wait(|e| matches!(e, Seen::AddrResolved | Seen::AddrError))? == Seen::AddrError {
        pr_err!("the device's own address cannot be resolved\n");
        return Err(ENODEV);
    }
    id.resolve_route(5000)?;
    log.wait(|e| matches!(e, Seen::RouteResolved))?;
    Ok((Arc::new(id, GFP_KERNEL)?, log))
}

/// Resets the device, and creates a protection domain that contains no objects.
pub(super) fn domain() -> Result<Arc<Pd>> {
    calm();
    let (id, _log) = routed()?;
    Pd::alloc(id)
}

/// Does what [`domain`] does, for a device that accesses memory by the kernel's addresses. The
/// caller must call [`calm`] after it has dropped the domain.
pub(super) fn virtual_domain() -> Result<Arc<Pd>> {
    calm();
    // SAFETY: Nothing is mapped.
    unsafe { bindings::fake_virtual_addresses(true) };
    let (id, _log) = routed()?;
    Pd::alloc(id)
}

/// The census of a device whose only object is the protection domain of [`domain`].
pub(super) const DOMAIN: Census = Census {
    pds: 1,
    ..Census::NOTHING
};
