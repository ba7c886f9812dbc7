// SPDX-License-Identifier: GPL-2.0

//! Whether a connection uses remote invalidation, and the reason if it does not ([`Disbelief`]).

use crate::{
    counters::Counters,
    params, //
};
use xprtrdma_proto::Counter;
use xprtrdma_rdma::device::DeviceInfo;

/// After this number of wrong invalidations by a server, the transport trusts no invalidation on
/// any later connection. Each wrong invalidation also ends its connection. So a server can guess at
/// most this many keys.
const STRIKES: u64 = 3;

/// The reason why a server is not asked to invalidate regions, and why its invalidations are not
/// trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disbelief {
    /// The parameter `remote_invalidation` is set to `never`.
    Never,
    /// On this device, a received message does not prove that a region was invalidated.
    Device,
    /// The server has invalidated too many regions wrongly.
    Server,
}

impl Disbelief {
    /// Returns the reason against remote invalidation, if any, for a new connection on this device.
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

    /// Returns the reason in words, for logs and debugfs.
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Never => "remote_invalidation=never",
            Self::Device => "this device does not prove it",
            Self::Server => "the server has invalidated other regions",
        }
    }
}
