// SPDX-License-Identifier: GPL-2.0

//! A message that is to be sent ([`Encoded`]).

use kernel::prelude::*;
use xprtrdma_bindings as bindings;

/// A reply of the RPC server, lent to [`Service::reply`](crate::service::Service::reply).
pub type Reply<'a> = Encoded<'a>;

/// An RPC message that is to be sent.
///
/// # Invariants
///
/// The structure describes a complete message, whose memory stays as it is for `'a`.
pub struct Encoded<'a>(&'a bindings::xdr_buf);

impl<'a> Encoded<'a> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn from_raw(raw: &'a bindings::xdr_buf) -> Self {
        // INVARIANT: By this function's contract.
        Self(raw)
    }

    /// Returns the bytes of the message.
    pub fn len(&self) -> u32 {
        let ends = self.0.head[0].iov_len.wrapping_add(self.0.tail[0].iov_len);
        // CAST: A message in memory, of a few megabytes.
        (ends as u32).wrapping_add(self.0.page_len)
    }

    /// Returns whether the message has no bytes, which is never so.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from the byte `from` on. `EINVAL`: the message does not have them. Does not
    /// sleep.
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        let end = from.checked_add(len).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: The message is complete by the type invariant and has these bytes; `to` has room
        // for them.
        let err =
            unsafe { bindings::read_bytes_from_xdr_buf(self.0, from, to.as_mut_ptr().cast(), len) };
        match err {
            0 => Ok(()),
            _ => Err(EINVAL),
        }
    }
}
