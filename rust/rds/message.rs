// SPDX-License-Identifier: GPL-2.0

//! A message to send ([`Message`]), and a counted reference to a message ([`Held`]).

use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings::scatterlist,
    prelude::*, //
};
use xprtrdma_base::lend::{
    Lender,
    Table, //
};
use xprtrdma_bindings::{
    self as bindings,
    // In C, struct rm_rdma_op is declared inside struct rds_message, so bindgen has chosen this
    // long name.
    rds_message__bindgen_ty_1_rm_rdma_op as rm_rdma_op, //
};

/// Length in bytes of the header that precedes each fragment.
pub const HEADER_BYTES: usize = 48;

/// The RDMA operation of a message.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The key of the peer's region.
    pub key: u32,
    /// Offset in the peer's region.
    pub address: u64,
    /// Number of bytes to transfer.
    pub bytes: u32,
    /// Number of pieces of the program's memory.
    pub pieces: u32,
    /// Whether the bytes are written to the peer's memory. If not, the bytes are read from the
    /// peer's memory.
    pub writes: bool,
    /// Whether the message must be sent only after the operation has completed.
    pub fence: bool,
    /// Whether the program receives a report of success and of failure.
    pub notify: bool,
    /// Whether the program receives a report of failure.
    pub failures: bool,
    /// If true, and the message has no payload, only its RDMA operation is executed, and nothing is
    /// sent to the peer.
    pub silent: bool,
}

/// The properties of a message that the transport needs to send it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whether the peer must acknowledge the message immediately.
    pub ack_required: bool,
    /// Whether the message was sent before.
    pub retransmitted: bool,
    /// The handle that the message carries, or zero.
    pub cookie: u64,
    /// The RDMA operation of the message.
    pub operation: Option<Operation>,
}

/// A message that RDS passes to an operation of the transport.
///
/// # Invariants
///
/// `raw` is valid for all of `'a`, because RDS holds a reference.
pub struct Message<'a> {
    raw: NonNull<bindings::rds_message>,
    _rds: PhantomData<&'a ()>,
}

impl Message<'_> {
    /// # Safety
    ///
    /// `raw` is valid, and the caller holds a reference to it for the whole lifetime.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<bindings::rds_message>) -> Self {
        // INVARIANT: By this function's contract the message is valid.
        Self {
            raw,
            _rds: PhantomData,
        }
    }

    /// Returns the header of the message, as RDS made it.
    #[inline]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        // SAFETY: By the type invariant the pointer is valid. No code writes to the header after
        // the first attempt to send the message.
        let header = unsafe { &raw const (*self.raw.as_ptr()).m_inc.i_hdr };
        // SAFETY: The header is valid, has `HEADER_BYTES` bytes, and contains no padding.
        unsafe { header.cast::<[u8; HEADER_BYTES]>().read_unaligned() }
    }

    /// Returns the length of the payload in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: By the type invariant the pointer is valid. Nothing writes to the length after
        // the message was created.
        u32::from_be(unsafe { (*self.raw.as_ptr()).m_inc.i_hdr.h_len })
    }

    /// Returns the properties of the message.
    #[inline]
    pub fn asked(&self) -> Asked {
        let raw = self.raw.as_ptr();
        // SAFETY: By the type invariant the pointer is valid. The field is one word, which is read
        // with a single access, because other threads may change its bits at the same time.
        let flags = unsafe { (&raw const (*raw).m_flags).read_volatile() };
        Asked {
            ack_required: flags & (1 << bindings::RDS_MSG_ACK_REQUIRED) != 0,
            retransmitted: flags & (1 << bindings::RDS_MSG_RETRANSMITTED) != 0,
            // SAFETY: By the type invariant the pointer is valid. Nothing writes to the field after
            // the first attempt to send the message.
            cookie: unsafe { (*raw).m_rdma_cookie },
            operation: self.operation(),
        }
    }

    /// Returns the RDMA operation of the message, or `None` if the message has none.
    #[inline]
    pub fn operation(&self) -> Option<Operation> {
        // SAFETY: By the type invariant the message is valid.
        let op = unsafe { operation_of(self.raw) };
        // SAFETY: The operation is part of a valid message.
        let flags = unsafe { flags(op) };
        if flags.op_active() == 0 {
            return None;
        }
        // SAFETY: The operation is valid. Nothing writes to these fields after the first attempt to
        // send the message.
        let (key, address) = unsafe { ((*op).op_rkey, (*op).op_remote_addr) };
        // SAFETY: The operation is valid. Nothing writes to these fields after the first attempt to
        // send the message.
        let (bytes, pieces) = unsafe { ((*op).op_bytes, (*op).op_nents) };
        Some(Operation {
            key,
            address,
            bytes,
            pieces,
            writes: flags.op_write() != 0,
            fence: flags.op_fence() != 0,
            notify: flags.op_notify() != 0,
            failures: flags.op_recverr() != 0,
            silent: flags.op_silent() != 0,
        })
    }

    /// Returns the payload from offset `at` on.
    #[inline]
    pub fn payload(&self, at: u32) -> Payload<'_> {
        let place = bindings::rdsrdma_place {
            at: at as usize,
            entry: 0,
        };
        Payload {
            message: self,
            place,
        }
    }

    /// Takes a reference to the message. The reference also keeps the memory of the message's RDMA
    /// operation, and may outlive the call in which RDS passed the message. Returns `None` if the
    /// message has no RDMA operation.
    #[inline]
    pub fn hold(&self) -> Option<(Held, Operation)> {
        let operation = self.operation()?;
        // SAFETY: By the type invariant the message is valid, so it has at least one reference.
        unsafe { bindings::rds_message_addref(self.raw.as_ptr()) };
        // INVARIANT: The new object owns the reference that was taken above, and the message has an
        // RDMA operation.
        Some((Held { raw: self.raw }, operation))
    }
}

/// Returns the address of the RDMA operation in a message.
///
/// # Safety
///
/// `message` is valid.
#[inline]
unsafe fn operation_of(message: NonNull<bindings::rds_message>) -> *const rm_rdma_op {
    // SAFETY: By this function's contract the message is valid.
    unsafe { &raw const (*message.as_ptr()).__bindgen_anon_1.rdma }
}

/// Returns the flags of an operation, in an object whose other fields are zero.
///
/// # Safety
///
/// `op` is valid.
#[inline]
unsafe fn flags(op: *const rm_rdma_op) -> rm_rdma_op {
    // SAFETY: Zero is a valid value of all fields, which are numbers and raw pointers.
    let mut flags = unsafe { MaybeUninit::<rm_rdma_op>::zeroed().assume_init() };
    // SAFETY: By this function's contract `op` is valid. All flags are in one byte, which another
    // thread may change at the same time ([`Held::tell`]).
    flags._bitfield_1 = unsafe { (&raw const (*op)._bitfield_1).read_volatile() };
    flags
}

/// The unread part of a message's payload. The payload is read from the beginning to the end.
pub struct Payload<'a> {
    message: &'a Message<'a>,
    place: bindings::rdsrdma_place,
}

impl Payload<'_> {
    /// Copies the next bytes of the payload. Returns `EINVAL` if fewer bytes are left. Does not
    /// sleep.
    #[inline]
    pub fn copy(&mut self, to: &mut [u8]) -> Result {
        let raw = self.message.raw.as_ptr();
        // SAFETY: By the type invariant the message is valid, and the called function may write to
        // `to`. The function accepts every value of `place`.
        let copied = unsafe {
            bindings::rdsrdma_copy_payload(raw, &mut self.place, to.as_mut_ptr().cast(), to.len())
        };
        if copied == to.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }
}

/// A reference to a message, which also keeps the memory of the message's RDMA operation. Dropping
/// the reference may sleep, so it must not be dropped under a spin lock.
///
/// # Invariants
///
/// The object owns a reference to the message `raw`, which has an RDMA operation. Neither the
/// scatterlist nor the direction of the operation changes after the first attempt to send the
/// message.
pub struct Held {
    raw: NonNull<bindings::rds_message>,
}

// SAFETY: Any thread may use a message.
unsafe impl Send for Held {}
// SAFETY: A `&Held` only copies from and to the memory of the operation. Programs can access this
// memory at the same time in any case.
unsafe impl Sync for Held {}

impl Held {
    /// Returns the message.
    #[inline]
    pub fn message(&self) -> Message<'_> {
        // SAFETY: By the type invariant the message is valid. `self` owns a reference to the
        // message, and stays borrowed as long as the result exists.
        unsafe { Message::from_raw(self.raw) }
    }

    /// Lends the memory of the message's operation.
    #[inline]
    pub fn lend(&self) -> OperationMemory {
        // SAFETY: By the type invariant the message is valid, so it has at least one reference.
        unsafe { bindings::rds_message_addref(self.raw.as_ptr()) };
        // INVARIANT: The new object owns the reference that was taken above. It refers to the same
        // message as `self`.
        OperationMemory(Held { raw: self.raw })
    }

    /// Returns whether the memory of the operation may be written. If the operation writes to the
    /// peer's memory, RDS pins the operation's memory for reading only, so it must not be written.
    #[inline]
    fn is_writable(&self) -> bool {
        self.message().operation().is_some_and(|of| !of.writes)
    }

    /// Copies from the memory of the operation, from offset `at` on. Returns `EINVAL` if the memory
    /// is too short. Does not sleep.
    pub fn copy_from_operation(&self, at: usize, to: &mut [u8]) -> Result {
        // SAFETY: By the type invariant the pointer is valid. The pages of the operation stay
        // pinned while the message exists. `to` may be written.
        let copied = unsafe {
            bindings::rdsrdma_copy_from_op(self.raw.as_ptr(), at, to.as_mut_ptr().cast(), to.len())
        };
        if copied == to.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Copies to the memory of the operation, from offset `at` on. Does not sleep. Returns `EINVAL`
    /// if the memory is too short. Also returns `EINVAL` if the operation writes to the peer,
    /// because the operation's memory may then only be read.
    pub fn copy_to_operation(&self, at: usize, from: &[u8]) -> Result {
        if !self.is_writable() {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariant the pointer is valid. The pages of the operation stay
        // pinned while the message exists. `from` is only read.
        let copied = unsafe {
            bindings::rdsrdma_copy_to_op(self.raw.as_ptr(), at, from.as_ptr().cast(), from.len())
        };
        if copied == from.len() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Tells RDS that the memory of the operation is not used any more. A socket that is being
    /// closed waits for this.
    #[inline]
    pub fn finished(&self) {
        // SAFETY: By the type invariant the pointer is valid.
        unsafe { bindings::rds_message_unmapped(self.raw.as_ptr()) };
    }

    /// Reports this `RDS_RDMA_*` status to the program, if the program has requested such reports.
    pub fn tell(&self, status: i32) {
        // SAFETY: By the type invariant the pointer is valid, and the callee takes the locks that
        // it needs.
        unsafe { bindings::rdsrdma_tell(self.raw.as_ptr(), status) };
    }

    /// Sets the `RDS_RDMA_*` status that RDS reports to the program if RDS discards the message.
    pub fn tell_when_dropped(&self, status: i32) {
        // SAFETY: By the type invariant the pointer is valid, and the callee takes the lock that it
        // needs.
        unsafe { bindings::rdsrdma_set_failure(self.raw.as_ptr(), status) };
    }
}

/// The part of a program's memory that an RDMA operation accesses. This memory stays pinned while
/// the message exists. Dropping this object may sleep.
pub struct OperationMemory(Held);

// SAFETY: RDS keeps the pages of an operation pinned until the last reference to its message is
// dropped, and this object owns a reference. No code of this module creates a Rust reference to the
// pages. RDS has initialised the entries with `sg_init_table` and `sg_set_page`, and each entry
// describes bytes of one page. RDS does not map the scatterlist for a device: the transport maps
// copies of the scatterlist.
unsafe impl Table for OperationMemory {
    #[inline]
    fn entries(&self) -> &[scatterlist] {
        // SAFETY: By the type invariant of `Held` the message is valid.
        let op = unsafe { operation_of(self.0.raw) };
        // SAFETY: The operation is part of a valid message. These fields do not change.
        let (table, pieces) = unsafe { ((*op).op_sg, (*op).op_nents) };
        if table.is_null() {
            return &[];
        }
        // CAST: `usize` has 64 bits.
        // SAFETY: The scatterlist of an operation has `op_nents` entries. By the type invariant of
        // `Held` the scatterlist does not change, and the message exists while `self` is borrowed.
        unsafe { slice::from_raw_parts(table, pieces as usize) }
    }

    #[inline]
    fn is_writable(&self) -> bool {
        self.0.is_writable()
    }
}

impl Lender for OperationMemory {}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariant the object owns this reference. The reference is dropped
        // only here.
        unsafe { bindings::rds_message_put(self.raw.as_ptr()) };
    }
}
