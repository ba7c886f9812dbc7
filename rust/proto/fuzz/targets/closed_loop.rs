// SPDX-License-Identifier: GPL-2.0

//! Connects the requester and the responder of this crate to each other. The simulated memory of
//! the requester checks every access.
//!
//! The target checks these requirements:
//!
//! * The responder serves every message that the requester plans. It also serves long Calls with a
//!   Read chunk, which other requesters may send.
//! * All bytes arrive unchanged.
//! * The responder accesses no memory outside the offered chunks.
//! * Each Call gets one response.
//! * No response grants more Calls than there are Receives.

use super::source::Source;
use std::collections::VecDeque;
use xprtrdma_proto::{
    chunk::ChunkLists,
    classify,
    credit::{
        ForwardCredits,
        CWND_SHIFT, //
    },
    judge,
    plan,
    plan::{
        CallShape,
        Limits,
        ReplyShape,
        SegmentCounts, //
    },
    predict::{
        predicted,
        Expected, //
    },
    responder::{
        admit::{
            Ready,
            Terms, //
        },
        call::Parked,
        grant::{
            Grant,
            GrantBounds,
            Ticket, //
        },
        pour::Span,
        refusal::Fault,
        sort::{
            sort,
            Arrival, //
        },
        spoken::Spoken,
        stream::{
            Assembly,
            Fill, //
        },
    },
    served::accept::{
        accept,
        Own,
        Request, //
    },
    CallHeader,
    CallPlan,
    Handle,
    Inbound,
    Offer,
    PrivateData,
    ReadChunk,
    ReplyPlan,
    Segment,
    Thresholds,
    Verdict,
    Version,
    Xid, //
};

/// The type of access that the responder has to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    Read,
    Write,
}

/// A region of the requester, which is one segment.
#[derive(Clone, Debug)]
struct Region {
    segment: Segment,
    right: Right,
    bytes: Vec<u8>,
    written: Vec<bool>,
}

/// The memory that a Call offers.
#[derive(Clone, Debug, Default)]
struct Memory(Vec<Region>);

impl Memory {
    /// Registers bytes as a chunk with this number of segments, or fewer if there are too few
    /// bytes.
    fn register(&mut self, bytes: &[u8], count: usize, right: Right, first: u32) -> Vec<Segment> {
        let each = bytes.len().div_ceil(count.clamp(1, bytes.len().max(1)));
        let chunk = bytes.chunks(each.max(1)).zip(first..);
        let regions = chunk.map(|(bytes, handle)| Region {
            segment: Segment {
                handle: Handle(handle),
                length: bytes.len() as u32,
                // The region may extend to the last byte of the address space.
                offset: u64::MAX - 0x10_0000 * u64::from(handle) - bytes.len() as u64 + 1,
            },
            right,
            bytes: bytes.to_vec(),
            written: vec![false; bytes.len()],
        });
        let regions: Vec<_> = regions.collect();
        let segments = regions.iter().map(|region| region.segment).collect();
        self.0.extend(regions);
        segments
    }

    fn find(&mut self, handle: Handle, right: Right) -> &mut Region {
        let mut regions = self.0.iter_mut();
        regions
            .find(|region| region.segment.handle == handle && region.right == right)
            .expect("a region that was offered for this")
    }

    fn range(region: &Region, offset: u64, length: u32) -> std::ops::Range<usize> {
        let start = offset.checked_sub(region.segment.offset);
        let start = start.expect("not before the region") as usize;
        assert!(length > 0);
        assert!(start + length as usize <= region.bytes.len());
        start..start + length as usize
    }

    fn read(&mut self, handle: Handle, offset: u64, length: u32) -> Vec<u8> {
        let region = self.find(handle, Right::Read);
        let range = Self::range(region, offset, length);
        region.bytes[range].to_vec()
    }

    fn write(&mut self, handle: Handle, offset: u64, bytes: &[u8]) {
        let region = self.find(handle, Right::Write);
        let range = Self::range(region, offset, bytes.len() as u32);
        assert!(region.written[range.clone()].iter().all(|done| !done));
        region.written[range.clone()].fill(true);
        region.bytes[range].copy_from_slice(bytes);
    }

    /// Returns the first bytes of a chunk.
    fn front(&self, chunk: &[Segment], length: usize) -> Vec<u8> {
        let regions = self.0.iter().filter(|region| region.right == Right::Write);
        let mut all = Vec::new();
        for region in regions.filter(|region| chunk.contains(&region.segment)) {
            all.extend(&region.bytes);
        }
        all.truncate(length);
        all
    }
}

/// A Call of the requester that waits for its reply.
struct Waiting {
    xid: u32,
    memory: Memory,
    write: Option<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
    shape: ReplyShape,
    protected: bool,
    /// The reply of the RPC layer, and the position of the result in it.
    said: Option<(Vec<u8>, Span)>,
}

/// A Call that the responder is processing.
struct Working {
    message: Vec<u8>,
    parked: Parked<Ready>,
    ticket: Ticket,
}

/// Number of Receives that the connection has in addition to those that the grant requires. The
/// response to a Call needs a posted Receive for the client's next Call, but the Call's own Receive
/// is posted again only after the response.
const MORE: u32 = 1;

/// The requester and the responder at both ends of a connection.
struct Loop {
    version: Version,
    requester: Thresholds,
    responder: Terms,
    credits: ForwardCredits,
    grant: Grant,
    /// Number of posted Receives, from the point of view of the device.
    receives: u32,
    /// Number of Receives that the connection has.
    all_receives: u32,
    /// Number of Receives that were posted again and that the grant does not count yet.
    finished: u32,
    /// Number of answered Calls whose Receives are not posted again yet, and the maximum of this
    /// number.
    held: u32,
    spare: u32,
    waiting: Vec<Waiting>,
    calls: VecDeque<Vec<u8>>,
    replies: VecDeque<Vec<u8>>,
    working: Vec<Working>,
    next_xid: u32,
    seen: Seen,
}

/// How many times each type of event happened.
#[allow(dead_code)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Number of Calls of each form: inline, with a Read chunk, long, and long with a Read chunk.
    pub calls: [u32; 4],
    /// Number of replies of each form: inline, with a Write chunk, in the Reply chunk, and refused.
    pub replies: [u32; 4],
    /// For Write chunks: number of empty results, and number of results whose length is not a
    /// multiple of four.
    pub results: [u32; 2],
    /// Number of replies that had the form that the requester predicted.
    pub predicted: u32,
    /// Number of grants that were larger than the preceding grant, and number of grants that were
    /// smaller.
    pub grants: [u32; 2],
    /// Maximum number of Calls in flight.
    pub in_flight: usize,
}

/// Runs a connection with the events that the input describes.
pub fn run(data: &[u8]) {
    play(data);
}

/// Does what [`run`] does, and returns how many times each type of event happened.
pub fn play(data: &[u8]) -> Seen {
    let mut source = Source::new(data);
    let mut both = Loop::new(&mut source);
    while !source.is_empty() {
        match source.below(8) {
            0..=2 => both.call(&mut source),
            3 | 4 => both.serve(),
            5 => both.answer(&mut source),
            6 => both.take_reply(),
            _ => both.grant.pause(),
        }
    }
    // This loop ends when every Call has a response.
    while !both.calls.is_empty() || !both.working.is_empty() || !both.replies.is_empty() {
        both.serve();
        both.answer(&mut source);
        both.take_reply();
    }
    assert!(both.waiting.is_empty());
    assert_eq!(both.grant.in_process(), 0);
    both.seen
}

impl Loop {
    fn new(source: &mut Source<'_>) -> Self {
        let version = if source.bool() {
            Version::V1
        } else {
            Version::V2
        };
        // In version two both ends accept messages of 4096 bytes, whether or not they announce that
        // size.
        let least = match version {
            Version::V1 => 1024,
            Version::V2 => 4096,
        };
        let mut size = || least * (1 + u32::from(source.below(4)));
        let client = PrivateData {
            remote_invalidation: true,
            send_size: size(),
            receive_size: size(),
        };
        let own = Own {
            receive_size: size(),
            longest_receive: size(),
            send_size: size(),
            invalidates: source.bool(),
            reads: 16,
        };
        let sent = client.encode();
        let request = Request {
            private_data: if source.bool() { &sent } else { &[] },
            reads: 16,
        };
        let accepted = accept(&own, &request).expect("accepted");
        let server = PrivateData::find(&accepted.private_data);
        // A client that sends no private data ignores the private data of the server.
        let client = if request.private_data.is_empty() {
            PrivateData {
                send_size: least,
                receive_size: least,
                ..PrivateData::ABSENT
            }
        } else {
            client
        };
        let requester = Thresholds::negotiate(version, &client, server.as_ref());
        match version {
            Version::V1 => assert_eq!(requester, accepted.thresholds),
            Version::V2 => assert_eq!(requester.reply, accepted.reply_v2),
        }
        assert!(requester.call <= accepted.receive_size);
        let (least, most, reserved) = (source.below(4), source.below(32), source.below(3));
        let bounds = GrantBounds {
            least: 1 + u32::from(least),
            most: 1 + u32::from(most),
            reserved: u32::from(reserved),
            spare: 2 - u32::from(reserved),
        };
        let mut both = Self {
            version,
            requester,
            responder: Terms {
                spoken: Spoken::Both,
                reply_threshold: accepted.thresholds.reply,
                reply_threshold_v2: accepted.reply_v2,
                longest_call: 1 << 20,
            },
            credits: ForwardCredits::new(1 + u32::from(source.below(40))),
            grant: Grant::new(bounds),
            receives: 0,
            all_receives: 0,
            finished: 0,
            held: 0,
            spare: bounds.spare,
            waiting: Vec::new(),
            calls: VecDeque::new(),
            replies: VecDeque::new(),
            working: Vec::new(),
            next_xid: 1,
            seen: Seen::default(),
        };
        both.post();
        both
    }

    /// Posts further Receives if the grant requires more than the connection has.
    fn post(&mut self) {
        let all = self.grant.receives() + MORE;
        let more = all.saturating_sub(self.all_receives);
        self.all_receives += more;
        self.receives += more;
        self.grant.posted(more);
    }

    /// Posts the Receive of an answered Call again. If `hold` is true, keeps back the Receives of
    /// up to `spare` answered Calls; a later call of this function posts them.
    fn give_back(&mut self, hold: bool) {
        self.held += 1;
        let kept = if hold { self.spare } else { 0 };
        while self.held > kept {
            self.held -= 1;
            self.receives += 1;
            self.finished += 1;
        }
    }

    /// Counts the Receives that were posted again, as the driver does before each response.
    fn count_finished(&mut self) {
        self.grant.posted(std::mem::take(&mut self.finished));
    }

    /// Makes the requester send a Call, if its credits allow one more.
    fn call(&mut self, source: &mut Source<'_>) {
        let most = self.credits.cwnd() >> CWND_SHIFT;
        if self.waiting.len() as u64 >= most {
            return;
        }
        let xid = self.next_xid;
        let (protected, eligible) = match source.below(4) {
            0 => (true, true),
            1 => (false, false),
            _ => (false, true),
        };
        let head = rpc_call(xid, protected, eligible, usize::from(source.u8()));
        let pages = bytes(source, 0x50);
        let mut tail = vec![0; xprtrdma_proto::xdr::pad(pages.len() as u32) as usize];
        tail.extend(vec![0x7a; 4 * usize::from(source.below(20))]);
        let call = CallShape {
            head: head.len() as u32,
            pages: pages.len() as u32,
            tail: tail.len() as u32,
            tail_padded: true,
            eligible,
        };
        let shape = ReplyShape {
            head: 24 + 4 * u32::from(source.below(64)),
            pages: u32::from(source.u16() % 9000),
            tail: 4 + 4 * u32::from(source.below(64)),
            eligible,
        };
        // More than sixteen segments are too many for one chunk, so the plan must use another form.
        let mut count = || 1 + usize::from(source.below(24));
        let mut counts = SegmentCounts {
            read: count(),
            call: count(),
            write: count(),
            reply: count(),
        };
        let mut rest = count();
        let whole: Vec<u8> = [&head[..], &pages, &tail].concat();
        let padded = call.pad() as usize;
        let reduced: Vec<u8> = [&head[..], &tail[padded..]].concat();
        let total = shape.head + shape.pages + shape.tail;
        for (count, length) in [
            (&mut counts.read, pages.len()),
            (&mut counts.call, whole.len()),
            (&mut rest, reduced.len()),
            (&mut counts.write, shape.pages as usize),
            (&mut counts.reply, total as usize),
        ] {
            *count = split(length, *count);
        }
        let limits = Limits {
            version: self.version,
            thresholds: self.requester,
            segments: 16,
        };
        let Ok(found) = plan(&call, &shape, &counts, !protected, &limits) else {
            return;
        };
        // Another requester may offer the data of a long Call in a separate Read chunk. The header
        // of such a Call has the length `split_len`.
        let read_segments = rest + counts.read;
        let split_len = found.header_len + 24 * read_segments - 24 * found.read_segments;
        let is_split = matches!(found.call, CallPlan::Long { .. })
            && (eligible && !protected && !pages.is_empty())
            && (rest <= 16 && counts.read <= 16 && split_len <= self.requester.call as usize)
            && source.bool();
        self.seen.calls[match found.call {
            CallPlan::Inline => 0,
            CallPlan::ReadChunk { .. } => 1,
            CallPlan::Long { .. } if is_split => 3,
            CallPlan::Long { .. } => 2,
        }] += 1;
        let mut memory = Memory::default();
        let (mut reads, mut inline) = (Vec::new(), whole.clone());
        match found.call {
            CallPlan::Inline => {}
            CallPlan::ReadChunk { position, .. } => {
                reads.push((
                    position,
                    memory.register(&pages, counts.read, Right::Read, 1),
                ));
                inline = reduced;
            }
            CallPlan::Long { .. } if is_split => {
                reads.push((0, memory.register(&reduced, rest, Right::Read, 20)));
                reads.push((
                    call.head,
                    memory.register(&pages, counts.read, Right::Read, 1),
                ));
                inline.clear();
            }
            CallPlan::Long { .. } => {
                reads.push((0, memory.register(&whole, counts.call, Right::Read, 20)));
                inline.clear();
            }
        }
        let (mut write, mut reply) = (None, None);
        match found.reply {
            ReplyPlan::Inline => {}
            ReplyPlan::WriteChunk { length } => {
                let room = vec![0xee; length as usize];
                write = Some(memory.register(&room, counts.write, Right::Write, 40));
            }
            ReplyPlan::ReplyChunk { length } => {
                let room = vec![0xee; length as usize];
                reply = Some(memory.register(&room, counts.reply, Right::Write, 40));
            }
        }
        let reads: Vec<ReadChunk<'_>> = reads
            .iter()
            .map(|(position, segments)| ReadChunk {
                position: *position,
                segments,
            })
            .collect();
        let writes: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
        let header = CallHeader {
            version: self.version,
            xid: Xid(xid),
            credits: self.credits.request(),
            lists: ChunkLists {
                reads: &reads,
                writes: &writes,
                reply: reply.as_deref(),
            },
        };
        let header_len = if is_split {
            split_len
        } else {
            found.header_len
        };
        let mut message = vec![0; header_len];
        assert_eq!(header.encode(&mut message), Ok(header_len));
        message.extend(inline);
        assert!(message.len() <= self.requester.call as usize);
        self.waiting.push(Waiting {
            xid,
            memory,
            write,
            reply,
            shape,
            protected,
            said: None,
        });
        self.next_xid += 1;
        self.seen.in_flight = self.seen.in_flight.max(self.waiting.len());
        self.calls.push_back(message);
        self.served_as(xid, whole);
    }

    /// Checks that the responder gets the RPC message unchanged. The responder processes the Call
    /// immediately, or first stores it as a `Parked` Call; the result must be the same.
    fn served_as(&mut self, xid: u32, whole: Vec<u8>) {
        let message = self.calls.back().expect("it was sent").clone();
        let Arrival::Call(call) = sort(&message, self.responder.spoken) else {
            panic!("a Call of ours is no Call");
        };
        let call = call.admit(&self.responder).expect("admitted");
        let mut area = vec![0xee; call.landing() as usize];
        let mut done = vec![0; area.len()];
        let mut place = |to: u32, bytes: &[u8]| {
            let range = to as usize..to as usize + bytes.len();
            done[range.clone()].iter_mut().for_each(|times| *times += 1);
            area[range].copy_from_slice(bytes);
        };
        let mut memory = self.find(xid).memory.clone();
        for read in call.reads() {
            let bytes = memory.read(read.handle, read.offset, read.length);
            place(read.to, &bytes);
        }
        for fill in call.fills() {
            match fill {
                Fill::Copy { from, to, length } => {
                    place(to, &call.payload()[from as usize..][..length as usize]);
                }
                Fill::Zero { to, length } => place(to, &vec![0; length as usize]),
            }
        }
        assert!(done.iter().all(|times| *times == 1));
        let found = match call.assembly() {
            Assembly::Inline => call.payload().to_vec(),
            Assembly::Landed => area.clone(),
            Assembly::Split { at } => {
                let (before, behind) = call.payload().split_at(at as usize);
                [before, &area, behind].concat()
            }
        };
        assert_eq!(found, whole);
        call.fetched(&area).expect("nothing is wrong with it");
    }

    fn find(&mut self, xid: u32) -> &mut Waiting {
        let mut waiting = self.waiting.iter_mut();
        let found = waiting.find(|waiting| waiting.xid == xid);
        found.expect("one Call waits for each answer")
    }

    /// Makes the responder process the oldest Call.
    fn serve(&mut self) {
        let Some(message) = self.calls.pop_front() else {
            return;
        };
        self.receives = self.receives.checked_sub(1).expect("a Receive for it");
        self.grant.received();
        let Arrival::Call(call) = sort(&message, self.responder.spoken) else {
            panic!("it was a Call before");
        };
        let ticket = self.grant.begin(Some(call.credits())).expect("a credit");
        self.post();
        let xid = call.xid().0;
        let call = call.admit(&self.responder).expect("admitted");
        // The fills need not be performed: `fetched` uses at most the bytes before the first Read
        // chunk of data, and the first Reads fetch these bytes.
        let mut front = Vec::new();
        for read in call.reads() {
            let memory = &mut self.find(xid).memory;
            front.extend(memory.read(read.handle, read.offset, read.length));
        }
        let parked = call.fetched(&front).expect("fetched").park();
        self.working.push(Working {
            message,
            parked,
            ticket,
        });
    }

    /// Makes the RPC layer reply to one of the Calls.
    fn answer(&mut self, source: &mut Source<'_>) {
        if self.working.is_empty() {
            return;
        }
        let choice = source.u8();
        let at = usize::from(choice) % self.working.len();
        let work = self.working.swap_remove(at);
        let room = |k| work.parked.room(&work.message, k).expect("its message");
        let rooms = [room(0), room(1)];
        let call = work.parked.resume(&work.message).expect("its message");
        let xid = call.xid().0;
        let terms = self.responder;
        let agreed = self.requester.remote_invalidation;
        let waiting = self.find(xid);
        let shape = waiting.shape;
        // One reply in eight may be too long for the requester.
        let long = source.below(8) == 0;
        let (said, mark) = rpc_reply(source, xid, &shape, long);
        let fits_chunk = waiting.write.is_none() || mark.length <= shape.pages;
        let has_room = shape.eligible && !waiting.protected && waiting.write.is_some();
        assert_eq!(rooms, [has_room.then_some(shape.pages), None]);
        let marks: &[Span] = if shape.eligible { &[mark] } else { &[] };
        let mut header = [0; 1024];
        let answer = match call.reply(marks, said.len() as u32, &terms) {
            Ok(reply) => {
                for write in reply.writes() {
                    let Span { from, length } = write.span;
                    let bytes = &said[from as usize..][..length as usize];
                    waiting.memory.write(write.handle, write.offset, bytes);
                }
                if let Some(handle) = call.invalidate(agreed) {
                    let regions = waiting.memory.0.iter().map(|region| region.segment.handle);
                    let found = judge::invalidated(Some(handle), regions, agreed);
                    assert!(matches!(found, judge::Invalidated::Own(..)));
                }
                let inline: Vec<Span> = reply.inline().collect();
                waiting.said = Some((said.clone(), mark));
                self.count_finished();
                let granted = self.grant.answer(work.ticket).expect("a grant");
                let len = reply.encode(granted, &mut header).expect("room");
                let mut message = header[..len].to_vec();
                for span in inline {
                    message.extend(&said[span.from as usize..][..span.length as usize]);
                }
                message
            }
            Err(refusal) => {
                assert!(long);
                assert!(refusal.fault == Fault::ReplyRoom || !fits_chunk);
                self.count_finished();
                let granted = self.grant.refuse(work.ticket);
                let len = refusal.encode(granted, &mut header).expect("room");
                header[..len].to_vec()
            }
        };
        self.give_back(choice >= 0x80);
        assert!(answer.len() <= terms.longest_message(self.version) as usize);
        self.replies.push_back(answer);
    }

    /// Makes the requester process the oldest response.
    fn take_reply(&mut self) {
        let Some(message) = self.replies.pop_front() else {
            return;
        };
        let xid = u32::from_be_bytes([message[0], message[1], message[2], message[3]]);
        let at = self.waiting.iter().position(|waiting| waiting.xid == xid);
        let waiting = self.waiting.remove(at.expect("one answer for each Call"));
        let reply = match classify(&message, self.version, false) {
            Inbound::Reply(reply) => reply,
            Inbound::Error(error) => {
                assert!(waiting.said.is_none());
                self.seen.replies[3] += 1;
                assert_eq!(error.kind, xprtrdma_proto::inbound::RemoteErrorKind::Chunk);
                return;
            }
            other => panic!("neither a Reply nor an error: {other:?}"),
        };
        let (said, mark) = waiting.said.expect("it was answered");
        let writes: Vec<&[Segment]> = waiting.write.iter().map(Vec::as_slice).collect();
        let offer = Offer {
            writes: &writes,
            reply: waiting.reply.as_deref(),
            // A reply longer than expected is an error of the upper layer, not of the transport.
            non_data_max: u32::MAX,
            strict: true,
        };
        let Verdict::Accept(accept) = judge(&reply, &offer) else {
            panic!("a Reply of ours is not accepted");
        };
        let expected = match (&writes[..], &waiting.reply) {
            ([], None) => Some(Expected::Inline),
            ([[segment]], None) => Some(Expected::Write(segment, u32::MAX)),
            ([], Some(chunk)) if chunk.len() == 1 => Some(Expected::Reply(&chunk[0])),
            _ => None,
        };
        if let Some(found) = expected.and_then(|e| predicted(&message, self.version, e)) {
            assert_eq!(found, accept);
            self.seen.predicted += 1;
        }
        assert!(accept.grant.0 > 0);
        let before = self.credits.granted();
        self.credits.accept(accept.grant);
        self.seen.grants[0] += u32::from(self.credits.granted() > before);
        self.seen.grants[1] += u32::from(self.credits.granted() < before);
        self.seen.replies[if accept.reply_len != 0 {
            2
        } else {
            writes.len()
        }] += 1;
        self.seen.results[0] += u32::from(!writes.is_empty() && accept.placed == 0);
        self.seen.results[1] += u32::from(accept.placed % 4 != 0);
        let left = match &waiting.reply {
            Some(chunk) if accept.reply_len != 0 => {
                waiting.memory.front(chunk, accept.reply_len as usize)
            }
            _ => message[accept.inline_offset..][..accept.inline_len].to_vec(),
        };
        let mut heard = left;
        if accept.placed != 0 {
            assert_eq!(accept.placed, mark.length);
            let chunk = waiting.write.as_deref().unwrap_or_default();
            let mut data = waiting.memory.front(chunk, accept.placed as usize);
            data.resize(data.len().next_multiple_of(4), 0);
            heard.splice(mark.from as usize..mark.from as usize, data);
        }
        assert_eq!(heard, said);
        // The responder wrote no other bytes than those of the reply.
        let written = waiting.memory.0.iter().flat_map(|region| &region.written);
        let written = written.filter(|written| **written).count();
        assert_eq!(written as u32, accept.placed + accept.reply_len);
    }
}

/// Returns the number of segments if `length` bytes are divided into at most `count` segments of
/// equal size.
fn split(length: usize, count: usize) -> usize {
    let each = length.div_ceil(count.clamp(1, length.max(1)));
    length.div_ceil(each.max(1)).max(1)
}

/// Returns nonzero bytes. Their number is zero, less than 256, about 1024, or less than 9000.
fn bytes(source: &mut Source<'_>, first: u8) -> Vec<u8> {
    let length = match source.below(4) {
        0 => 0,
        1 => usize::from(source.u8()),
        2 => 1024 - 128 + usize::from(source.u8()),
        _ => usize::from(source.u16() % 9000),
    };
    let pattern = (first..=0xff).chain(1..first).cycle();
    pattern.take(length).collect()
}

/// Builds the header of an RPC Call: a WRITE of NFSv3, or a procedure without a DDP-eligible
/// argument.
fn rpc_call(xid: u32, protected: bool, eligible: bool, words: usize) -> Vec<u8> {
    let procedure = if eligible { 7 } else { 6 };
    let mut all = vec![xid, 0, 2, 100_003, 3, procedure];
    let credential: &[u32] = if protected {
        &[6, 20, 1, 0, 9, 3, 0]
    } else {
        &[1, 8, 0x1111, 0x2222]
    };
    all.extend(credential);
    all.extend([0, 0]);
    all.extend(std::iter::repeat_n(0x4844_4448, words));
    all.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Builds an RPC Reply with a result in the middle. Returns the position of the result as well.
fn rpc_reply(source: &mut Source<'_>, xid: u32, shape: &ReplyShape, long: bool) -> (Vec<u8>, Span) {
    let empty = source.below(16) == 0;
    let mut part = |most: u32| most.min(u32::from(source.u16()));
    let pages = part(shape.pages);
    let more = if long { 4000 } else { 0 };
    let head = 24.max(part(shape.head)) & !3;
    let pages = if empty { 0 } else { pages + more };
    let tail = part(shape.tail - 4) & !3;
    let mut said: Vec<u8> = [xid, 1]
        .iter()
        .flat_map(|word| word.to_be_bytes())
        .collect();
    said.resize(head as usize, 0x48);
    said.extend((0x31..0xf0).cycle().take(pages as usize));
    said.resize(said.len().next_multiple_of(4), 0);
    said.resize(said.len() + tail as usize, 0x54);
    let mark = Span {
        from: head,
        length: pages,
    };
    (said, mark)
}
