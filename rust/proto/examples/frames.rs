// SPDX-License-Identifier: GPL-2.0

//! Runs the codec for a comparison with another decoder; see `tools/host/xdr_oracle.py`.
//!
//! `frames describe` reads frames (a type byte, a length word, the bytes) and prints how the codec
//! decodes each of them. `frames generate SEED COUNT` prints encoded messages and the values in
//! them. Each line is a JSON object.

#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::panic
)]

use std::{
    env,
    fmt::Write as _,
    io::{
        self,
        BufWriter,
        Read,
        Write, //
    }, //
};

use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        Lists,
        ReadChunk, //
    },
    classify,
    header::{
        Fixed,
        RefusalKind,
        ReverseReplyHeader, //
    },
    inbound::RemoteErrorKind,
    xdr::{
        Reader,
        Writer, //
    },
    CallHeader,
    Counter,
    Credits,
    Handle,
    Inbound,
    PrivateData,
    Refusal,
    Segment,
    Version,
    Xid, //
};

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    match args[..] {
        ["describe"] => describe_all(&mut out),
        ["generate", seed, count] => {
            let mut random = Random(seed.parse().unwrap());
            for _ in 0..count.parse().unwrap() {
                let (bytes, said) = generate(&mut random);
                let kind = if said.starts_with("[\"private\"") {
                    'p'
                } else {
                    'm'
                };
                writeln!(out, "[\"{kind}\",\"{}\",{said}]", hex(&bytes)).unwrap();
            }
        }
        _ => panic!("usage: frames describe | frames generate SEED COUNT"),
    }
    out.flush().unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn describe_all(out: &mut impl Write) {
    let mut input = Vec::new();
    io::stdin().lock().read_to_end(&mut input).unwrap();
    let mut rest = input.as_slice();
    while let Some((&[kind, a, b, c, d], tail)) = rest.split_first_chunk() {
        let (frame, tail) = tail.split_at(u32::from_be_bytes([a, b, c, d]) as usize);
        rest = tail;
        let line = match kind {
            b'p' => match PrivateData::find(frame) {
                Some(data) => private(&data),
                None => String::from("[\"none\"]"),
            },
            _ => describe(frame).unwrap_or_else(|| String::from("[\"malformed\"]")),
        };
        writeln!(out, "{line}").unwrap();
    }
    assert!(rest.is_empty());
}

fn private(data: &PrivateData) -> String {
    format!(
        "[\"private\",{},{},{}]",
        data.remote_invalidation, data.send_size, data.receive_size
    )
}

fn describe(message: &[u8]) -> Option<String> {
    let mut input = Reader::new(message);
    let fixed = Fixed::decode(&mut input).ok()?;
    let version = match fixed.version {
        1 => Version::V1,
        2 => Version::V2,
        _ => return None,
    };
    if fixed.procedure >= 2 {
        return unlisted(message, version);
    }
    let direction = match version {
        Version::V1 => None,
        Version::V2 => Some(input.u32().ok().filter(|&word| word < 2)?),
    };
    let lists = Lists::decode(&mut input).ok()?;
    let rest = input.rest().len();
    let reads: Vec<String> = lists
        .reads
        .map(|entry| format!("[{},{}]", entry.position, words(&entry.segment)))
        .collect();
    let writes: Vec<String> = lists
        .writes
        .map(|chunk| array(&chunk.collect::<Vec<_>>()))
        .collect();
    let reply = lists.reply.map(|chunk| array(&chunk.collect::<Vec<_>>()));
    Some(listed(
        &fixed,
        direction,
        &reads,
        &writes,
        reply,
        message.len() - rest,
        rest,
    ))
}

/// Builds a message with chunk lists.
fn listed(
    fixed: &Fixed,
    direction: Option<u32>,
    reads: &[String],
    writes: &[String],
    reply: Option<String>,
    header: usize,
    rest: usize,
) -> String {
    let null = || String::from("null");
    format!(
        "[\"lists\",{},{},{},{},{},[{}],[{}],{},{header},{rest}]",
        fixed.xid.0,
        fixed.version,
        fixed.credits.0,
        fixed.procedure,
        direction.map_or_else(null, |word| word.to_string()),
        reads.join(","),
        writes.join(","),
        reply.unwrap_or_else(null),
    )
}

/// Returns the JSON text for an error message, or for a message with an option that the receiver
/// does not support. Returns `None` for any other message.
fn unlisted(message: &[u8], version: Version) -> Option<String> {
    match classify(message, version, true) {
        Inbound::Error(error) => {
            let (err, low, high) = match error.kind {
                RemoteErrorKind::Version { low, high } => (1, low, high),
                RemoteErrorKind::Chunk => (2, 0, 0),
                RemoteErrorKind::InvalOption => (3, 0, 0),
            };
            let trailing = error.notes.contains(Counter::Trailing);
            Some(format!(
                "[\"error\",{},{err},{low},{high},{trailing}]",
                error.xid.0
            ))
        }
        Inbound::Refuse(refusal) if refusal.kind == RefusalKind::InvalOption => {
            Some(format!("[\"option\",{}]", refusal.xid.0))
        }
        Inbound::Discard(discard) if discard.counter == Counter::OptReply => {
            Some("[\"option reply\"]".to_string())
        }
        _ => None,
    }
}

fn words(segment: &Segment) -> String {
    format!("{},{},{}", segment.handle.0, segment.length, segment.offset)
}

fn array(segments: &[Segment]) -> String {
    let segments: Vec<String> = segments.iter().map(|s| format!("[{}]", words(s))).collect();
    format!("[{}]", segments.join(","))
}

/// The SplitMix64 generator.
struct Random(u64);

impl Random {
    fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> usize {
        (self.u64() % end) as usize
    }

    /// Returns an arbitrary word. Values at limits are more frequent than other values.
    fn word(&mut self) -> u32 {
        match self.below(6) {
            0 => self.below(17) as u32,
            1 => u32::MAX - self.below(4) as u32,
            _ => self.u64() as u32,
        }
    }

    fn segment(&mut self) -> Segment {
        Segment {
            handle: Handle(self.word()),
            length: self.word().max(1),
            offset: self.u64() >> self.below(64),
        }
    }

    fn chunk(&mut self, least: usize) -> Vec<Segment> {
        (0..least + self.below(17 - least as u64))
            .map(|_| self.segment())
            .collect()
    }
}

/// Generates an encoded message and the values in it.
fn generate(random: &mut Random) -> (Vec<u8>, String) {
    let version = if random.below(2) == 0 {
        Version::V1
    } else {
        Version::V2
    };
    let xid = Xid(random.word());
    let credits = Credits(random.word());
    let mut buf = vec![0; 4096];
    match random.below(8) {
        0 => {
            let data = PrivateData {
                remote_invalidation: random.below(2) == 0,
                send_size: 1024 * (1 + random.below(256) as u32),
                receive_size: 1024 * (1 + random.below(256) as u32),
            };
            (data.encode().to_vec(), private(&data))
        }
        1 => {
            let (kind, err) = match (version, random.below(2)) {
                (Version::V2, 0) => (RefusalKind::InvalOption, 3),
                _ => (RefusalKind::Chunk, 2),
            };
            let refusal = Refusal { version, xid, kind };
            let len = refusal.encode(credits, &mut buf).unwrap();
            buf.truncate(len);
            (buf, format!("[\"error\",{},{err},0,0,false]", xid.0))
        }
        2 => {
            let header = ReverseReplyHeader {
                version,
                xid,
                credits,
            };
            let len = header.encode(&mut buf).unwrap();
            buf.truncate(len);
            let lists = ChunkLists::default();
            let said = said(version, xid, credits, 0, 1, &lists, buf.len());
            (buf, said)
        }
        3 => any_lists(random, version, xid, credits),
        _ => call(random, version, xid, credits),
    }
}

/// Generates a Call as a client sends it.
fn call(random: &mut Random, version: Version, xid: Xid, credits: Credits) -> (Vec<u8>, String) {
    let whole = random.chunk(1);
    let item = random.chunk(1);
    let written = random.chunk(0);
    let replied = random.chunk(1);
    let position = (random.word() & !3).max(4);
    let mut reads = Vec::new();
    if random.below(3) == 0 {
        reads.push(ReadChunk {
            position: 0,
            segments: &whole,
        });
    }
    if random.below(3) == 0 {
        reads.push(ReadChunk {
            position,
            segments: &item,
        });
    }
    let writes: Vec<&[Segment]> = match random.below(2) {
        0 => vec![],
        _ => vec![&written],
    };
    let lists = ChunkLists {
        reads: &reads,
        writes: &writes,
        reply: (random.below(2) == 0).then_some(&replied),
    };
    let header = CallHeader {
        version,
        xid,
        credits,
        lists,
    };
    let mut buf = vec![0; header.encoded_len()];
    assert_eq!(header.encode(&mut buf), Ok(buf.len()));
    let long = reads.first().is_some_and(|chunk| chunk.position == 0);
    let said = said(version, xid, credits, long.into(), 0, &lists, buf.len());
    (buf, said)
}

/// Generates chunk lists that the client never sends, but that are valid.
fn any_lists(
    random: &mut Random,
    version: Version,
    xid: Xid,
    credits: Credits,
) -> (Vec<u8>, String) {
    let reads: Vec<(u32, Vec<Segment>)> = (0..random.below(5))
        .map(|_| (random.word(), random.chunk(0)))
        .collect();
    let writes: Vec<Vec<Segment>> = (0..random.below(5)).map(|_| random.chunk(0)).collect();
    let reply = random.chunk(0);
    let reads: Vec<ReadChunk<'_>> = reads
        .iter()
        .map(|(position, segments)| ReadChunk {
            position: *position,
            segments,
        })
        .collect();
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let lists = ChunkLists {
        reads: &reads,
        writes: &writes,
        reply: (random.below(2) == 0).then_some(&reply),
    };
    let procedure = random.below(2) as u32;
    let mut buf = vec![0; version.fixed_len() + lists.encoded_len()];
    let mut out = Writer::new(&mut buf);
    let fixed = Fixed {
        xid,
        version: version.number(),
        credits,
        procedure,
    };
    fixed.encode(&mut out).unwrap();
    if version == Version::V2 {
        out.u32(1).unwrap();
    }
    lists.encode(&mut out).unwrap();
    assert!(out.array([0]).is_err());
    let said = said(version, xid, credits, procedure, 1, &lists, buf.len());
    (buf, said)
}

fn said(
    version: Version,
    xid: Xid,
    credits: Credits,
    procedure: u32,
    direction: u32,
    lists: &ChunkLists<'_>,
    header: usize,
) -> String {
    let fixed = Fixed {
        xid,
        version: version.number(),
        credits,
        procedure,
    };
    let reads: Vec<String> = lists
        .reads
        .iter()
        .flat_map(|chunk| {
            let each = chunk.segments.iter();
            each.map(|s| format!("[{},{}]", chunk.position, words(s)))
        })
        .collect();
    let writes: Vec<String> = lists.writes.iter().map(|chunk| array(chunk)).collect();
    let direction = (version == Version::V2).then_some(direction);
    listed(
        &fixed,
        direction,
        &reads,
        &writes,
        lists.reply.map(array),
        header,
        0,
    )
}
