// SPDX-License-Identifier: GPL-2.0

//! The header of an option of version 2.

use crate::wire::xdr::{
    round_up,
    Malformed,
    Reader, //
};

/// The header of an option, behind the fixed words. What the option means is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionHeader {
    /// The direction word as received; not checked.
    pub(crate) direction: u32,
    /// All of the option's own bytes are there.
    pub(crate) complete: bool,
}

impl OptionHeader {
    /// Takes the direction, the type and the length, and looks whether that much follows.
    pub(crate) fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let direction = input.u32()?;
        let _type = input.u32()?;
        let len = input.u32()?;
        let complete = match round_up(len).map(usize::try_from) {
            Some(Ok(padded)) => padded <= input.rest().len(),
            _ => false,
        };
        Ok(Self {
            direction,
            complete,
        })
    }
}
