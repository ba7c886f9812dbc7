// SPDX-License-Identifier: GPL-2.0

//! A message that is to be sent ([`Message`]), and a reference to one ([`Held`]).

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::prelude::*;
use xprtrdma_base::lend::{
    Lender,
    Loan,
    Piece, //
};
use xprtrdma_bindings as bindings;

/// Bytes of the header in front of each fragment.
pub const HEADER_BYTES: usize = 48;

/// The RDMA operation of a message.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The key of the peer's region.
    pub key: u32,
    /// Where the peer's bytes are.
    pub address: u64,
    /// How many.
    pub bytes: u32,
    /// Number of pieces that the bytes at this end consist of.
    pub pieces: u32,
    /// The bytes are written to the peer's memory, not read from it.
    pub writes: bool,
    /// The message must not overtake the operation.
    pub fence: bool,
    /// The program is told when the operation has completed.
    pub notify: bool,
    /// The program is told if the operation fails.
    pub failures: bool,
    /// No message follows if it has no payload.
    pub silent: bool,
}

/// What a message asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The peer must acknowledge the message at once.
    pub ack_required: bool,
    /// The message was sent before.
    pub retransmitted: bool,
    /// The handle that the message carries, or zero.
    pub cookie: u64,
    /// The RDMA operation of the message.
    pub operation: Option<Operation>,
}

/// A message that RDS sends, for the duration of an operation of the transport.
///
/// # Invariants
///
/// `raw` is valid for all of `'a`, during which RDS keeps it.
pub struct Message<'a> {
    raw: NonNull<bindings::rds_message>,
    _rds: PhantomData<&'a ()>,
}

impl Message<'_> {
    /// # Safety
    ///
    /// `raw` is a message that its caller keeps for all of the lifetime.
    pub(crate) unsafe fn from_raw(raw: NonNull<bindings::rds_message>) -> Self {
        // INVARIANT: By this function's contract.
        Self {
            raw,
            _rds: PhantomData,
        }
    }

    /// Returns the header of the message as RDS made it.
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        // SAFETY: Valid by the type invariant. Nothing writes to the header once the message is
        // sent.
        let header = unsafe { &raw const (*self.raw.as_ptr()).m_inc.i_hdr };
        // SAFETY: As above; it has that many bytes and no padding of the compiler's.
        unsafe { header.cast::<[u8; HEADER_BYTES]>().read_unaligned() }
    }

    /// Returns what it asks for.
    pub fn asked(&self) -> Asked {
        let mut facts = bindings::rdsrdma_facts::default();
        // SAFETY: Valid by the type invariant; the callee writes all of `facts`.
        unsafe { bindings::rdsrdma_facts(self.raw.as_ptr(), &mut facts) };
        Asked {
            ack_required: facts.ack_required,
            retransmitted: facts.retransmitted,
            cookie: facts.cookie,
            operation: facts.has_op.then_some(Operation {
                key: facts.remote_key,
                address: facts.remote_addr,
                bytes: facts.op_bytes,
                pieces: facts.op_pieces,
                writes: facts.op_writes,
                fence: facts.op_fence,
                notify: facts.op_notify,
                failures: facts.op_recverr,
                silent: facts.op_silent,
            }),
        }
    }

    /// Copies the payload from `at` on. `EINVAL`: the payload is too short. Does not sleep.
    pub fn copy(&self, at: u32, to: &mut [u8]) -> Result {
        // SAFETY: Valid by the type invariant; `to` may be written.
        let copied = unsafe {
            bindings::rdsrdma_copy_payload(
                self.raw.as_ptr(),
                at as usize,
                to.as_mut_ptr().cast(),
                to.len(),
            )
        };
        if copied == to.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Keeps the message beyond the operation of the transport.
    pub fn hold(&self) -> Held {
        // SAFETY: Valid by the type invariant, so it has a reference that can be added to.
        unsafe { bindings::rds_message_addref(self.raw.as_ptr()) };
        // INVARIANT: The reference is the new value's.
        Held(self.raw)
    }
}

/// A reference to a message, which keeps the memory of its operation. Dropping it may sleep, so it
/// must not be dropped under a spin lock.
///
/// # Invariants
///
/// The value owns a reference.
pub struct Held(NonNull<bindings::rds_message>);

// SAFETY: Messages have no thread affinity.
unsafe impl Send for Held {}
// SAFETY: `&Held` copies from and to memory of the operation, which programs share in any case.
unsafe impl Sync for Held {}

impl Held {
    /// Lends the memory of its operation. A message without an operation lends nothing.
    pub fn lend(&self) -> OperationMemory {
        // SAFETY: Valid by the type invariant, so it has a reference that can be added to.
        unsafe { bindings::rds_message_addref(self.0.as_ptr()) };
        // INVARIANT: The reference is the new value's.
        OperationMemory(Held(self.0))
    }

    /// Returns the operation that the message asks for.
    fn operation(&self) -> Option<Operation> {
        // SAFETY: By the type invariant the message is valid while `self` is borrowed.
        unsafe { Message::from_raw(self.0) }.asked().operation
    }

    /// Copies from the memory of its operation. `EINVAL`: it is shorter. Does not sleep.
    pub fn copy_from_operation(&self, at: usize, to: &mut [u8]) -> Result {
        // SAFETY: Valid by the type invariant, and the pages of the operation are pinned as long as
        // the message is there; `to` may be written.
        let copied = unsafe {
            bindings::rdsrdma_copy_from_op(self.0.as_ptr(), at, to.as_mut_ptr().cast(), to.len())
        };
        if copied == to.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Copies to the memory of its operation. `EINVAL`: it is shorter. Does not sleep.
    pub fn copy_to_operation(&self, at: usize, from: &[u8]) -> Result {
        // SAFETY: As above; `from` is only read.
        let copied = unsafe {
            bindings::rdsrdma_copy_to_op(self.0.as_ptr(), at, from.as_ptr().cast(), from.len())
        };
        if copied == from.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Says that nothing uses the memory of the operation any more: a socket that is closed waits
    /// for that.
    pub fn finished(&self) {
        // SAFETY: Valid by the type invariant.
        unsafe { bindings::rds_message_unmapped(self.0.as_ptr()) };
    }

    /// Tells the program this status of `RDS_RDMA_*`, if it asked to be told of the end.
    pub fn tell(&self, status: i32) {
        // SAFETY: Valid by the type invariant; the callee takes the locks that it needs.
        unsafe { bindings::rds_rdma_send_complete(self.0.as_ptr(), status) };
    }

    /// Makes this status the one that the program is told when RDS drops the message.
    pub fn tell_when_dropped(&self, status: i32) {
        // SAFETY: Valid by the type invariant; the callee takes the lock that it needs.
        unsafe { bindings::rdsrdma_set_failure(self.0.as_ptr(), status) };
    }
}

/// Memory of a program, which an RDMA operation reads or writes. The memory is pinned while the
/// message exists. Dropping the value may sleep.
pub struct OperationMemory(Held);

// SAFETY: RDS keeps the pages of an operation pinned until the last reference to its message is
// given up. The value owns a reference, and is its own lender. No code of this module makes a Rust
// reference to the pages. Each entry of the table describes bytes of one page.
unsafe impl Loan for OperationMemory {
    type Lender = Self;

    fn len(&self) -> usize {
        // CAST: `usize` has 64 bits.
        self.0.operation().map_or(0, |asked| asked.bytes as usize)
    }

    fn pieces(&self, start: usize, mut take: impl FnMut(Piece<'_>) -> bool) {
        if start != 0 {
            return;
        }
        // SAFETY: Valid by the type invariant of `Held`.
        let table = unsafe { bindings::rdsrdma_op_table(self.0 .0.as_ptr()) };
        if table.is_null() {
            return;
        }
        // CAST: As above.
        for index in 0..self.0.operation().map_or(0, |asked| asked.pieces as usize) {
            // SAFETY: The message says how many entries its table has, and neither changes once the
            // message is sent.
            let entry = unsafe { table.add(index) };
            // SAFETY: As above; RDS has filled the entry in.
            let page = unsafe { bindings::rdsrdma_sg_page(entry) };
            // SAFETY: As above. Nothing writes to the entry.
            let (first, len) = unsafe { ((*entry).offset, (*entry).length) };
            let piece = Piece {
                page,
                more: &[],
                first: first as usize,
                len: len as usize,
            };
            if !take(piece) {
                return;
            }
        }
    }

    fn into_lender(self) -> Self {
        self
    }
}

impl Lender for OperationMemory {}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: By the type invariant a reference is given up, once.
        unsafe { bindings::rds_message_put(self.0.as_ptr()) };
    }
}
