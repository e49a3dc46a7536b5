//! A prepared workload: the data shared by all threads of a swarm, in microseconds and bytes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use super::draw::Dice;
use super::objects::Catalog;
use super::workload::{Class, Kind, Workload};
use ackpace_lab_base::error::{LabError, Result};

/// The time that never comes.
pub const NEVER_US: u64 = u64::MAX;
/// Descriptors beside the clients': standard ones, epoll, wake-ups, files.
const OTHER_DESCRIPTORS: u64 = 64;
/// Minimum SO_RCVBUF of a client with a rate: it holds a packet of the loopback device.
const PACED_BUFFER_BYTES_MIN: u64 = 64 << 10;

/// The constants of a run.
#[derive(Debug)]
pub struct Setup {
    /// Address of the server.
    pub target: SocketAddr,
    /// Seed of all draws.
    pub seed: u64,
    /// Start of the run, time 0.
    pub epoch: Instant,
    /// The classes, as in the workload.
    pub classes: Vec<PreparedClass>,
}

/// A prepared class.
#[derive(Debug)]
pub struct PreparedClass {
    /// The class as in the workload.
    pub class: Class,
    /// Its objects.
    pub catalog: Catalog,
    /// When each client starts.
    pub begins_us: Vec<u64>,
    /// First source address, and the number of addresses.
    pub sources: Option<(Ipv4Addr, u32)>,
    /// `timeout_s`.
    pub timeout_us: u64,
}

/// How a client reads from its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Whatever is available.
    Free,
    /// At this rate in bytes per second; 0 = as fast as possible.
    Steady(u64),
    /// In bursts.
    Bursts {
        /// Length of each burst.
        len_bytes: u64,
        /// Time from the start of one burst to the start of the next.
        every_us: u64,
    },
}

impl Reading {
    /// The mean rate; 0 = as fast as possible.
    pub fn rate_bytes_per_s(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Steady(rate_bytes_per_s) => rate_bytes_per_s,
            Self::Bursts {
                len_bytes,
                every_us,
            } => (u128::from(len_bytes) * 1_000_000 / u128::from(every_us.max(1))).max(1) as u64,
        }
    }
}

impl Setup {
    /// Draws the start times.
    pub fn new(workload: &Workload, target: SocketAddr) -> Result<Self> {
        let prepare = |(number, class): (usize, &Class)| -> Result<PreparedClass> {
            Ok(PreparedClass {
                catalog: Catalog::new(class),
                begins_us: begins(class, workload.seed, number),
                sources: class.sources().map_err(LabError::Setup)?,
                timeout_us: us(class.timeout_s),
                class: class.clone(),
            })
        };
        let classes = workload.classes.iter().enumerate().map(prepare);
        Ok(Self {
            target,
            seed: workload.seed,
            classes: classes.collect::<Result<_>>()?,
            epoch: Instant::now(),
        })
    }

    /// Microseconds since the start of the run.
    pub fn now_us(&self) -> u64 {
        self.epoch.elapsed().as_micros() as u64
    }

    /// Number of clients of all classes.
    pub fn clients(&self) -> u64 {
        self.classes
            .iter()
            .map(|prepared| u64::from(prepared.class.clients))
            .sum()
    }

    /// Raises RLIMIT_NOFILE to what the clients need; the error says how many.
    pub fn raise_descriptors(&self) -> Result<()> {
        let needed = self.clients() + OTHER_DESCRIPTORS;
        let now = getrlimit(Resource::Nofile);
        let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
        if enough(now.current) {
            return Ok(());
        }
        let maximum = if enough(now.maximum) {
            now.maximum
        } else {
            Some(needed) // root may raise the hard limit too, up to fs.nr_open
        };
        let wanted = Rlimit {
            current: Some(needed),
            maximum,
        };
        setrlimit(Resource::Nofile, wanted).map_err(|error| {
            let hard = now.maximum.unwrap_or(0);
            LabError::Setup(format!(
                "{} clients need {needed} open files, the hard limit is {hard} ({error}): raise it (`ulimit -Hn {needed}` as root, LimitNOFILE= of a unit, sysctl fs.nr_open), or take fewer clients",
                self.clients()
            ))
        })
    }
}

impl PreparedClass {
    /// The rate of a client in bytes per second; 0 = as fast as possible.
    pub fn rate_bytes_per_s(&self) -> u64 {
        let rate = self.class.rate_bits_per_s;
        rate.map_or(0, |bits_per_s| (bits_per_s / 8).max(1))
    }

    /// How a client reads.
    pub fn reading(&self) -> Reading {
        let rate_bytes_per_s = self.rate_bytes_per_s();
        match self.class.kind {
            Kind::Bursty { len_bytes, every_s } => Reading::Bursts {
                len_bytes,
                every_us: us(every_s),
            },
            Kind::Player { times, .. } => times.map_or(Reading::Free, |times| {
                Reading::Steady((rate_bytes_per_s as f64 * times).max(1.0) as u64)
            }),
            Kind::Plain | Kind::SelfPaced => Reading::Steady(rate_bytes_per_s),
        }
    }

    /// SO_RCVBUF of a client; `None` leaves it to the kernel.
    pub fn receive_buffer_bytes(&self) -> Option<u32> {
        let asked = self.class.receive_buffer_bytes;
        let rate_bytes_per_s = self.rate_bytes_per_s();
        if self.class.kind != Kind::Plain || rate_bytes_per_s == 0 {
            return asked;
        }
        let paced = (rate_bytes_per_s / 2).clamp(PACED_BUFFER_BYTES_MIN, 1 << 30) as u32;
        asked.or(Some(paced))
    }

    /// The address that a client binds to.
    pub fn source(&self, client: u32) -> Option<SocketAddr> {
        let (first, count) = self.sources?;
        let address = u32::from(first) + client % count;
        Some(SocketAddr::new(IpAddr::V4(address.into()), 0))
    }
}

/// Converts seconds to whole microseconds.
pub fn us(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// Draws the start times of the clients of a class.
fn begins(class: &Class, seed: u64, number: usize) -> Vec<u64> {
    let mut dice = Dice::of(seed, number, u32::MAX);
    let mut begin = |_| us(class.start.after_s + dice.unit() * class.start.over_s);
    (0..class.clients).map(&mut begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Objects;

    fn prepared(change: impl FnOnce(&mut Class)) -> PreparedClass {
        let mut class = Class::new("a", 1000, Objects::one("a"));
        change(&mut class);
        let workload = Workload {
            seed: 3,
            classes: vec![class],
        };
        let target = "127.0.0.1:80".parse().unwrap();
        Setup::new(&workload, target).unwrap().classes.remove(0)
    }

    #[test]
    fn each_kind_reads_in_its_way_and_only_a_plain_clients_buffer_follows_its_rate() {
        let of = |kind, rate_bits_per_s| {
            let prepared = prepared(|class| {
                (class.kind, class.rate_bits_per_s) = (kind, rate_bits_per_s);
            });
            (prepared.reading(), prepared.receive_buffer_bytes())
        };
        let bursts = Reading::Bursts {
            len_bytes: 300_000,
            every_us: 1_500_000,
        };
        assert_eq!(bursts.rate_bytes_per_s(), 200_000);
        let player = |times| Kind::Player { film_s: 4.0, times };
        let bursty = Kind::Bursty {
            len_bytes: 300_000,
            every_s: 1.5,
        };
        let rate = Some(2_000_000);
        for (kind, rate, reading, buffer) in [
            (Kind::Plain, None, Reading::Steady(0), None),
            (Kind::Plain, rate, Reading::Steady(250_000), Some(125_000)),
            (Kind::Plain, Some(8000), Reading::Steady(1000), Some(65_536)),
            (Kind::SelfPaced, rate, Reading::Steady(250_000), None),
            (player(Some(4.0)), rate, Reading::Steady(1_000_000), None),
            (player(None), rate, Reading::Free, None),
            (bursty, None, bursts, None),
        ] {
            assert_eq!(of(kind, rate), (reading, buffer), "{kind:?}");
        }
    }
}
