// SPDX-License-Identifier: GPL-2.0

//! A message that was received from a peer ([`Incoming`]).

use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    },
    types::Opaque, //
};
use xprtrdma_bindings as bindings;

/// Bytes that a message takes of the bound at a time.
const UNIT: usize = 4096;

/// Units of all messages that exist.
static KEPT: Atomic<usize> = Atomic::new(0);

/// Units of one message; dropping it gives them back.
///
/// Whether a program reads is the program's affair, and whether a peer sends to a port that is full
/// is the peer's, so nothing else bounds what waits for programs.
struct Units(usize);

impl Units {
    /// Takes the units of `len` bytes. `ENOBUFS`: there would be more than programs and peers may
    /// have.
    fn take(len: usize) -> Result<Self> {
        let units = len.div_ceil(UNIT).max(1);
        let taken = Self(units);
        // ORDERING: A number, which nothing else depends on.
        let before = KEPT.fetch_add(units, Relaxed);
        // SAFETY: No requirements.
        let most = unsafe { bindings::rdsrdma_max_recv_allocation() };
        if before.saturating_add(units) > most {
            return Err(ENOBUFS);
        }
        Ok(taken)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        // ORDERING: As in `take`.
        KEPT.fetch_sub(self.0, Relaxed);
    }
}

/// A message that arrives, or that waits for the program that receives it.
///
/// # Invariants
///
/// `raw` is the first member.
#[repr(C)]
pub struct Incoming {
    pub(crate) raw: Opaque<bindings::rds_incoming>,
    bytes: KVVec<u8>,
    _units: Units,
}

// SAFETY: Owned; RDS has no thread affinity for such objects.
unsafe impl Send for Incoming {}
// SAFETY: `&Incoming` reads `bytes` only.
unsafe impl Sync for Incoming {}

impl Incoming {
    /// Makes a message without bytes that has room for `len`. May sleep.
    ///
    /// `ENOBUFS`: all messages together would have more than the sysctl `max_recv_allocation` says.
    pub fn new(len: usize) -> Result<KBox<Self>> {
        let message = Self {
            _units: Units::take(len)?,
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
