// SPDX-License-Identifier: GPL-2.0

//! Tests of the byte vectors. Each vector is decoded, encoded, truncated and mutated.

use crate::common::{
    fate,
    named,
    vectors,
    Fate,
    Vector, //
};
use serde_json::Value;
use xprtrdma_proto::{
    chunk::{
        ChunkLists,
        Lists,
        ReadChunk, //
    },
    classify,
    header::{
        Fixed,
        Refusal,
        RefusalKind, //
    },
    xdr::{
        Reader,
        Writer, //
    },
    CallHeader,
    Counter,
    Credits,
    Error,
    Handle,
    Inbound,
    Offer,
    PrivateData,
    ReverseReplyHeader,
    Segment,
    Verdict,
    Version,
    Xid, //
};

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn segment(value: &Value) -> Segment {
    Segment {
        handle: Handle(number(&value[0])),
        length: number(&value[1]),
        offset: value[2].as_u64().unwrap(),
    }
}

fn chunk(value: &Value) -> Vec<Segment> {
    value.as_array().unwrap().iter().map(segment).collect()
}

/// The chunk lists of a vector in owned form: Read segments, Write chunks, Reply chunk.
type Owned = (Vec<(u32, Segment)>, Vec<Vec<Segment>>, Option<Vec<Segment>>);

fn expected_lists(decoded: &Value) -> Owned {
    let read = |value: &Value| {
        let fields = value.as_array().unwrap();
        (
            number(&fields[0]),
            segment(&Value::Array(fields[1..].to_vec())),
        )
    };
    (
        decoded["reads"]
            .as_array()
            .unwrap()
            .iter()
            .map(read)
            .collect(),
        decoded["writes"]
            .as_array()
            .unwrap()
            .iter()
            .map(chunk)
            .collect(),
        decoded["reply"]
            .is_array()
            .then(|| chunk(&decoded["reply"])),
    )
}

fn owned(lists: &Lists<'_>) -> Owned {
    (
        lists
            .reads
            .clone()
            .map(|entry| (entry.position, entry.segment))
            .collect(),
        lists.writes.clone().map(Iterator::collect).collect(),
        lists.reply.clone().map(Iterator::collect),
    )
}

fn version_of(vector: &Vector) -> Version {
    match number(&vector.decoded["vers"]) {
        1 => Version::V1,
        2 => Version::V2,
        other => panic!("version {other}"),
    }
}

/// Returns the vectors that have chunk lists.
fn with_lists() -> Vec<Vector> {
    let mut all = vectors();
    all.retain(|v| v.decoded["reads"].is_array());
    assert_eq!(all.len(), 17);
    all
}

/// Returns the vectors that are transport messages. The other vectors are private data.
fn transport() -> Vec<Vector> {
    let mut all = vectors();
    all.retain(|v| v.decoded["xid"].is_u64());
    assert_eq!(all.len(), 24);
    all
}

// covers: V1-004, V1-007, V1-080, V2-13
#[test]
fn every_vector_decodes_to_what_it_says() {
    for v in transport() {
        let mut input = Reader::new(&v.bytes);
        let fixed = Fixed::decode(&mut input).unwrap();
        assert_eq!(fixed.xid.0, number(&v.decoded["xid"]));
        assert_eq!(fixed.version, number(&v.decoded["vers"]));
        assert_eq!(fixed.credits.0, number(&v.decoded["credit"]));
        assert_eq!(fixed.procedure, number(&v.decoded["proc"]));
    }
    for v in with_lists() {
        let version = version_of(&v);
        let mut input = Reader::new(&v.bytes[version.fixed_len()..]);
        let lists = Lists::decode(&mut input).unwrap();
        assert_eq!(owned(&lists), expected_lists(&v.decoded), "{}", v.id);
        let header = v.bytes.len() - input.rest().len();
        assert_eq!(header as u64, v.decoded["hdrlen"].as_u64().unwrap());
        assert_eq!(
            input.rest().len() as u64,
            v.decoded["payload_len"].as_u64().unwrap()
        );
        if v.decoded["mtype"].is_u64() {
            let payload = input.rest();
            assert_eq!(payload[..4], v.bytes[..4]);
            assert_eq!(u64::from(payload[7]), v.decoded["mtype"].as_u64().unwrap());
        }
    }
}

// covers: V1-001, V1-011, V1-046, V1-072, V1-073, V1-076, V1-078
#[test]
fn every_call_vector_is_what_we_encode() {
    let calls = ["E01", "E03", "E04", "E07", "E09", "E10", "E20", "E26"];
    for id in calls {
        let v = named(id);
        let (reads, writes, reply) = expected_lists(&v.decoded);
        let mut chunks: Vec<(u32, Vec<Segment>)> = Vec::new();
        for (position, segment) in reads {
            match chunks.last_mut() {
                Some((last, segments)) if *last == position => segments.push(segment),
                _ => chunks.push((position, vec![segment])),
            }
        }
        let reads: Vec<ReadChunk<'_>> = chunks
            .iter()
            .map(|(position, segments)| ReadChunk {
                position: *position,
                segments,
            })
            .collect();
        let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
        let call = CallHeader {
            version: version_of(&v),
            xid: Xid(number(&v.decoded["xid"])),
            credits: Credits(number(&v.decoded["credit"])),
            lists: ChunkLists {
                reads: &reads,
                writes: &writes,
                reply: reply.as_deref(),
            },
        };
        let header = usize::try_from(v.decoded["hdrlen"].as_u64().unwrap()).unwrap();
        assert_eq!(call.encoded_len(), header);
        let mut buf = vec![0xa5; header + 3];
        assert_eq!(call.encode(&mut buf), Ok(header));
        assert_eq!(buf[..header], v.bytes[..header], "{id}");
        assert_eq!(buf[header..], [0xa5; 3]);
        for short in 0..header {
            let mut buf = vec![0xa5; short];
            assert_eq!(call.encode(&mut buf), Err(Error::NoSpace));
            assert!(buf.iter().all(|&byte| byte == 0xa5));
        }
    }
}

// covers: V1-042, V1-063, V1-112
#[test]
fn every_list_vector_survives_decoding_and_encoding() {
    for v in with_lists() {
        let fixed_len = version_of(&v).fixed_len();
        let (reads, writes, reply) = expected_lists(&v.decoded);
        let reads: Vec<ReadChunk<'_>> = reads
            .iter()
            .map(|(position, segment)| ReadChunk {
                position: *position,
                segments: core::slice::from_ref(segment),
            })
            .collect();
        let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
        let lists = ChunkLists {
            reads: &reads,
            writes: &writes,
            reply: reply.as_deref(),
        };
        let len = lists.encoded_len();
        let mut buf = vec![0; len];
        let mut out = Writer::new(&mut buf);
        lists.encode(&mut out).unwrap();
        assert!(out.array([0]).is_err());
        assert_eq!(buf, v.bytes[fixed_len..fixed_len + len], "{}", v.id);
        for short in 0..len {
            assert!(lists.encode(&mut Writer::new(&mut vec![0; short])).is_err());
        }
    }
}

// covers: V1-089, BC-04, BC-12, BC-24, ULB-05
#[test]
fn every_reverse_vector_is_what_we_encode() {
    let v = named("E16");
    let reply = ReverseReplyHeader {
        version: Version::V1,
        xid: Xid(0x7700_0001),
        credits: Credits(4),
    };
    let mut buf = [0; 64];
    assert_eq!(reply.encode(&mut buf), Ok(28));
    assert_eq!(buf[..28], v.bytes[..28]);
    assert_eq!(reply.encode(&mut buf[..27]), Err(Error::NoSpace));
    let refusals = [
        ("E17", Version::V1, RefusalKind::Chunk),
        ("E23", Version::V2, RefusalKind::Chunk),
        ("E24", Version::V2, RefusalKind::InvalOption),
    ];
    for (id, version, kind) in refusals {
        let v = named(id);
        let refusal = Refusal {
            version,
            xid: Xid(number(&v.decoded["xid"])),
            kind,
        };
        let credits = Credits(number(&v.decoded["credit"]));
        assert_eq!(refusal.encode(credits, &mut buf), Ok(20));
        assert_eq!(buf[..20], v.bytes, "{id}");
        assert_eq!(refusal.encode(credits, &mut buf[..19]), Err(Error::NoSpace));
    }
}

// covers: V2-17, V2-20
#[test]
fn a_version_2_reverse_reply_says_its_direction() {
    let reply = ReverseReplyHeader {
        version: Version::V2,
        xid: Xid(7),
        credits: Credits(4),
    };
    let mut buf = [0; 32];
    assert_eq!(reply.encode(&mut buf), Ok(32));
    assert_eq!(
        buf.to_vec(),
        crate::common::words(&[7, 2, 4, 0, 1, 0, 0, 0])
    );
}

#[test]
fn every_vector_is_classified() {
    use Fate::{
        Call,
        Dropped,
        Failed,
        Judged,
        Refused, //
    };
    let e04 = named("E04");
    let e07 = named("E07");
    let (_, writes, _) = expected_lists(&e04.decoded);
    let (_, _, reply) = expected_lists(&e07.decoded);
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let accepted = |fate: &Fate| matches!(fate, Judged(Verdict::Accept(_)));
    let chunk_refused = |fate: &Fate| *fate == Refused(RefusalKind::Chunk);
    type Check<'a> = &'a dyn Fn(&Fate) -> bool;
    // The same bytes are a forward Call if the client sends them, and a reverse Call if the server
    // sends them.
    let table: [(&str, Check<'_>); 24] = [
        ("E01", &|fate| *fate == Call(40)),
        ("E02", &accepted),
        ("E03", &chunk_refused),
        ("E04", &chunk_refused),
        ("E05", &accepted),
        ("E06", &accepted),
        ("E07", &chunk_refused),
        ("E08", &accepted),
        ("E09", &chunk_refused),
        ("E10", &chunk_refused),
        ("E11", &|fate| *fate == Failed(Error::RemoteVersion)),
        ("E12", &|fate| *fate == Failed(Error::RemoteChunk)),
        ("E13", &|fate| {
            matches!(fate, Dropped(Counter::BadPayloadLen, Some(_)))
        }),
        ("E14", &|fate| {
            matches!(fate, Dropped(Counter::BadPayloadLen, Some(_)))
        }),
        ("E15", &|fate| *fate == Call(40)),
        ("E16", &accepted),
        ("E17", &|fate| *fate == Failed(Error::RemoteChunk)),
        ("E20", &|fate| *fate == Call(40)),
        ("E21", &accepted),
        ("E22", &|fate| *fate == Failed(Error::RemoteVersion)),
        ("E23", &|fate| *fate == Failed(Error::RemoteChunk)),
        ("E24", &|fate| *fate == Failed(Error::RemoteChunk)),
        ("E25", &|fate| *fate == Refused(RefusalKind::InvalOption)),
        ("E26", &chunk_refused),
    ];
    for (id, check) in table {
        let v = named(id);
        let offer = match id {
            "E05" | "E06" => Offer {
                writes: &writes,
                non_data_max: 128,
                ..Offer::default()
            },
            "E08" => Offer {
                reply: reply.as_deref(),
                ..Offer::default()
            },
            _ => Offer::default(),
        };
        let fate = fate(&v.bytes, version_of(&v), true, true, &offer);
        assert!(check(&fate), "{id}: {fate:?}");
    }
}

// covers: V1-058
#[test]
fn reply_vectors_say_where_their_data_are() {
    let (_, writes, _) = expected_lists(&named("E04").decoded);
    let (_, _, reply) = expected_lists(&named("E07").decoded);
    let writes: Vec<&[Segment]> = writes.iter().map(Vec::as_slice).collect();
    let offer = Offer {
        writes: &writes,
        reply: reply.as_deref(),
        non_data_max: 20480,
        strict: true,
    };
    let cases = [
        ("E05", 52, 128, 6001, 0),
        ("E06", 52, 32, 0, 0),
        ("E08", 64, 0, 0, 20480),
    ];
    for (id, inline_offset, inline_len, placed, reply_len) in cases {
        let v = named(id);
        let reply = crate::common::reply_of(&v.bytes, Version::V1);
        let Verdict::Accept(accept) = xprtrdma_proto::judge(&reply, &offer) else {
            panic!("{id} refused");
        };
        assert_eq!(accept.grant, Credits(16));
        assert_eq!(accept.inline_offset, inline_offset);
        assert_eq!(accept.inline_len, inline_len);
        assert_eq!(accept.placed, placed);
        assert_eq!(accept.reply_len, reply_len);
    }
}

/// Checks the properties that hold for every sequence of bytes that is received as a message.
fn check_anything(bytes: &[u8], offers: &[Offer<'_>]) {
    for version in crate::common::VERSIONS {
        for backchannel in [false, true] {
            let inbound = classify(bytes, version, backchannel);
            match inbound {
                Inbound::Reply(reply) => {
                    assert_eq!(reply.offset + reply.payload.len(), bytes.len());
                    assert!(!reply.inline || reply.payload.len() >= 20);
                    for offer in offers {
                        check_verdict(xprtrdma_proto::judge(&reply, offer), bytes, offer);
                    }
                }
                Inbound::ReverseCall(call) => {
                    assert!(backchannel);
                    assert_eq!(call.offset + call.payload.len(), bytes.len());
                    assert!(call.payload.len() >= 8);
                }
                Inbound::Refuse(_) => {
                    // In version 1 the client refuses only reverse Calls. In version 2 the client
                    // also refuses options.
                    assert!(backchannel || version == Version::V2);
                }
                Inbound::Discard(discard) => {
                    assert!(discard.xid.is_none() || bytes.len() >= 16);
                }
                Inbound::Ambiguous(ambiguous) => {
                    for pending in [false, true] {
                        assert!(matches!(
                            ambiguous.resolve(pending),
                            Inbound::Refuse(_) | Inbound::Discard(_)
                        ));
                    }
                }
                Inbound::Error(_) => assert!(bytes.len() >= 20),
            }
        }
    }
    if let Some(data) = PrivateData::find(bytes) {
        assert!((1024..=262_144).contains(&data.send_size));
        assert!((1024..=262_144).contains(&data.receive_size));
    }
}

fn check_verdict(verdict: Verdict, bytes: &[u8], offer: &Offer<'_>) {
    let Verdict::Accept(accept) = verdict else {
        return;
    };
    let offered: u64 = offer
        .writes
        .iter()
        .flat_map(|c| c.iter())
        .map(|s| u64::from(s.length))
        .sum();
    let room: u64 = offer
        .reply
        .iter()
        .flat_map(|c| c.iter())
        .map(|s| u64::from(s.length))
        .sum();
    assert!(u64::from(accept.placed) <= offered);
    assert!(u64::from(accept.reply_len) <= room);
    assert!(accept.inline_offset + accept.inline_len <= bytes.len());
    assert!((accept.inline_len == 0) != (accept.reply_len == 0));
}

fn with_offers(check: impl Fn(&[Offer<'_>])) {
    let (_, e04, _) = expected_lists(&named("E04").decoded);
    let (_, e13, _) = expected_lists(&named("E13").decoded);
    let (_, _, e07) = expected_lists(&named("E07").decoded);
    let e04: Vec<&[Segment]> = e04.iter().map(Vec::as_slice).collect();
    let e13: Vec<&[Segment]> = e13.iter().map(Vec::as_slice).collect();
    check(&[
        Offer::default(),
        Offer {
            writes: &e04,
            non_data_max: 128,
            ..Offer::default()
        },
        Offer {
            writes: &e13,
            reply: e07.as_deref(),
            non_data_max: u32::MAX,
            strict: true,
        },
        Offer {
            reply: e07.as_deref(),
            ..Offer::default()
        },
    ]);
}

#[test]
fn every_truncation_of_every_vector_is_harmless() {
    with_offers(|offers| {
        for v in vectors() {
            for len in 0..v.bytes.len() {
                check_anything(&v.bytes[..len], offers);
            }
            if v.decoded["hdrlen"].is_u64() {
                // A message that is shorter than its header is never accepted.
                let header = usize::try_from(v.decoded["hdrlen"].as_u64().unwrap()).unwrap();
                for len in 0..header {
                    let fate = fate(&v.bytes[..len], version_of(&v), true, true, &offers[2]);
                    assert!(matches!(
                        fate,
                        Fate::Dropped(..) | Fate::Refused(RefusalKind::Chunk)
                    ));
                }
            }
        }
    });
}

#[test]
fn every_mutation_of_every_byte_of_every_vector_is_harmless() {
    with_offers(|offers| {
        for v in vectors() {
            let mut bytes = v.bytes.clone();
            for at in 0..bytes.len() {
                let original = bytes[at];
                for value in 0..=255 {
                    bytes[at] = value;
                    check_anything(&bytes, offers);
                }
                bytes[at] = original;
            }
        }
    });
}

#[test]
fn private_data_vectors() {
    for id in ["E30", "E31", "E32"] {
        let v = named(id);
        let data = PrivateData::find(&v.bytes).unwrap();
        assert_eq!(data.remote_invalidation, v.decoded["r"].as_bool().unwrap());
        assert_eq!(data.send_size, number(&v.decoded["send"]));
        assert_eq!(data.receive_size, number(&v.decoded["recv"]));
        if id != "E32" {
            assert_eq!(data.encode().to_vec(), v.bytes);
        }
    }
}
