// SPDX-License-Identifier: GPL-2.0

//! Runs the fuzz targets without a fuzzer: on the corpus, on mutations of the corpus, and on random
//! bytes.
//!
//! The test cases are the same in every run.

use std::{
    fs,
    path::{
        Path,
        PathBuf, //
    }, //
};

#[path = "../../fuzz/targets/mod.rs"]
pub(crate) mod targets;

#[test]
fn every_input_of_the_corpus_and_its_neighbours() {
    for (name, target) in targets::ALL {
        let corpus = corpus(name);
        assert!(corpus.len() >= 8, "{name}");
        let mut random = Random(1);
        for input in &corpus {
            target(input);
            for len in 0..input.len().min(256) {
                target(&input[..len]);
            }
            for _ in 0..200 {
                target(&random.mutated(input, &corpus));
            }
        }
    }
}

#[test]
fn random_bytes() {
    for (_, target) in targets::ALL {
        let mut random = Random(2);
        for _ in 0..20_000 {
            let len = random.below(160);
            let input: Vec<u8> = (0..len).map(|_| random.byte()).collect();
            target(&input);
        }
    }
}

/// Returns all inputs in the corpus of a target, in a fixed order.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// The SplitMix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Generates any byte, but generates small values more often, because most words of a message
    /// are small.
    fn byte(&mut self) -> u8 {
        let bits = self.next();
        if bits & 0x300 == 0 {
            bits as u8
        } else {
            (bits & 3) as u8
        }
    }

    /// Returns `input` with a few bytes that are changed, moved, or copied from another input.
    fn mutated(&mut self, input: &[u8], corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            match (self.below(5), bytes.get_mut(at)) {
                (0 | 1, Some(byte)) => *byte = self.byte(),
                (2, Some(byte)) => *byte ^= 1 << self.below(8),
                (3, _) => {
                    let other = &corpus[self.below(corpus.len())];
                    let from = self.below(other.len());
                    bytes.truncate(at);
                    bytes.extend(&other[from..]);
                }
                _ => {
                    let byte = self.byte();
                    bytes.insert(at, byte);
                }
            }
        }
        bytes
    }
}
