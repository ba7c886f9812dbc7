// SPDX-License-Identifier: GPL-2.0

//! The private data of connection requests, and of the answers that accept connection requests.

use crate::bytes::{
    Fields,
    Writer, //
};
use core::net::IpAddr;

/// The port of the connection manager for IPv4.
pub const PORT_V4: u16 = 18634;
/// The port of the connection manager for IPv6.
pub const PORT_V6: u16 = 16385;
/// Maximum length of private data, in bytes. Private data with IPv6 addresses has this length.
pub const LONGEST: usize = 56;
/// Minimum length of private data, in bytes. Private data with IPv4 addresses has this length.
const SHORTEST: usize = 32;

/// A version of the RDS protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The major version number.
    pub major: u8,
    /// The minor version number.
    pub minor: u8,
}

impl Version {
    /// The version that every known peer supports.
    pub const V3_1: Self = Self { major: 3, minor: 1 };

    /// Returns the major and the minor version number as one number, in the format of the socket
    /// layer: `major << 8 | minor`.
    #[must_use]
    pub const fn raw(self) -> u32 {
        // CAST: A `u8` fits into a `u32`.
        ((self.major as u32) << 8) | self.minor as u32
    }
}

/// The private data that one end of a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The address of the end that sends the private data.
    pub from: IpAddr,
    /// The address of the end that receives the private data.
    pub to: IpAddr,
    /// The version of the protocol. In a connection request, this field is the highest offered
    /// version.
    pub version: Version,
    /// The offered minor versions, with one bit for each minor version.
    pub minors: u16,
    /// The type of service.
    pub tos: u8,
    /// The highest sequence number that the sender has received. This end always sends zero, and
    /// ignores the peer's number. The number is not needed: after a reconnection each end sends
    /// unacknowledged messages again, except messages with an operation (RDS-43). The socket layer
    /// of the receiver drops messages that it has already received.
    pub ack: u64,
    /// Number of posted Receives; zero if the sender does not use credits.
    pub credit: u32,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The private data is too short, or does not contain a version.
    Nothing,
    /// The two ends have no common version.
    Version,
    /// The addresses in the private data differ from the addresses of the connection. Without this
    /// check a host could connect under the address of another host.
    Addresses,
    /// The peer serves no RDMA Reads. A Read of this end would wait for ever.
    Reads,
}

impl Hello {
    /// Returns the private data that this end sends.
    #[must_use]
    pub fn new(from: IpAddr, to: IpAddr, tos: u8, credit: u32) -> Self {
        Self {
            from,
            to,
            version: Version::V3_1,
            minors: 0b11,
            tos,
            ack: 0,
            credit,
        }
    }

    /// Encodes the private data. Returns a buffer, and the number of bytes used in it.
    #[must_use]
    pub fn encode(&self) -> ([u8; LONGEST], usize) {
        let mut data = [0; LONGEST];
        let mut writer = Writer(&mut data);
        let len = match (self.from, self.to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                writer.put(&from.octets());
                writer.put(&to.octets());
                SHORTEST
            }
            (from, to) => {
                writer.put(&v6(from));
                writer.put(&v6(to));
                LONGEST
            }
        };
        writer.put(&[self.version.major, self.version.minor]);
        writer.put(&self.minors.to_be_bytes());
        writer.put(&[self.tos, 0, 0, 0]);
        writer.put(&self.ack.to_be_bytes());
        writer.put(&self.credit.to_be_bytes());
        (data, len)
    }

    /// Decodes private data. If `v6` is true, the data contains IPv6 addresses. Zeroes may follow
    /// the last field. Returns `None` if the data is too short.
    #[must_use]
    pub fn decode(data: &[u8], v6: bool) -> Option<Self> {
        let mut fields = Fields(data);
        let (from, to) = if v6 {
            (
                IpAddr::from(fields.take::<16>()?),
                IpAddr::from(fields.take::<16>()?),
            )
        } else {
            (
                IpAddr::from(fields.take::<4>()?),
                IpAddr::from(fields.take::<4>()?),
            )
        };
        let version = Version {
            major: fields.u8()?,
            minor: fields.u8()?,
        };
        let minors = fields.u16()?;
        let [tos, ..] = fields.take::<4>()?;
        Some(Self {
            from,
            to,
            version,
            minors,
            tos,
            ack: fields.u64()?,
            credit: fields.u32()?,
        })
    }
}

fn v6(addr: IpAddr) -> [u8; 16] {
    match addr {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Decides whether to accept a connection request. `own` and `peer` are the addresses of the
/// connection at this end and at the other end.
///
/// # Errors
///
/// Returns a [`Refusal`] if the request must not be accepted.
pub fn accept(data: &[u8], own: IpAddr, peer: IpAddr) -> Result<Hello, Refusal> {
    let hello = Hello::decode(data, own.is_ipv6()).ok_or(Refusal::Nothing)?;
    if hello.version.major == 0 {
        return Err(Refusal::Nothing);
    }
    if (hello.from, hello.to) != (peer, own) {
        return Err(Refusal::Addresses);
    }
    if hello.version.major != Version::V3_1.major || hello.minors & 0b10 == 0 {
        return Err(Refusal::Version);
    }
    Ok(hello)
}

/// How many connections peers have requested from this host.
///
/// The socket layer keeps a connection until the module is unloaded, even if the peer used the
/// connection only for a short time. So the number of connections that peers may request is
/// limited. Connections that were created for a program on this host are not counted, because a
/// program could otherwise use up the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Whether the requested connection already exists.
    pub known: bool,
    /// The number of connections that the peer has requested from its address.
    pub of_peer: usize,
    /// The number of connections that all peers have requested.
    pub in_all: usize,
}

impl Crowd {
    /// Maximum number of connections with one address of a peer: one for each type of service and
    /// each address of this host.
    pub const OF_PEER: usize = 64;
    /// Maximum number of connections with all peers.
    pub const IN_ALL: usize = 4096;

    /// Returns whether a connection may be created when a peer requests it. A connection for a
    /// program on this host may always be created.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.known || (self.of_peer < Self::OF_PEER && self.in_all < Self::IN_ALL)
    }
}

/// The limits on simultaneous RDMA Reads at one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Maximum number of Reads of this end that are in flight.
    pub own: u8,
    /// Maximum number of Reads of the other end that this end serves at a time.
    pub served: u8,
}

impl Reads {
    /// Returns the limits for the answer that accepts a connection request. `self` contains the
    /// limits of this end, and `asked` contains the limits in the peer's request.
    ///
    /// For each direction, the answer contains the lower limit of the two ends. But `own` is at
    /// least one, because on a queue pair with a limit of zero a Read would wait for ever. With a
    /// limit of one, a Read ends the connection if the peer serves no Reads.
    #[must_use]
    pub fn answer(self, asked: Self) -> Self {
        Self {
            own: self.own.min(asked.served).max(1),
            served: self.served.min(asked.own),
        }
    }
}

/// Checks the peer's answer to a connection request of this host. `data` is the private data of the
/// answer. `reads` is the maximum number of Reads of this end that are in flight on the connection.
///
/// # Errors
///
/// Returns a [`Refusal`] if the connection must not be used. The addresses in the data are not
/// checked, because the connection manager has connected this end to the peer that this end has
/// chosen.
pub fn accepted(data: &[u8], v6: bool, reads: u8) -> Result<Hello, Refusal> {
    let hello = Hello::decode(data, v6).ok_or(Refusal::Nothing)?;
    match hello.version {
        // The connection manager has already given the queue pair the limit of the answer, so the
        // limit cannot be raised to one as in `Reads::answer`.
        Version::V3_1 if reads == 0 => Err(Refusal::Reads),
        Version::V3_1 => Ok(hello),
        Version { major: 0, .. } => Err(Refusal::Nothing),
        _ => Err(Refusal::Version),
    }
}
