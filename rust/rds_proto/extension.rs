// SPDX-License-Identifier: GPL-2.0

//! Extensions of a header. Each has a type, which determines its length (RDS-58).

use crate::{
    bytes::{
        Fields,
        Writer, //
    },
    header::EXTENSION_BYTES, //
};

const END: u8 = 0;
const VERSION: u8 = 1;
const RDMA: u8 = 2;
const RDMA_DEST: u8 = 3;
const RDMA_BYTES: u8 = 4;
const PATHS: u8 = 5;
const GENERATION: u8 = 6;
const PORT_INDEX: u8 = 8;

/// Value of the direction field in [`Extension::RdmaBytes`].
const WRITTEN: u8 = 1;
const READ: u8 = 2;

/// An extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// The version of the protocol. RDMA connections negotiate the version in private data instead.
    Version(u32),
    /// The key of a region that the sender has used. A message with this extension is an RDMA ACK
    /// (RDS-06).
    Rdma {
        /// The key.
        key: u32,
    },
    /// A handle (RDS-02, RDS-09, RDS-10).
    RdmaDest {
        /// The key of the region.
        key: u32,
        /// The offset in the region.
        offset: u32,
    },
    /// The number of bytes that an operation has moved.
    RdmaBytes {
        /// The number of bytes.
        bytes: u32,
        /// Whether the bytes were written to the memory of the message's receiver. If not, they
        /// were read from it.
        written: bool,
    },
    /// The number of paths that the peer has. RDMA connections have one.
    Paths(u16),
    /// A number that changes when the peer restarts; not used by RDMA connections.
    Generation(u32),
    /// An extension that RDMA connections do not use.
    PortIndex(u8),
}

/// Returns the extensions in these bytes, up to the first extension that is unknown or truncated.
pub fn extensions(bytes: &[u8; EXTENSION_BYTES]) -> impl Iterator<Item = Extension> + '_ {
    let mut fields = Fields(bytes);
    core::iter::from_fn(move || next(&mut fields))
}

fn next(fields: &mut Fields<'_>) -> Option<Extension> {
    Some(match fields.u8()? {
        VERSION => Extension::Version(fields.u32()?),
        RDMA => Extension::Rdma { key: fields.u32()? },
        RDMA_DEST => Extension::RdmaDest {
            key: fields.u32()?,
            offset: fields.u32()?,
        },
        RDMA_BYTES => {
            let bytes = fields.u32()?;
            let [direction, ..] = fields.take::<4>()?;
            Extension::RdmaBytes {
                bytes,
                written: direction == WRITTEN,
            }
        }
        PATHS => Extension::Paths(fields.u16()?),
        GENERATION => Extension::Generation(fields.u32()?),
        PORT_INDEX => Extension::PortIndex(fields.u8()?),
        _ => return None,
    })
}

/// Appends an extension. Returns false, and changes nothing, if there is no space.
#[must_use]
pub fn add(bytes: &mut [u8; EXTENSION_BYTES], extension: Extension) -> bool {
    let mut fields = Fields(bytes);
    let mut rest = EXTENSION_BYTES;
    while next(&mut fields).is_some() {
        rest = fields.0.len();
    }
    let (kind, body, len) = encoded(extension);
    let Some(at) = EXTENSION_BYTES.checked_sub(rest) else {
        return false;
    };
    let Some(room) = bytes.get_mut(at..) else {
        return false;
    };
    // An extension of unknown type follows.
    if room.first().is_some_and(|&kind| kind != END) || room.len() <= len {
        return false;
    }
    let mut writer = Writer(room);
    writer.put(&[kind]);
    writer.put(body.get(..len).unwrap_or(&[]));
    true
}

/// Returns the type of an extension, its bytes, and the number of bytes.
fn encoded(extension: Extension) -> (u8, [u8; 8], usize) {
    let mut body = [0; 8];
    let mut writer = Writer(&mut body);
    let (kind, len) = match extension {
        Extension::Version(version) => {
            writer.put(&version.to_be_bytes());
            (VERSION, 4)
        }
        Extension::Rdma { key } => {
            writer.put(&key.to_be_bytes());
            (RDMA, 4)
        }
        Extension::RdmaDest { key, offset } => {
            writer.put(&key.to_be_bytes());
            writer.put(&offset.to_be_bytes());
            (RDMA_DEST, 8)
        }
        Extension::RdmaBytes { bytes, written } => {
            writer.put(&bytes.to_be_bytes());
            writer.put(&[if written { WRITTEN } else { READ }]);
            (RDMA_BYTES, 8)
        }
        Extension::Paths(paths) => {
            writer.put(&paths.to_be_bytes());
            (PATHS, 2)
        }
        Extension::Generation(number) => {
            writer.put(&number.to_be_bytes());
            (GENERATION, 4)
        }
        Extension::PortIndex(index) => {
            writer.put(&[index]);
            (PORT_INDEX, 1)
        }
    };
    (kind, body, len)
}
