// SPDX-License-Identifier: GPL-2.0

//! What the administrator and the driver decide about connections.

use super::{
    backoff::BackoffConfig,
    keepalive::KeepaliveConfig, //
};
use crate::{
    time::Millis,
    v2::negotiate::VersionPolicy, //
};

/// Settings of the administrator and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bound of one whole attempt; the caller may ask for less.
    pub connect_timeout: Millis,
    /// Bound of the address step and of the route step.
    pub resolve_timeout: Millis,
    /// Bound of one question for an address. Afterwards the address is asked for again, because the
    /// connection manager may miss an answer that comes before it waits: then it notices the answer
    /// only at the end of the question.
    pub address_timeout: Millis,
    /// Bound of the wait for the answer to the connection request of a first mount. The mount
    /// command waits for it, and the address may be mistyped. The connection manager repeats the
    /// request after about five seconds without an answer. So there is time for three requests, of
    /// which two may be lost.
    pub first_request_timeout: Millis,
    /// Bound of the wait for the answer to the version probe.
    pub version_timeout: Millis,
    /// Delays between attempts.
    pub backoff: BackoffConfig,
    /// Probing of silent peers; `None` switches it off.
    pub keepalive: Option<KeepaliveConfig>,
    /// The same while there are other rails: silence must be noticed before users do.
    pub rail_keepalive: KeepaliveConfig,
    /// The longest delay between the first failed attempts in a row while there are several rails,
    /// as one of them may work again. The RPC client itself waits three seconds after most
    /// failures.
    pub rail_back_off: Millis,
    /// Idle time after which the connection is closed; `None` keeps it.
    pub idle_timeout: Option<Millis>,
    /// Which protocol versions may be used.
    pub version: VersionPolicy,
}

impl Config {
    /// How to probe a connection that uses this rail.
    pub(super) fn keepalive_of(&self, facts: RailFacts) -> Option<KeepaliveConfig> {
        let of_rails = facts.watched.then_some(self.rail_keepalive);
        self.keepalive.map(|usual| of_rails.unwrap_or(usual))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connect_timeout: Millis::from_secs(30),
            resolve_timeout: Millis::from_secs(5),
            address_timeout: Millis::new(500),
            first_request_timeout: Millis::from_secs(15),
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

/// The driver's knowledge of the rail that an attempt takes; the default without rails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RailFacts {
    /// No delay is due: another rail failed, and this one is not known to fail.
    pub at_once: bool,
    /// There are other rails.
    pub watched: bool,
}

/// The shortest total bound of an attempt that a caller can ask for.
pub const MIN_CONNECT_TIMEOUT: Millis = Millis::new(100);

/// The shortest bound of an attempt that [`Conn::limit_timeouts`](super::Conn::limit_timeouts) can
/// set. It comes from the server's lease time, which may be zero.
pub const LEAST_LIMIT: Millis = Millis::from_secs(5);
