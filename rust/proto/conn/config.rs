// SPDX-License-Identifier: GPL-2.0

//! Settings for connections that the administrator and the driver choose.

use super::{
    backoff::BackoffConfig,
    keepalive::KeepaliveConfig, //
};
use crate::{
    time::Millis,
    v2::negotiate::VersionPolicy, //
};

/// Default time limit for the answer to the connection request of a first mount.
pub(super) const FIRST_REQUEST_TIMEOUT: Millis = Millis::from_secs(15);

/// Settings that the administrator and the driver choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Time limit of one whole attempt; the caller may ask for a shorter limit.
    pub connect_timeout: Millis,
    /// Time limit of the address step, and of the route step.
    pub resolve_timeout: Millis,
    /// Time limit of one address query. After this time the query is repeated. If the answer
    /// arrives before the connection manager waits for it, the connection manager notices the
    /// answer only when the query times out.
    pub address_timeout: Millis,
    /// Time limit for the answer to the connection request of a first mount. The limit is short,
    /// because the mount command waits for the answer, and the address may be mistyped. The
    /// connection manager repeats the request after about five seconds without an answer. So there
    /// is time for three requests, of which two may be lost.
    pub first_request_timeout: Millis,
    /// Time limit for the answer to the version probe. If version 1 may follow, the limit is at
    /// most half of the time that is left for the attempt.
    pub version_timeout: Millis,
    /// Limits of the delays between connection attempts.
    pub backoff: BackoffConfig,
    /// Settings for the probes of silent peers; `None` switches the probes off.
    pub keepalive: Option<KeepaliveConfig>,
    /// Settings for the probes of silent peers if there are other rails. These probes must detect a
    /// silent peer before users notice a delay.
    pub rail_keepalive: KeepaliveConfig,
    /// Maximum delay after a failed attempt if there are several rails. The delay is short, because
    /// a failed rail may work again. In addition, the RPC client waits three seconds after most
    /// failures.
    pub rail_back_off: Millis,
    /// Idle time after which the connection is closed; `None` means never.
    pub idle_timeout: Option<Millis>,
    /// Which protocol versions may be used.
    pub version: VersionPolicy,
}

impl Config {
    /// Returns how to probe a connection that uses this rail.
    pub(super) fn keepalive_of(&self, facts: RailFacts) -> Option<KeepaliveConfig> {
        let of_rails = facts.watched.then_some(self.rail_keepalive);
        self.keepalive.map(|usual| of_rails.unwrap_or(usual))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Millis::from_secs(60),
            resolve_timeout: Millis::from_secs(5),
            address_timeout: Millis::new(500),
            first_request_timeout: FIRST_REQUEST_TIMEOUT,
            version_timeout: Millis::from_secs(5),
            backoff: BackoffConfig::default(),
            keepalive: Some(KeepaliveConfig::default()),
            rail_keepalive: KeepaliveConfig {
                busy_after: Millis::from_secs(2),
                idle_after: Millis::from_secs(10),
                timeout: Millis::from_secs(4),
            },
            rail_back_off: Millis::from_secs(3),
            idle_timeout: Some(Millis::from_secs(300)),
            version: VersionPolicy::V1Only,
        }
    }
}

/// The driver's knowledge of the rail that an attempt uses. The default is for a transport without
/// rails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailFacts {
    /// Whether the back-off is skipped, because another rail failed and this rail is not known to
    /// fail.
    pub at_once: bool,
    /// Whether there are other rails.
    pub watched: bool,
}

/// The shortest time limit of a whole attempt that a caller can set.
pub const MIN_CONNECT_TIMEOUT: Millis = Millis::new(100);

/// The shortest time limit of an attempt that [`Conn::limit_timeouts`](super::Conn::limit_timeouts)
/// can set. The RPC client may request a limit of zero, because it computes the limit from the
/// lease time that the server reports.
pub const LEAST_LIMIT: Millis = Millis::from_secs(5);
