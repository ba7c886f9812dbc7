// SPDX-License-Identifier: GPL-2.0

//! A decoder of extensions. The core does not decode extensions, because the socket layer reads
//! them. The fuzz target `rds` also uses this decoder.

use xprtrdma_rds_proto::extension::Extension;

/// An extension that was found in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// An extension that the core can add.
    Own(Extension),
    /// The version of the protocol. RDMA connections negotiate the version in private data instead.
    Version(u32),
    /// The number of paths that the sender has. RDMA connections have one path.
    Paths(u16),
    /// A number that changes when the sender restarts; not used by RDMA connections.
    Generation(u32),
    /// An extension that RDMA connections do not use.
    PortIndex(u8),
}

/// Returns the extensions in these bytes, up to the first extension that is unknown or truncated.
pub(crate) fn extensions(mut bytes: &[u8]) -> Vec<Found> {
    let mut all = Vec::new();
    while let Some((found, rest)) = first(bytes) {
        all.push(found);
        bytes = rest;
    }
    all
}

/// Decodes the first extension. Also returns the bytes after it.
fn first(bytes: &[u8]) -> Option<(Found, &[u8])> {
    let number = |bytes: [u8; 4]| u32::from_be_bytes(bytes);
    Some(match *bytes {
        [1, a, b, c, d, ref rest @ ..] => (Found::Version(number([a, b, c, d])), rest),
        [2, a, b, c, d, ref rest @ ..] => {
            let key = number([a, b, c, d]);
            (Found::Own(Extension::Rdma { key }), rest)
        }
        [3, a, b, c, d, e, f, g, h, ref rest @ ..] => {
            let (key, offset) = (number([a, b, c, d]), number([e, f, g, h]));
            (Found::Own(Extension::RdmaDest { key, offset }), rest)
        }
        [4, a, b, c, d, direction, _, _, _, ref rest @ ..] => {
            let (bytes, written) = (number([a, b, c, d]), direction == 1);
            (Found::Own(Extension::RdmaBytes { bytes, written }), rest)
        }
        [5, a, b, ref rest @ ..] => (Found::Paths(u16::from_be_bytes([a, b])), rest),
        [6, a, b, c, d, ref rest @ ..] => (Found::Generation(number([a, b, c, d])), rest),
        [8, index, ref rest @ ..] => (Found::PortIndex(index), rest),
        _ => return None,
    })
}
