// SPDX-License-Identifier: GPL-2.0

//! The code that the fuzz target `rds` runs: a connection whose peer sends arbitrary bytes and
//! numbers.

#![allow(clippy::arithmetic_side_effects, clippy::expect_used)]
#![allow(clippy::indexing_slicing, unreachable_pub)]

use crate::extensions::{
    extensions,
    Found, //
};
use core::net::{
    IpAddr,
    Ipv4Addr, //
};
use std::collections::VecDeque;
use xprtrdma_rds_proto::{
    acknowledge::{
        Acknowledged,
        Owed, //
    },
    connect::{
        accept,
        accepted,
        Hello,
        Refusal, //
    },
    credit::Credits,
    extension::{
        add,
        Extension, //
    },
    header::*,
    incoming::{
        Assembly,
        Part, //
    },
    ping::{
        is_answer,
        is_ping,
        Pings,
        MOST, //
    },
};

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// Takes numbers from the front of some bytes. After the last byte, all further numbers are zero.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn u8(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Returns a number that is small, large, or arbitrary.
    fn number(&mut self) -> u64 {
        match self.u8() % 4 {
            0 => u64::from(self.u8()),
            1 => u64::MAX - u64::from(self.u8()),
            2 => 1 << (self.u8() % 64),
            _ => u64::from_be_bytes([(); 8].map(|()| self.u8())),
        }
    }
}

/// The state of a connection at this end.
#[derive(Default)]
struct Connection {
    assembly: Assembly,
    /// Number of bytes of the incomplete message that have arrived.
    kept: u32,
    ended: bool,
    owed: Owed,
    acknowledged: Acknowledged,
    /// The sequence number that was passed to the socket layer last: all messages up to this number
    /// were acknowledged.
    told: u64,
    pings: Pings,
    /// The sequence number of the last message that the socket layer has made.
    made: u64,
    /// The sequence number of the last message that was sent.
    sent: u64,
    /// The sequence numbers of the answers to pings that the socket layer keeps. It keeps an answer
    /// until the peer has acknowledged it.
    answers: VecDeque<u64>,
    /// Whether both ends have offered credits, so that this end waits for credits.
    waits: bool,
}

impl Connection {
    /// Processes a received fragment that has `payload` bytes after its header.
    fn fragment(&mut self, header: &Header, payload: usize, credits: &mut Credits) {
        let part = self.assembly.take(header, payload);
        assert!(!self.ended || part == Err(Fault::Ended));
        let Ok(part) = part else {
            self.ended = true;
            return;
        };
        match part {
            Part::Acknowledgement => assert_eq!(payload, 0),
            Part::Map { at, last } | Part::Message { at, last } => {
                assert_eq!(at, self.kept);
                self.kept = at + u32::try_from(payload).expect("a fragment is short");
                assert!(self.kept <= MESSAGE_BYTES);
                assert_eq!(last, self.kept == header.len);
                if last {
                    self.kept = 0;
                    self.complete(header, part);
                }
            }
        }
        self.acknowledged.heard(header.ack, self.sent);
        if let Some(now) = self.acknowledged.advance(None) {
            assert!(self.told < now && now <= self.sent);
            self.told = now;
            self.pings.acknowledged(now);
            self.answers.retain(|&answer| answer > now);
        }
        if credits.granted(header.credit).is_err() {
            assert!(self.waits);
            self.ended = true;
            self.assembly.end();
        }
    }

    fn complete(&mut self, header: &Header, part: Part) {
        let Part::Message { .. } = part else {
            assert_eq!(header.len, MAP_BYTES);
            return;
        };
        if is_ping(header) {
            assert!(!is_answer(header));
            self.pinged(true);
        }
        self.owed
            .received(header.sequence, header.has(ACK_REQUIRED));
        assert!(self.owed.piggyback() >= header.sequence);
    }

    /// Processes a ping. `kept` says whether the socket layer makes the answer.
    fn pinged(&mut self, kept: bool) {
        let idle = self.told == self.made;
        if self.pings.ping(|| idle) && kept {
            self.made += 1;
            self.answers.push_back(self.made);
        }
        assert!(self.answers.len() <= MOST as usize);
    }

    /// Sends up to `count` messages of the socket layer.
    fn send(&mut self, count: u64) {
        let before = self.sent;
        self.sent = self.made.min(before.saturating_add(count));
        let now = before + 1..=self.sent;
        for &answer in self.answers.iter().filter(|answer| now.contains(answer)) {
            self.pings.answered(answer);
        }
    }
}

/// Decodes a header and its extensions from arbitrary bytes, and checks the result.
fn decode(bytes: &[u8]) -> Option<(Header, usize)> {
    let (header, payload) = Header::decode(bytes).ok()?;
    let again = header.encode();
    assert_eq!(Header::decode(&again), Ok((header, &[][..])));
    assert_eq!(Header::of_own(&again), header);
    let known = extensions(&header.extensions);
    let mut more = header.extensions;
    let added = Extension::Rdma { key: 7 };
    if add(&mut more, added) {
        let now = extensions(&more);
        // A received header may contain bytes after the last extension. A header that this host
        // makes contains no such bytes.
        assert_eq!(now.get(..known.len()), Some(&known[..]));
        assert_eq!(now.get(known.len()), Some(&Found::Own(added)));
    } else {
        assert_eq!(more, header.extensions);
    }
    Some((header, payload.len()))
}

/// Checks the private data of connection requests and of their answers.
fn hello(bytes: &[u8]) {
    if let Ok(hello) = accept(bytes, OWN, PEER) {
        assert_eq!((hello.from, hello.to), (PEER, OWN));
        assert_eq!(hello.version.major, 3);
        let (data, len) = hello.encode();
        assert_eq!(Hello::decode(&data[..len], false), Some(hello));
    }
    for v6 in [false, true] {
        if let Ok(hello) = accepted(bytes, v6, 1) {
            assert_eq!(Hello::decode(bytes, v6), Some(hello));
            assert_eq!(accepted(bytes, v6, 0), Err(Refusal::Reads));
        }
    }
}

/// Runs the fuzz target `rds` on these bytes.
pub fn run(data: &[u8]) {
    hello(data);
    let mut source = Source(data);
    let granted = source.number() as u32;
    let wanted = source.u8() & 1 != 0;
    let mut credits = Credits::new(wanted, granted, 128, 128);
    let mut connection = Connection {
        waits: wanted && granted != 0,
        ..Connection::default()
    };
    let mut last = Header::default();
    while !source.0.is_empty() {
        match source.u8() % 7 {
            0 => {
                if let Some((header, payload)) = decode(source.bytes(64)) {
                    last = header;
                    connection.fragment(&header, payload, &mut credits);
                }
            }
            // The peer sends the remaining fragments of the last message, as a correct peer does.
            1 => {
                let rest = last.len.saturating_sub(connection.kept).min(FRAGMENT_BYTES);
                connection.fragment(&last, rest as usize, &mut credits);
            }
            2 => {
                last = Header {
                    sequence: source.number(),
                    ack: source.number(),
                    len: source.number() as u32,
                    sport: source.u8().into(),
                    dport: source.u8().into(),
                    flags: source.u8(),
                    credit: source.u8(),
                    extensions: last.extensions,
                };
                let payload = source.number() as usize;
                connection.fragment(&last, payload, &mut credits);
            }
            // Programs send messages.
            3 => {
                connection.made = connection.made.max(source.number() >> 1);
                connection.send(source.number());
            }
            // The peer sends a frame that only acknowledges messages.
            4 => {
                let ack = source.number();
                let header = Header {
                    ack,
                    ..Header::default()
                };
                connection.fragment(&header, 0, &mut credits);
            }
            5 => credits.posted(source.u8().into()),
            _ => {
                if credits.spend().is_none() {
                    assert!(connection.waits);
                }
                let kept = source.u8() & 1 != 0;
                for _ in 0..8 * u32::from(source.u8()) {
                    connection.pinged(kept);
                }
            }
        }
    }
}

#[test]
fn the_inputs_that_the_fuzzer_has_found() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/fuzz/corpus/rds");
    let mut count = 0;
    for input in std::fs::read_dir(corpus).expect("a corpus") {
        run(&std::fs::read(input.expect("a file").path()).expect("bytes"));
        count += 1;
    }
    assert!(count > 5);
}

#[test]
fn random_inputs() {
    let mut random = crate::random::Random::new(5);
    for _ in 0..2000 {
        let len = random.below(400);
        let data: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
        run(&data);
    }
}
