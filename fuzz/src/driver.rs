//! The stable driver: it replays the corpus, then mutates it from a fixed seed. Coverage does not guide it. It is the
//! regression guard that every `make test` can afford.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::Target;

/// The longest mutated input: above the bound of a request head, so that bounds are crossed.
const INPUT_BYTES_MAX: usize = 20 << 10;

/// An input that broke a target, with all that is needed to reproduce it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The bytes.
    pub input: Vec<u8>,
    /// Its origin: a file, or a seed and an iteration.
    pub origin: String,
}

/// The seeds of a target, in the order of their names: file name and content.
///
/// # Errors
/// If `corpus/<target>` cannot be read.
pub fn corpus(target: &Target) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    let mut seeds = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        seeds.push((name, std::fs::read(entry.path())?));
    }
    seeds.sort();
    Ok(seeds)
}

/// Runs a target on every seed, then on `iterations` mutations of the seeds.
///
/// # Errors
/// The first input that made the target panic.
pub fn run(
    target: &Target,
    seeds: &[(String, Vec<u8>)],
    rng_seed: u64,
    iterations: u64,
) -> Result<(), Finding> {
    for (name, input) in seeds {
        try_one(target, input, || name.clone())?;
    }
    let mut rng = Rng(rng_seed);
    let mut input = Vec::new();
    for iteration in 0..iterations {
        mutate(&mut input, seeds, &mut rng);
        try_one(target, &input, || {
            format!("seed {rng_seed:#x}, iteration {iteration}")
        })?;
    }
    Ok(())
}

fn try_one(target: &Target, input: &[u8], origin: impl Fn() -> String) -> Result<(), Finding> {
    // A target owns nothing that a panic could leave inconsistent.
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    outcome.map_err(|_| Finding {
        input: input.to_vec(),
        origin: origin(),
    })
}

/// Words of HTTP. They are longer than a byte, so chance alone would rarely produce them.
const WORDS: [&[u8]; 28] = [
    b"\r\n",
    b"\r\n\r\n",
    b"\r",
    b"\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"=",
    b"-",
    b"*",
    b"%",
    b"%2e%2e/",
    b"/../",
    b"//",
    b"HTTP/1.1\r\n",
    b"HTTP/1.0\r\n",
    b"Host: a\r\n",
    b"\"",
    b"W/\"",
    b"bytes=",
    b"18446744073709551615",
    b"chunked",
    b";q=0.5",
    b"ffffffffffffffff\r\n",
    b"Content-Length: ",
];

/// Replaces `input` by a seed with one to eight changes.
fn mutate(input: &mut Vec<u8>, seeds: &[(String, Vec<u8>)], rng: &mut Rng) {
    input.clear();
    if !seeds.is_empty() {
        input.extend_from_slice(&seeds[rng.below(seeds.len())].1);
    }
    for _ in 0..=rng.below(8) {
        let at = rng.below(input.len() + 1);
        let end = (at + rng.below(12)).min(input.len());
        match rng.below(8) {
            0 => drop(input.drain(at..end)),
            1 => insert(input, at, WORDS[rng.below(WORDS.len())]),
            2 => insert(input, at, &[rng.next() as u8]),
            3 if at < input.len() => input[at] = rng.next() as u8,
            4 if at < input.len() => input[at] ^= 1 << rng.below(8),
            5 => {
                let piece = input[at..end].to_vec();
                let times = 1 << rng.below(12);
                insert(input, at, &piece.repeat(times));
            }
            6 if !seeds.is_empty() => {
                let other = &seeds[rng.below(seeds.len())].1;
                let from = rng.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => input.truncate(at),
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

fn insert(input: &mut Vec<u8>, at: usize, piece: &[u8]) {
    input.splice(at..at, piece.iter().copied());
}

/// splitmix64: small, and the same numbers on every machine.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::{corpus, run};
    use crate::{CANARY, TARGETS};

    const SEED: u64 = 0x5eed_0001;
    const ITERATIONS: u64 = 20_000;

    #[test]
    fn every_target_survives_its_corpus_and_mutations_of_it() {
        for target in TARGETS {
            println!("{}: seed {SEED:#x}, {ITERATIONS} iterations", target.name);
            let seeds = corpus(target).expect(target.name);
            assert!(seeds.len() >= 5, "{} has too few seeds", target.name);
            if let Err(finding) = run(target, &seeds, SEED, ITERATIONS) {
                let start = &finding.input[..finding.input.len().min(400)];
                let (name, len) = (target.name, finding.input.len());
                panic!(
                    "{name}, {}: {len} bytes: {}",
                    finding.origin,
                    start.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn the_canary_is_caught_in_a_seed_and_by_mutation() {
        let bad = [("bad".to_owned(), b"a\r\n\r\nb".to_vec())];
        let replayed = run(&CANARY, &bad, SEED, 0).expect_err("a seed breaks it");
        assert_eq!(replayed.origin, "bad");
        let good = [("good".to_owned(), b"a\r\nb\r\n".to_vec())];
        let found = run(&CANARY, &good, SEED, ITERATIONS).expect_err("a mutation breaks it");
        let again = run(&CANARY, &good, SEED, ITERATIONS).expect_err("and does so again");
        assert_eq!(found, again, "the seed replays");
    }

    #[test]
    fn every_folder_of_the_corpus_belongs_to_a_target() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
        for entry in std::fs::read_dir(root).expect("fuzz/corpus") {
            let entry = entry.expect("an entry");
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.path().is_dir();
            assert!(
                !is_folder || crate::find(&name).is_some(),
                "{name} has no target"
            );
        }
    }
}
