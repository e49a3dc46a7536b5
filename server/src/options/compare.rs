//! The option `compare`: replaces a design of the server by another one, so that the two can be measured. The table in
//! docs/papers.md has all words.

use ackpace_core::balance::Moves;
use ackpace_core::congestion::Delay;
use ackpace_core::disk::Order;
use ackpace_core::place::{BREAK_EVEN_BYTES, Policy as Place};
use ackpace_core::prefetch::Prefetch;
use ackpace_core::units::{KIB, MIB, US_PER_S, duration_us};
use ackpace_share::Policy;
use ackpace_share::eatbt::Need;

use super::value::{ValueError, nearest, shown};
use super::{duration, size};

/// The designs that a server uses; by default its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compare {
    /// `prefetch`, with `prefetch_time` or `prefetch_size`: how much is read ahead of a client.
    pub prefetch: Prefetch,
    /// `order`: in which order a disk is read.
    pub order: Order,
    /// `cancel`: whether reads for departed clients are dropped.
    pub cancel: bool,
    /// `delay`: how reads for congested clients are scheduled.
    pub delay: Delay,
    /// `read`: whether reads for one client alone go past the page cache.
    pub direct: bool,
    /// `send`: whether each socket is filled as soon and as far as it takes bytes.
    pub eager: bool,
    /// `pacing`: whether a first window that would be a burst is spread over its round trip.
    pub pacing: bool,
    /// `moves`: when workers give live connections to each other.
    pub moves: Moves,
    /// `payload`: whether payload of origins is copied when it is sent, and written over in place.
    pub copies: bool,
    /// `place`: by what a node of a cluster is chosen.
    pub place: Place,
    /// `break_even`: from which length on connections move to the node that has the object, bytes.
    pub break_even_bytes: u64,
    /// `share`, with `send_need`: how send memory is divided, if it is.
    pub share: Policy,
}

/// The values that belong to one word of another key.
#[derive(Default)]
struct Parameters {
    target_us: Option<u64>,
    read_bytes: Option<u64>,
    need: Option<Need>,
}

const KEYS: [&str; 15] = [
    "prefetch",
    "prefetch_time",
    "prefetch_size",
    "order",
    "cancel",
    "delay",
    "read",
    "send",
    "pacing",
    "moves",
    "payload",
    "place",
    "break_even",
    "share",
    "send_need",
];

impl Default for Compare {
    fn default() -> Self {
        Self {
            prefetch: Prefetch::Tdap,
            order: Order::CLook,
            cancel: true,
            delay: Delay::Rate,
            direct: true,
            eager: false,
            pacing: true,
            moves: Moves::ByLoad,
            copies: false,
            place: Place::Algorithm1,
            break_even_bytes: BREAK_EVEN_BYTES,
            share: Policy::ByNeed(Need::Law),
        }
    }
}

impl Compare {
    /// Reads `none`, or words such as `prefetch=paper,cancel=off`.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        let mut compare = Self::default();
        if text == "none" {
            return Ok(compare);
        }
        let (mut parameters, mut named) = (Parameters::default(), Vec::new());
        for word in text.split(',').map(str::trim) {
            let Some((what, how)) = word.split_once('=') else {
                return Err(ValueError::new(format!(
                    "{} is neither none nor WHAT=HOW, such as prefetch=paper",
                    shown(word)
                )));
            };
            let what = one_of(what, &KEYS.map(|key| (key, key)))?;
            if named.contains(&what) {
                return Err(ValueError::new(format!("{what} is there twice")));
            }
            named.push(what);
            compare
                .set(&mut parameters, what, how)
                .map_err(|error| ValueError::new(format!("{what}: {error}")))?;
        }
        compare.complete(&parameters);
        Ok(compare)
    }

    fn set(&mut self, also: &mut Parameters, what: &str, how: &str) -> Result<(), ValueError> {
        match what {
            "prefetch" => {
                let (target_us, read_bytes) = (3 * US_PER_S, 128 * KIB);
                let ways = [
                    ("tdap", Prefetch::Tdap),
                    ("paper", Prefetch::Paper),
                    ("rate", Prefetch::Rate { target_us }),
                    ("fixed", Prefetch::Fixed { read_bytes }),
                ];
                self.prefetch = one_of(how, &ways)?;
            }
            "prefetch_time" => {
                let time = duration::within(how, 100..=60_000)?;
                also.target_us = Some(duration_us(time));
            }
            "prefetch_size" => {
                let size = size::bytes_within(how, 64 * KIB, 4 * MIB)?;
                also.read_bytes = Some(size.resolve(0)); // it is no percentage
            }
            "order" => {
                let orders = [
                    ("c-look", Order::CLook),
                    ("deadline", Order::Deadline),
                    ("arrival", Order::Arrival),
                ];
                self.order = one_of(how, &orders)?;
            }
            "payload" => self.copies = one_of(how, &[("kept", false), ("copy", true)])?,
            "cancel" => self.cancel = one_of(how, &[("on", true), ("off", false)])?,
            "delay" => {
                let ways = [
                    ("rate", Delay::Rate),
                    ("paper", Delay::Paper),
                    ("off", Delay::Off),
                ];
                self.delay = one_of(how, &ways)?;
            }
            "read" => self.direct = one_of(how, &[("direct", true), ("page-cache", false)])?,
            "send" => self.eager = one_of(how, &[("margin", false), ("eager", true)])?,
            "pacing" => self.pacing = one_of(how, &[("first-flight", true), ("off", false)])?,
            "moves" => {
                let ways = [
                    ("by-load", Moves::ByLoad),
                    ("off", Moves::Off),
                    ("always", Moves::Always),
                ];
                self.moves = one_of(how, &ways)?;
            }
            "place" => self.place = place(how)?,
            "break_even" => {
                let size = size::bytes_within(how, 0, u64::MAX)?;
                self.break_even_bytes = size.resolve(0); // it is no percentage
            }
            "share" => {
                let policies = [
                    ("by-need", Policy::ByNeed(Need::Law)),
                    ("window", Policy::Window),
                    ("equal", Policy::Equal),
                ];
                self.share = one_of(how, &policies)?;
            }
            _ => {
                let needs = [("law", Need::Law), ("paper", Need::Paper)];
                also.need = Some(one_of(how, &needs)?);
            }
        }
        Ok(())
    }

    /// Gives the parameters to the words that they belong to. One whose word is not there changes nothing.
    fn complete(&mut self, also: &Parameters) {
        match (&mut self.prefetch, also.target_us, also.read_bytes) {
            (Prefetch::Rate { target_us }, Some(given), _) => *target_us = given,
            (Prefetch::Fixed { read_bytes }, _, Some(given)) => *read_bytes = given,
            _ => {}
        }
        if let (Policy::ByNeed(need), Some(given)) = (&mut self.share, also.need) {
            *need = given;
        }
    }
}

fn place(how: &str) -> Result<Place, ValueError> {
    let policies = [
        ("algorithm-1", Place::Algorithm1),
        ("as-printed", Place::Algorithm1Printed),
        ("lard", Place::Lard),
        ("bounded-hash", Place::BoundedHashing),
        ("round-robin", Place::RoundRobin),
        ("weighted", Place::WeightedRoundRobin),
        ("random", Place::Random),
    ];
    one_of(how, &policies)
}

fn one_of<T: Copy>(word: &str, allowed: &[(&str, T)]) -> Result<T, ValueError> {
    let named = allowed.iter().find(|(name, _)| *name == word);
    named.map(|(_, value)| *value).ok_or_else(|| {
        let names = || allowed.iter().map(|(name, _)| *name);
        let near = nearest(word, names());
        let others = names().filter(|name| Some(*name) != near);
        let all: Vec<&str> = near.into_iter().chain(others).collect();
        ValueError::new(format!("{} is not one of {}", shown(word), all.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(compare: &str) -> String {
        Compare::parse(compare).unwrap_err().to_string()
    }

    #[test]
    fn without_words_the_server_works_by_its_own_designs() {
        assert_eq!(Compare::parse("none"), Ok(Compare::default()));
        let own = "prefetch=tdap,order=c-look,cancel=on,delay=rate,read=direct,send=margin,pacing=first-flight,moves=by-load,place=algorithm-1,break_even=64KiB,share=by-need,send_need=law";
        assert_eq!(Compare::parse(own), Ok(Compare::default()));
    }

    /// Checks that the words change this and nothing else.
    fn replaces(words: &str, change: impl Fn(&mut Compare)) {
        let mut expected = Compare::default();
        change(&mut expected);
        assert_eq!(Compare::parse(words), Ok(expected), "{words}");
    }

    #[test]
    fn each_word_replaces_one_design() {
        let rate = |target_us| Prefetch::Rate { target_us };
        let fixed = |read_bytes| Prefetch::Fixed { read_bytes };
        replaces("prefetch=paper", |all| all.prefetch = Prefetch::Paper);
        replaces("prefetch=rate", |all| all.prefetch = rate(3_000_000));
        replaces("prefetch=rate,prefetch_time=500ms", |all| {
            all.prefetch = rate(500_000)
        });
        replaces("prefetch=fixed", |all| all.prefetch = fixed(128 << 10));
        replaces("prefetch_size=4MiB, prefetch=fixed", |all| {
            all.prefetch = fixed(4 << 20)
        });
        replaces("order=deadline", |all| all.order = Order::Deadline);
        replaces("order=arrival", |all| all.order = Order::Arrival);
        replaces("cancel=off", |all| all.cancel = false);
        replaces("delay=paper", |all| all.delay = Delay::Paper);
        replaces("delay=off", |all| all.delay = Delay::Off);
        replaces("read=page-cache", |all| all.direct = false);
        replaces("send=eager", |all| all.eager = true);
        replaces("pacing=off", |all| all.pacing = false);
        replaces("moves=off", |all| all.moves = Moves::Off);
        replaces("moves=always", |all| all.moves = Moves::Always);
        replaces("place=lard", |all| all.place = Place::Lard);
        replaces("place=random", |all| all.place = Place::Random);
        replaces("break_even=0", |all| all.break_even_bytes = 0);
        replaces("share=window", |all| all.share = Policy::Window);
        replaces("share=equal", |all| all.share = Policy::Equal);
        replaces("send_need=paper", |all| {
            all.share = Policy::ByNeed(Need::Paper)
        });
    }

    #[test]
    fn what_is_not_allowed_gets_what_is_the_nearest_first() {
        let keys = "cancel, prefetch, prefetch_time, prefetch_size, order, delay, read, send, pacing, moves, payload, place, break_even, share, send_need";
        let neither = "is neither none nor WHAT=HOW, such as prefetch=paper";
        for (words, expected) in [
            ("", format!("\"\" {neither}")),
            ("cancel=off,", format!("\"\" {neither}")),
            ("cancel", format!("cancel {neither}")),
            ("cancle=off", format!("cancle is not one of {keys}")),
        ] {
            assert_eq!(text(words), expected);
        }
        for (words, expected) in [
            (
                "prefetch=papr",
                "prefetch: papr is not one of paper, tdap, rate, fixed",
            ),
            (
                "order=x",
                "order: x is not one of c-look, deadline, arrival",
            ),
            ("cancel=off,order=c-look,cancel=on", "cancel is there twice"),
            (
                "prefetch_time=2min",
                "prefetch_time: 2min is out of range: 100ms to 1min",
            ),
            (
                "prefetch_size=5%",
                "prefetch_size: 5% is out of range: 64KiB to 4MiB",
            ),
        ] {
            assert_eq!(text(words), expected);
        }
    }

    #[test]
    fn the_table_of_the_docs_has_every_word() {
        let page = include_str!("../../../docs/papers.md");
        for key in KEYS {
            assert!(page.contains(&format!("| `{key}` |")), "{key}");
        }
    }
}
