// SPDX-License-Identifier: GPL-2.0

//! Names of devices ([`Name`]), and the addresses that they have ([`Local`]).

use core::net::IpAddr;

/// Bytes of the longest name of an RDMA device: `IB_DEVICE_NAME_MAX` without the zero behind it.
const LONGEST: usize = 63;

/// The name of an RDMA device, such as `mlx5_0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Name {
    /// The name with these characters; `None` if there are none, or more than 63 bytes.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        let len = u8::try_from(text.len()).ok().filter(|len| *len > 0)?;
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self { bytes, len })
    }

    /// The characters.
    pub fn as_str(&self) -> &str {
        // They came from a `str`.
        self.bytes
            .get(..usize::from(self.len))
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }
}

/// A local address from which RDMA connections can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The address.
    pub addr: IpAddr,
    /// How many bits of it name its network.
    pub prefix_len: u8,
    /// The device that it is on.
    pub device: Name,
    /// The port of the device, from 1.
    pub port: u32,
}

/// A path to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// Our address.
    pub local: IpAddr,
    /// The server's.
    pub server: IpAddr,
    /// The device that has our address.
    pub device: Name,
    /// The port of that device, from 1.
    pub port: u32,
}
