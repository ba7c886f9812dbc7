// SPDX-License-Identifier: GPL-2.0

//! The versions that a server speaks.

use crate::wire::header::Version;

/// The versions that a server speaks on a connection, as long as that lasts.
///
/// Version two is an expired draft, so the administrator allows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Spoken {
    /// Version one alone.
    #[default]
    One,
    /// Version one and version two, each Call in its own.
    Both,
}

impl Spoken {
    /// Returns the version with this number on the wire, if it is spoken.
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

    /// Returns the lowest and the highest number, which an error names.
    pub(crate) const fn range(self) -> [u32; 2] {
        let highest = match self {
            Self::One => Version::V1,
            Self::Both => Version::V2,
        };
        [Version::V1.number(), highest.number()]
    }
}
