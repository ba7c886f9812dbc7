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
            put_chunk,
            put_written,
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
            Segment,
            WriteList,
            ABSENT_LEN,
            CHUNK_LEN, //
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
enum Form {
    /// The reply is in the Send, after the transport header.
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
    /// Length in bytes of the reply, without the results that are in Write chunks and without the
    /// pads of these results.
    reduced: u32,
}

impl Ready {
    /// Returns the lengths of the Write chunks that may be used for results.
    #[inline]
    fn rooms<'a>(&self, writes: WriteList<'a>) -> Rooms<'a> {
        Rooms {
            first: self.room,
            // No result of a reply that RPCSEC_GSS protects may be in a Write chunk (RFC 8166
            // 8.2.2.3).
            chunks: match self.protected {
                true => WriteList::default(),
                false => writes,
            },
        }
    }
}

impl Parked<Ready> {
    /// Returns the maximum length in bytes of the k-th result if it is sent in a Write chunk, or
    /// `Some(None)` if it is sent inline. If a result is longer, the RPC layer fails the operation.
    ///
    /// The caller must pass the message that contained the Call. Returns `None` if `message` is
    /// recognizably another message. `message` is read only if `k` is not zero.
    #[inline]
    pub fn room(&self, message: &[u8], k: usize) -> Option<Option<u32>> {
        let room = match k {
            0 => self.stage.room,
            _ => self.later_room(message, k)?,
        };
        Some((room != 0).then_some(room))
    }

    #[cold]
    fn later_room(&self, message: &[u8], k: usize) -> Option<u32> {
        let (lists, ..) = self.lists(message)?;
        Some(self.stage.rooms(lists.writes).get(k))
    }
}

impl<'a> Call<'a, Ready> {
    /// Decides how a reply of `total` bytes is sent. Each entry of `marks` is a result that may be
    /// in a Write chunk, see [`results`](crate::responder::results). The length in a mark does not
    /// include the pad.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the reply cannot be sent. The refusal answers the Call instead, and
    /// nothing was written to the client's memory.
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
        let mut results = Results::new(marks, total);
        let rooms = || self.stage.rooms(self.lists.writes.clone());
        results.pair(self.stage.room, rooms)?;
        // NO-OVERFLOW: The results lie inside the reply and do not overlap.
        let reduced = total.saturating_sub(results.padded());
        let version = self.version();
        // CAST: A `usize` is at least as wide as a `u32`.
        let len = self.reply_header_len().saturating_add(reduced as usize);
        let form = if len <= terms.longest_message(version) as usize {
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
            reduced,
        })
    }

    /// Returns the handle that the reply's Send may invalidate, which is a handle from the chunks
    /// of this Call. Returns `None` if all segments are empty, or if `agreed` is false. `agreed`
    /// says whether both ends announced remote invalidation (RFC 8797 4.1). An error message must
    /// not invalidate a handle.
    #[inline]
    pub fn invalidate(&self, agreed: bool) -> Option<Handle> {
        if !agreed {
            return None;
        }
        // Empty segments are skipped, because the handle of an empty segment need not be valid.
        let is_used = |segment: &Segment| segment.length != 0;
        let lists = &self.lists;
        for mut chunk in lists.writes.clone() {
            if let Some(segment) = chunk.find(is_used) {
                return Some(segment.handle);
            }
        }
        if let Some(segment) = lists
            .reply
            .clone()
            .and_then(|mut chunk| chunk.find(is_used))
        {
            return Some(segment.handle);
        }
        let mut reads = lists.reads.clone().map(|entry| entry.segment);
        let segment = reads.find(is_used)?;
        Some(segment.handle)
    }
}

impl<'a> Reply<'a> {
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

    /// Returns the parts of the reply that are not in Write chunks, if the reply is sent in the
    /// form `form`. Otherwise returns no parts.
    #[inline]
    fn left_for(&self, form: Form) -> Left<'a> {
        match self.form == form {
            true => self.results.left(),
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
        let len = self.call.reply_header_len();
        let buf = buf.get_mut(..len).ok_or(Error::NoSpace)?;
        self.put(&granted, buf).map_err(|Full| Error::NoSpace)?;
        Ok(len)
    }

    #[inline(always)]
    fn put(&self, granted: &Granted, buf: &mut [u8]) -> Result<(), Full> {
        let (procedure, reply_len) = match self.form {
            Form::Inline => (proc_nr::MSG, 0),
            Form::ReplyChunk => (proc_nr::NOMSG, self.reduced),
        };
        let returned = self.call.returned;
        // NO-OVERFLOW: The length of the fixed words is a small constant.
        let front = self.call.version().fixed_len().wrapping_add(ABSENT_LEN);
        let (front, lists) = buf.split_at_mut_checked(front).ok_or(Full)?;
        let lists = lists.get_mut(..returned.len()).ok_or(Full)?;
        let out = &mut Writer::new(front);
        encode_front(
            self.call.version(),
            self.call.xid(),
            granted.credits(),
            procedure,
            direction::REPLY,
            out,
        )?;
        out.u32(0)?;
        // The header returns all Write chunks and the Reply chunk of the Call, including unused
        // chunks. Only the lengths of the segments change.
        lists.copy_from_slice(returned);
        let writes_len = self.call.layout.writes;
        let (mut writes, reply) = lists.split_at_mut_checked(writes_len).ok_or(Full)?;
        // A reply that RPCSEC_GSS protects uses no Write chunk.
        let mut spans = self.results.spans();
        while !writes.is_empty() {
            let written = spans.next().map_or(0, |span| span.length);
            writes = put_chunk(writes, written)?;
        }
        // If the Reply chunk is absent, only one word follows the end of the Write list.
        if let Some(segments) = reply.get_mut(ABSENT_LEN + CHUNK_LEN..) {
            put_written(segments, reply_len);
        }
        Ok(())
    }
}
