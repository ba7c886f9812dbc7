// SPDX-License-Identifier: GPL-2.0

//! Decides how a reply is sent, and encodes its transport header.
//!
//! Results are first written to their Write chunks. The remaining bytes travel in the Send if they
//! fit, or else in the Reply chunk. If they do not fit into the Reply chunk, the Call is answered
//! with an error (RFC 8166 3.5.3, 4.5.3).

use crate::{
    error::Error,
    responder::{
        admit::{
            reply_header_len,
            Ready,
            Terms, //
        },
        call::{
            Call,
            Parked, //
        },
        grant::Granted,
        items::capacity,
        pour::{
            encode_written,
            Pour,
            Span,
            Write, //
        },
        refusal::{
            Fault,
            Refusal, //
        },
        results::{
            Left,
            Results,
            Rooms,
            Written, //
        }, //
    },
    wire::{
        chunk::{
            Handle,
            WriteList, //
        },
        header::{
            direction,
            encode_front,
            proc_nr, //
        },
        xdr::{
            Full,
            Writer, //
        }, //
    }, //
};

/// How a reply is sent, apart from the results in Write chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The reply is in the Send, behind the transport header.
    Inline,
    /// The reply is written to the Reply chunk by RDMA Write.
    ReplyChunk,
}

/// A reply, and the decision which of its bytes are sent inline and which in chunks.
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    call: &'a Call<'a, Ready>,
    results: Results<'a>,
    form: Form,
    total: u32,
    /// Length in bytes of the reply without the results in Write chunks and their pads.
    reduced: u32,
}

impl Ready {
    /// Returns the lengths of the Write chunks that may be used for results.
    #[inline]
    fn rooms<'a>(&self, writes: WriteList<'a>) -> Rooms<'a> {
        match self.protected {
            // No result of a reply that RPCSEC_GSS protects may be in a Write chunk (RFC 8166
            // 8.2.2.3).
            true => Rooms::default(),
            false => Rooms::new(self.room, writes),
        }
    }

    /// Returns the maximum length of a result in the k-th Write chunk, see [`Call::room`].
    #[inline]
    pub(crate) fn room(&self, writes: WriteList<'_>, k: usize) -> Option<u32> {
        let room = self.rooms(writes).nth(k)?;
        (room != 0).then_some(room)
    }
}

impl Parked<Ready> {
    /// Returns the maximum length of the k-th result, as [`Call::room`] does. The outer `Option` is
    /// `None` if `message` is recognizably not the message that contained the Call.
    #[inline]
    pub fn room(&self, message: &[u8], k: usize) -> Option<Option<u32>> {
        let (lists, _) = self.lists(message)?;
        Some(self.stage.room(lists.writes, k))
    }
}

impl<'a> Call<'a, Ready> {
    /// Returns the maximum length in bytes of the k-th result if it is sent in a Write chunk, or
    /// `None` if it is sent inline. If a result is longer, the RPC layer fails the operation.
    #[inline]
    pub fn room(&self, k: usize) -> Option<u32> {
        self.stage.room(self.lists.writes.clone(), k)
    }

    /// Decides how a reply of `total` bytes is sent. Each entry of `marks` is a result that may be
    /// in a Write chunk, see [`results`](crate::responder::results). The length in a mark does not
    /// include the pad.
    ///
    /// # Errors
    ///
    /// Returns the [`Refusal`] of a Call whose reply cannot be sent. Nothing was written to the
    /// client's memory.
    #[inline]
    pub fn reply(
        &'a self,
        marks: &'a [Span],
        total: u32,
        terms: &Terms,
    ) -> Result<Reply<'a>, Refusal> {
        self.plan(marks, total, terms)
            .map_err(|fault| self.refuse(fault))
    }

    #[inline]
    fn plan(&'a self, marks: &'a [Span], total: u32, terms: &Terms) -> Result<Reply<'a>, Fault> {
        let rooms = self.stage.rooms(self.lists.writes.clone());
        let results = Results::pair(rooms, marks, total)?;
        // NO-OVERFLOW: The results lie inside the reply and do not overlap.
        let reduced = total.saturating_sub(results.padded());
        let version = self.version();
        let header = u32::try_from(reply_header_len(&self.lists, version)).unwrap_or(u32::MAX);
        let form = if header.saturating_add(reduced) <= terms.longest_message(version) {
            Form::Inline
        } else {
            match self.lists.reply.clone().map_or(Ok(0), capacity) {
                Ok(room) if room >= reduced => Form::ReplyChunk,
                _ => return Err(Fault::ReplyRoom),
            }
        };
        Ok(Reply {
            call: self,
            results,
            form,
            total,
            reduced,
        })
    }

    /// Returns a handle from the chunks of this Call, for the reply's Send to invalidate. `agreed`
    /// says whether both ends announced remote invalidation (RFC 8797 4.1); if not, the result is
    /// `None`. An error message must not invalidate a handle.
    #[inline]
    pub fn invalidate(&self, agreed: bool) -> Option<Handle> {
        let lists = &self.lists;
        let writes = lists.writes.clone().flatten();
        let reads = lists.reads.clone().map(|entry| entry.segment);
        let all = writes.chain(lists.reply.iter().cloned().flatten());
        // Empty segments are skipped, because their handles may refer to no memory.
        all.chain(reads)
            .find(|segment| segment.length != 0)
            .map(|segment| segment.handle)
            .filter(|_| agreed)
    }
}

impl<'a> Reply<'a> {
    /// Returns how the reply is sent, apart from the results in Write chunks.
    #[inline]
    pub const fn form(&self) -> Form {
        self.form
    }

    /// Returns how many bytes of the reply the Send carries behind the transport header.
    #[inline]
    pub const fn inline_len(&self) -> u32 {
        match self.form {
            Form::Inline => self.reduced,
            Form::ReplyChunk => 0,
        }
    }

    /// Returns whether the reply has RDMA Writes.
    #[inline]
    pub const fn has_writes(&self) -> bool {
        self.results.any() || matches!(self.form, Form::ReplyChunk)
    }

    /// Returns the parts of the reply that follow the transport header in the Send. The parts are
    /// in the order in which they are sent.
    #[inline]
    pub fn inline(&self) -> impl Iterator<Item = Span> + 'a {
        self.left_for(Form::Inline)
    }

    /// Returns how many bytes the RDMA Writes carry, and where these bytes are in the reply.
    #[inline]
    pub fn carried(&self) -> Written {
        let left = self.left_for(Form::ReplyChunk);
        left.fold(self.results.written(), Written::add)
    }

    /// Returns the parts of the reply that the RDMA Writes carry, in the order of the Writes.
    #[inline]
    pub fn written(&self) -> impl Iterator<Item = Span> + 'a {
        let results = self.results.spans().filter(|span| span.length != 0);
        results.chain(self.left_for(Form::ReplyChunk))
    }

    /// Returns the RDMA Writes, which must be posted before the Send.
    #[inline]
    pub fn writes(&self) -> impl Iterator<Item = Write> + 'a {
        let lists = &self.call.lists;
        Pour::new(
            lists.writes.clone(),
            self.results.spans(),
            lists.reply.clone(),
            self.left_for(Form::ReplyChunk),
        )
    }

    /// Returns the parts of the reply that are not in Write chunks. Returns no parts if the reply
    /// is not sent in the form `form`.
    #[inline]
    fn left_for(&self, form: Form) -> Left<'a> {
        match self.form == form {
            true => self.results.left(self.total),
            false => Left::default(),
        }
    }

    /// Encodes the transport header at the front of `buf` and returns its length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoSpace`] if `buf` is shorter than the header. The caller must then close
    /// the connection (RFC 8166 4.5.4).
    // This function and the next one are inlined, so that the compiler need not store the Reply in
    // memory.
    #[inline(always)]
    pub fn encode(&self, granted: Granted, buf: &mut [u8]) -> Result<usize, Error> {
        let len = reply_header_len(&self.call.lists, self.call.version());
        let buf = buf.get_mut(..len).ok_or(Error::NoSpace)?;
        self.put(&granted, &mut Writer::new(buf))
            .map_err(|Full| Error::NoSpace)?;
        Ok(len)
    }

    #[inline(always)]
    fn put(&self, granted: &Granted, out: &mut Writer<'_>) -> Result<(), Full> {
        let (procedure, reply_len) = match self.form {
            Form::Inline => (proc_nr::MSG, 0),
            Form::ReplyChunk => (proc_nr::NOMSG, self.reduced),
        };
        encode_front(
            self.call.version(),
            self.call.xid(),
            granted.credits(),
            procedure,
            direction::REPLY,
            out,
        )?;
        out.u32(0)?;
        // The header returns all Write chunks of the Call, including unused ones. A reply that
        // RPCSEC_GSS protects uses no Write chunk.
        let mut spans = self.results.spans();
        for chunk in self.call.lists.writes.clone() {
            let written = spans.next().map_or(0, |span| span.length);
            encode_written(chunk, written, out)?;
        }
        out.u32(0)?;
        match self.call.lists.reply.clone() {
            Some(chunk) => encode_written(chunk, reply_len, out),
            None => out.u32(0),
        }
    }
}
