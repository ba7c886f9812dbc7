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
use xprtrdma_base::{
    compat,
    holders::Holders, //
};
use xprtrdma_bindings as bindings;

/// Number of bytes in a unit. The memory of received messages is counted in units.
const UNIT: usize = 4096;

/// Size of the memory that all received messages use, in units of [`UNIT`] bytes.
static KEPT: Atomic<usize> = Atomic::new(0);

/// Counts the messages that this module has delivered to RDS and that RDS has not freed.
///
/// RDS finds the socket for a message by address and port only. So the socket may belong to another
/// transport. Such a socket does not keep this module loaded, so unloading must wait until the
/// count is zero.
pub(crate) static DELIVERED: Holders = Holders::new();

/// The units that one message uses. Dropping this object subtracts them from the total.
///
/// The sysctl `max_recv_allocation` is the only limit on messages that wait until a program reads
/// them. The limit is needed, because programs may read slowly, and a peer may send to a congested
/// port.
struct Units(usize);

impl Units {
    /// Adds a message of `len` bytes to the memory in use, which is counted in units. Returns
    /// `ENOBUFS` if the memory in use would exceed the sysctl `max_recv_allocation`.
    #[inline]
    fn take(len: usize) -> Result<Self> {
        let units = len.div_ceil(UNIT).max(1);
        let taken = Self(units);
        // ORDERING: Relaxed, because no other data depend on the total.
        let before = KEPT.fetch_add(units, Relaxed);
        // SAFETY: The function has no requirements.
        let most = unsafe { bindings::rdsrdma_max_recv_allocation() };
        if before.saturating_add(units) > most {
            return Err(compat::no_buffers());
        }
        Ok(taken)
    }
}

impl Drop for Units {
    #[inline]
    fn drop(&mut self) {
        // ORDERING: Relaxed, because no other data depend on the total.
        KEPT.fetch_sub(self.0, Relaxed);
    }
}

/// A message that is being received, or that waits until a program reads it.
///
/// # Invariants
///
/// `raw` is the first member of the object.
#[repr(C)]
pub struct Incoming {
    pub(crate) raw: Opaque<bindings::rds_incoming>,
    bytes: KVVec<u8>,
    _units: Units,
}

// SAFETY: The object owns its members. RDS allows any thread to use such an object.
unsafe impl Send for Incoming {}
// SAFETY: The methods of a `&Incoming` only read `bytes`.
unsafe impl Sync for Incoming {}

impl Incoming {
    /// Creates a message that begins with the bytes `first`, and has capacity for `len` bytes. May
    /// sleep.
    ///
    /// Returns `ENOBUFS` if all received messages together would exceed the sysctl
    /// `max_recv_allocation`.
    #[inline]
    pub fn new(len: usize, first: &[u8]) -> Result<KBox<Self>> {
        let units = Units::take(len)?;
        let mut bytes = KVVec::with_capacity(len, GFP_KERNEL)?;
        bytes.extend_from_slice(first, GFP_KERNEL)?;
        // The object is initialised in the memory in which it stays, because it is too large to be
        // moved.
        let message = init!(Self {
            raw <- pin_init::init_zeroed(),
            bytes,
            _units: units,
        });
        KBox::init(message, GFP_KERNEL)
    }

    /// Appends bytes to the message. May sleep.
    pub fn append(&mut self, bytes: &[u8]) -> Result {
        self.bytes.extend_from_slice(bytes, GFP_KERNEL)?;
        Ok(())
    }

    /// Returns the bytes of the message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
