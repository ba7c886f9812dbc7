// SPDX-License-Identifier: GPL-2.0

//! Whether servers may invalidate regions, and why not ([`Disbelief`]).

use crate::{
    counters::Counters,
    params, //
};
use xprtrdma_proto::Counter;
use xprtrdma_rdma::device::DeviceInfo;

/// Number of wrong invalidations after which a server is not believed any more, on any connection
/// of the transport. Each of them has ended a connection. So this is how often a server may guess.
const STRIKES: u64 = 3;

/// Why a server is not asked to invalidate regions, and not believed if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disbelief {
    /// The parameter `remote_invalidation` says so.
    Never,
    /// On this device a message proves no invalidation.
    Device,
    /// The server has invalidated a region that it should not have.
    Server,
}

impl Disbelief {
    /// Whether there is a reason now, for a connection on this device.
    pub(crate) fn of(device: &DeviceInfo, counters: &Counters) -> Option<Self> {
        if !params::remote_invalidation() {
            Some(Self::Never)
        } else if !device.proves_invalidations {
            Some(Self::Device)
        } else if counters.unusual(Counter::ReminvWrong) >= STRIKES {
            Some(Self::Server)
        } else {
            None
        }
    }

    /// The reason in words, for logs and debugfs.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Never => "remote_invalidation=never",
            Self::Device => "this device does not prove it",
            Self::Server => "the server has invalidated other regions",
        }
    }
}
