// SPDX-License-Identifier: GPL-2.0

//! The protocol versions that a server accepts.

use crate::wire::header::Version;

/// The protocol versions that a server accepts on a connection, for the lifetime of the connection.
///
/// Version two is an expired draft, so it is accepted only if the administrator allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Spoken {
    /// The server accepts only version one.
    #[default]
    One,
    /// The server accepts both versions. The answer to a Call has the version of the Call.
    Both,
}

impl Spoken {
    /// Returns the version with this number on the wire, if the server accepts that version.
    #[inline]
    pub const fn find(self, number: u32) -> Option<Version> {
        if number == Version::V1.number() {
            return Some(Version::V1);
        }
        match self {
            Self::Both if number == Version::V2.number() => Some(Version::V2),
            Self::One | Self::Both => None,
        }
    }

    /// Returns the lowest and the highest accepted version number, which an ERR_VERS message
    /// reports.
    pub(crate) const fn range(self) -> [u32; 2] {
        let highest = match self {
            Self::One => Version::V1,
            Self::Both => Version::V2,
        };
        [Version::V1.number(), highest.number()]
    }
}
