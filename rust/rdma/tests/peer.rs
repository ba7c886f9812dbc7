// SPDX-License-Identifier: GPL-2.0

//! The peer of a queue pair: the messages that it received and sends, and its access to regions.

use crate::qp::{
    Qp,
    QpHandler, //
};
use kernel::{
    error::to_result,
    prelude::*, //
};
use xprtrdma_bindings as bindings;

/// A work request that the device has not completed yet.
pub(super) use bindings::fake_posted as Posted;

/// How the peer answers connect requests.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Accepts,
    Refuses,
    IsSilent,
    /// The peer does not answer: the device retries for half a second, and then fails.
    FailsLate,
}

impl Answer {
    fn raw(self) -> bindings::fake_peer {
        match self {
            Self::Accepts => bindings::fake_peer_FAKE_ACCEPTS,
            Self::Refuses => bindings::fake_peer_FAKE_REFUSES,
            Self::IsSilent => bindings::fake_peer_FAKE_IS_SILENT,
            Self::FailsLate => bindings::fake_peer_FAKE_FAILS_LATE,
        }
    }

    /// Makes the peer answer all connect requests in this way from now on.
    pub(super) fn always(self) {
        // SAFETY: The call has no requirements.
        unsafe { bindings::fake_peer_answers(self.raw()) }
    }
}

/// Returns the private data of the last connect request.
pub(super) fn connect_data() -> KVec<u8> {
    let mut data = [0u8; 64];
    // SAFETY: The buffer has 64 bytes.
    let len = unsafe { bindings::fake_connect_data(data.as_mut_ptr().cast(), 64) };
    let mut out = KVec::new();
    let part = data.get(..len as usize).unwrap_or(&[]);
    // If the vector cannot grow, the test does not find the bytes and fails.
    let _ = out.extend_from_slice(part, GFP_KERNEL);
    out
}

/// A message from the peer.
#[derive(Default)]
pub(super) struct Message<'a> {
    pub(super) data: &'a [u8],
    pub(super) status: u32,
    pub(super) invalidates: Option<u32>,
    pub(super) immediate: bool,
    pub(super) written: bool,
    pub(super) last: bool,
    pub(super) late: bool,
}

/// Represents the peer of a queue pair that is not shut down.
pub(super) struct Peer(*mut bindings::ib_qp);

impl Peer {
    pub(super) fn of<H: QpHandler>(qp: &Qp<H>) -> Self {
        Self(qp.raw_qp())
    }

    /// Returns the number of work requests in the send queue.
    pub(super) fn sends(&self) -> u32 {
        // SAFETY: The tests keep the queue pair while they use its peer.
        unsafe { bindings::fake_sends(self.0) }
    }

    /// Returns the number of posted Receives.
    pub(super) fn receives(&self) -> u32 {
        // SAFETY: The tests keep the queue pair while they use its peer.
        unsafe { bindings::fake_receives(self.0) }
    }

    /// Returns the nth work request in the send queue.
    pub(super) fn look(&self, nth: u32) -> Result<Posted> {
        let mut posted = Posted::default();
        // SAFETY: The tests keep the queue pair while they use its peer.
        to_result(unsafe { bindings::fake_look(self.0, nth, &mut posted) })?;
        Ok(posted)
    }

    /// Returns the bytes of a posted Send, as the device reads them.
    pub(super) fn sent(&self, posted: &Posted) -> Result<KVec<u8>> {
        let mut out = KVec::from_elem(0u8, posted.len as usize, GFP_KERNEL)?;
        // SAFETY: A posted Send refers to mapped memory.
        to_result(unsafe {
            bindings::fake_dma_read(posted.addr, out.as_mut_ptr().cast(), posted.len)
        })?;
        Ok(out)
    }

    /// Completes at most `most` work requests of the send queue with this status. Returns their
    /// number.
    pub(super) fn complete(&self, most: u32, status: u32) -> u32 {
        // SAFETY: The tests keep the queue pair while they use its peer.
        unsafe { bindings::fake_complete(self.0, most, status) }
    }

    /// Starts all work requests that may start, but acknowledges none of them. Returns their
    /// number.
    pub(super) fn run_ahead(&self) -> u32 {
        // SAFETY: The tests keep the queue pair while they use its peer.
        unsafe { bindings::fake_run_ahead(self.0) }
    }

    /// Repeats the work requests that have started and not completed. Returns their number.
    pub(super) fn send_again(&self) -> u32 {
        // SAFETY: The tests keep the queue pair while they use its peer.
        unsafe { bindings::fake_send_again(self.0) }
    }

    /// Simulates that a packet to the peer cannot be sent.
    pub(super) fn is_not_sent_to(&self) {
        // SAFETY: The call has no requirements.
        unsafe { bindings::fake_sends_nothing() }
    }

    /// Sends a message.
    pub(super) fn send(&self, message: Message<'_>) -> Result {
        let raw = bindings::fake_message {
            data: message.data.as_ptr().cast(),
            len: message.data.len() as u32,
            status: message.status,
            rkey: message.invalidates.unwrap_or(0),
            invalidates: message.invalidates.is_some().into(),
            immediate: message.immediate.into(),
            written: message.written.into(),
            last: message.last.into(),
            late: message.late.into(),
        };
        // SAFETY: The tests keep the queue pair while they use its peer. `data` points to `len`
        // bytes.
        to_result(unsafe { bindings::fake_receive(self.0, &raw) })
    }

    /// Answers a connect request that the peer had not answered.
    pub(super) fn answer(&self, how: Answer) -> Result {
        // SAFETY: The tests keep the queue pair while they use its peer.
        to_result(unsafe { bindings::fake_peer_answer(self.0, how.raw()) })
    }

    /// Ends the connection.
    pub(super) fn close(&self) -> Result {
        // SAFETY: The tests keep the queue pair while they use its peer.
        to_result(unsafe { bindings::fake_peer_closes(self.0) })
    }

    /// Writes to a region, if the region allows the peer to write.
    pub(super) fn write(&self, rkey: u32, at: u64, data: &[u8]) -> Result {
        // SAFETY: The data have this length.
        to_result(unsafe {
            bindings::fake_remote_write(rkey, at, data.as_ptr().cast(), data.len() as u32)
        })
    }

    /// Reads from a region, if the region allows the peer to read.
    pub(super) fn read(&self, rkey: u32, at: u64, len: usize) -> Result<KVec<u8>> {
        let mut out = KVec::from_elem(0u8, len, GFP_KERNEL)?;
        // SAFETY: The buffer has this length.
        to_result(unsafe {
            bindings::fake_remote_read(rkey, at, out.as_mut_ptr().cast(), len as u32)
        })?;
        Ok(out)
    }
}
