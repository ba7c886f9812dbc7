// SPDX-License-Identifier: GPL-2.0

//! Names of devices ([`Name`]), the local addresses of devices ([`Local`]), and rails ([`Rail`]).

use core::net::IpAddr;

/// Maximum length of an RDMA device's name in bytes: `IB_DEVICE_NAME_MAX` without the final zero.
const LONGEST: usize = 63;

/// The name of an RDMA device, such as `mlx5_0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; LONGEST],
    len: u8,
}

impl Name {
    /// Creates a name. Returns `None` if the text is empty or longer than 63 bytes.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; LONGEST];
        let len = u8::try_from(text.len()).ok().filter(|len| *len > 0)?;
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self { bytes, len })
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        // The bytes came from a `str`, so they are valid UTF-8.
        self.bytes
            .get(..usize::from(self.len))
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }
}

/// A local address from which RDMA connections can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The local IP address.
    pub addr: IpAddr,
    /// The length of the network prefix in bits.
    pub prefix_len: u8,
    /// The device that has the address.
    pub device: Name,
    /// The number of the device's port. The first port has number 1.
    pub port: u32,
}

/// A rail: the network path from a local address to an address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// The address of this host at which the rail begins.
    pub local: IpAddr,
    /// The server's address at which the rail ends.
    pub server: IpAddr,
    /// The device that has the local address.
    pub device: Name,
    /// The number of the port of `device`. The first port has number 1.
    pub port: u32,
}

impl Rail {
    /// Returns true if both rails begin at the same port of the same device.
    pub(super) fn shares_port(&self, other: &Self) -> bool {
        (self.device, self.port) == (other.device, other.port)
    }
}
