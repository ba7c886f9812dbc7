// SPDX-License-Identifier: GPL-2.0

//! A message to send that may invalidate a key of the peer ([`Message`]).

use xprtrdma_bindings as bindings;

/// The message of a Send.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Number of bytes to send, from the beginning of the buffer. Must not be zero.
    pub len: usize,
    /// A key of the peer. The peer's device invalidates the key when the message arrives.
    pub invalidate: Option<u32>,
    /// Whether [`QpHandler::confirmed`] is called when the peer's device has received the message.
    /// This costs a completion.
    pub confirmed: bool,
}

impl From<usize> for Message {
    /// Returns a message that invalidates no key, and whose completion is not reported.
    fn from(len: usize) -> Self {
        Self {
            len,
            invalidate: None,
            confirmed: false,
        }
    }
}

impl Message {
    /// Sets the operation of a Send, and the key that the Send invalidates.
    pub(super) fn choose(&self, send: &mut bindings::ib_send_wr) {
        send.opcode = match self.invalidate {
            Some(_) => bindings::ib_wr_opcode_IB_WR_SEND_WITH_INV,
            None => bindings::ib_wr_opcode_IB_WR_SEND,
        };
        // CAST: All members of the union are 32-bit numbers.
        send.ex.bindgen_union_field = self.invalidate.unwrap_or(0);
    }
}
