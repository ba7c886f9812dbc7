// SPDX-License-Identifier: GPL-2.0

//! The header of an option of version 2.

use crate::wire::xdr::{
    round_up,
    Malformed,
    Reader, //
};

/// The header of a version 2 option. The transport does not interpret the option itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionHeader {
    /// The direction word as received. It is not checked.
    pub(crate) direction: u32,
    /// Whether the message contains all bytes of the option's value, including the XDR padding.
    pub(crate) complete: bool,
}

impl OptionHeader {
    /// Decodes the direction, the type and the length of an option. Also determines whether the
    /// option's value and its XDR padding follow completely.
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
