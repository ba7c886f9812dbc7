// SPDX-License-Identifier: GPL-2.0

//! A message to be sent ([`Encoded`]).

use kernel::prelude::*;
use xprtrdma_bindings as bindings;

/// A reply of the RPC server, which [`Service::reply`](crate::service::Service::reply) borrows.
pub type Reply<'a> = Encoded<'a>;

/// An RPC message to be sent.
///
/// # Invariants
///
/// The structure describes a complete message, whose memory does not change during `'a`.
pub struct Encoded<'a>(&'a bindings::xdr_buf);

impl<'a> Encoded<'a> {
    /// # Safety
    ///
    /// The type invariant must hold for `'a`.
    pub(crate) unsafe fn from_raw(raw: &'a bindings::xdr_buf) -> Self {
        // INVARIANT: By this function's contract.
        Self(raw)
    }

    /// Returns the number of bytes in the message.
    pub fn len(&self) -> u32 {
        let ends = self.0.head[0].iov_len.wrapping_add(self.0.tail[0].iov_len);
        // CAST: A message in memory has at most a few megabytes.
        (ends as u32).wrapping_add(self.0.page_len)
    }

    /// Returns true if the message is empty, which cannot happen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes of the message, from offset `from` on. Returns `EINVAL` if the message is too
    /// short. Does not sleep.
    pub fn copy(&self, from: u32, to: &mut [u8]) -> Result {
        let len = u32::try_from(to.len())?;
        let end = from.checked_add(len).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the message is complete. It has these bytes, and `to` has
        // space for them.
        let err =
            unsafe { bindings::read_bytes_from_xdr_buf(self.0, from, to.as_mut_ptr().cast(), len) };
        match err {
            0 => Ok(()),
            _ => Err(EINVAL),
        }
    }
}
