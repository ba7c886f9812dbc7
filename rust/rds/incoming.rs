// SPDX-License-Identifier: GPL-2.0

//! A message that was received ([`Incoming`]).

use kernel::{
    prelude::*,
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

/// A message that arrives, or that waits for the program that receives it.
///
/// # Invariants
///
/// `raw` is the first member.
#[repr(C)]
pub struct Incoming {
    pub(crate) raw: Opaque<bindings::rds_incoming>,
    bytes: KVVec<u8>,
}

// SAFETY: Owned; RDS has no thread affinity for such objects.
unsafe impl Send for Incoming {}
// SAFETY: `&Incoming` reads `bytes` only.
unsafe impl Sync for Incoming {}

impl Incoming {
    /// Makes a message without bytes that has room for `len`. May sleep.
    pub fn new(len: usize) -> Result<KBox<Self>> {
        let message = Self {
            raw: Opaque::new(bindings::rds_incoming::default()),
            bytes: KVVec::with_capacity(len, GFP_KERNEL)?,
        };
        Ok(KBox::new(message, GFP_KERNEL)?)
    }

    /// Adds bytes behind those that are there. May sleep.
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.bytes.extend_from_slice(bytes, GFP_KERNEL)?;
        Ok(())
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
