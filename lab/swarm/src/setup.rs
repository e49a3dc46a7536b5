//! A prepared workload: the data shared by all threads of a swarm, in microseconds and bytes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::draw::Dice;
use super::objects::Catalog;
use super::workload::{Class, Kind, RateSpread, StartSpread, Workload};
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
    /// Its number of clients.
    pub clients: u32,
    /// Its objects.
    pub catalog: Catalog,
    /// When each client starts.
    pub begins_us: Vec<u64>,
    /// First source address, and the number of addresses.
    pub sources: Option<(IpAddr, u32)>,
    /// `stall_s`.
    pub stall_us: u64,
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
    /// Checks the workload, reads its traces and draws the start times.
    pub fn new(workload: &Workload, target: SocketAddr) -> Result<Self> {
        workload.check().map_err(LabError::Setup)?;
        let prepare = |(number, class): (usize, &Class)| -> Result<PreparedClass> {
            let clients = workload.clients_of(class);
            let sources = class.sources().map_err(LabError::Setup)?;
            if sources.is_some() && target.is_ipv6() {
                let what = format!("class \"{}\": source: only with an IPv4 target", class.name);
                return Err(LabError::Setup(what));
            }
            Ok(PreparedClass {
                clients,
                catalog: Catalog::new(class)?,
                begins_us: begins(class, clients, workload.seed, number),
                sources,
                stall_us: us(class.stall_s),
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
            .map(|prepared| u64::from(prepared.clients))
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
    /// Draws the rate of a client in bytes per second; 0 = as fast as possible.
    pub fn rate_bytes_per_s(&self, dice: &mut Dice) -> u64 {
        let Some(rate) = &self.class.rate else {
            return 0;
        };
        let fixed = rate.bits_per_s.unwrap_or(0);
        let min = rate.min_bits_per_s.unwrap_or(fixed) as f64;
        let max = rate.max_bits_per_s.unwrap_or(fixed) as f64;
        let bits_per_s = match rate.spread {
            None => fixed as f64,
            Some(RateSpread::Uniform) => min + dice.unit() * (max - min),
            Some(RateSpread::Pareto) => dice.pareto(rate.alpha.unwrap_or(1.2), min, max),
        };
        (bits_per_s as u64 / 8).max(1)
    }

    /// How a client with this rate reads.
    pub fn reading(&self, rate_bytes_per_s: u64) -> Reading {
        let class = &self.class;
        match (class.kind, &class.segments, &class.burst) {
            (Kind::Bursty, _, Some(burst)) => Reading::Bursts {
                len_bytes: burst.len_bytes,
                every_us: us(burst.every_s),
            },
            (Kind::Player, Some(segments), _) => segments.times.map_or(Reading::Free, |times| {
                Reading::Steady((rate_bytes_per_s as f64 * times).max(1.0) as u64)
            }),
            _ => Reading::Steady(rate_bytes_per_s),
        }
    }

    /// SO_RCVBUF of a client with this rate; `None` leaves it to the kernel.
    pub fn receive_buffer_bytes(&self, rate_bytes_per_s: u64) -> Option<u32> {
        let asked = self.class.receive_buffer_bytes;
        if self.class.kind != Kind::Plain {
            return asked;
        }
        // The window is negotiated when the connection begins, so the buffer must also fit later rates.
        let later = self.class.change.iter().map(|change| change.bits_per_s / 8);
        let fastest = later.fold(rate_bytes_per_s, u64::max);
        let paced = (fastest / 2).clamp(PACED_BUFFER_BYTES_MIN, 1 << 30) as u32;
        asked.or((rate_bytes_per_s > 0).then_some(paced))
    }

    /// The address that a client binds to.
    pub fn source(&self, client: u32) -> Option<SocketAddr> {
        let (IpAddr::V4(first), count) = self.sources? else {
            return None;
        };
        let address = u32::from(first) + client % count;
        Some(SocketAddr::new(IpAddr::V4(address.into()), 0))
    }
}

/// Converts seconds to whole microseconds.
pub fn us(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

/// Draws the start times of the clients of a class.
fn begins(class: &Class, clients: u32, seed: u64, number: usize) -> Vec<u64> {
    let start = class.start.unwrap_or_default();
    let mut dice = Dice::of(seed, number, u32::MAX);
    let mut at_s = start.after_s;
    let mut begin = |_| match start.spread {
        StartSpread::Uniform => us(start.after_s + dice.unit() * start.over_s),
        StartSpread::Poisson => {
            at_s += dice.exponential(start.over_s / f64::from(clients));
            us(at_s)
        }
    };
    (0..clients).map(&mut begin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Burst, Objects, Rate, Segments, Start};

    fn prepared(change: impl FnOnce(&mut Class)) -> PreparedClass {
        let mut class = Class::new("a", 1000, Objects::one("/a"));
        change(&mut class);
        let workload = Workload {
            seed: 3,
            classes: vec![class],
            ..Workload::default()
        };
        let target = "127.0.0.1:80".parse().unwrap();
        Setup::new(&workload, target).unwrap().classes.remove(0)
    }

    #[test]
    fn begins_lie_in_their_span() {
        let start = |spread| {
            let start = Start {
                after_s: 1.0,
                over_s: 2.0,
                spread,
            };
            prepared(|class| class.start = Some(start)).begins_us
        };
        let uniform = start(StartSpread::Uniform);
        assert!(
            uniform
                .iter()
                .all(|at_us| (1_000_000..=3_000_000).contains(at_us))
        );
        let poisson = start(StartSpread::Poisson);
        let last_us = poisson[999];
        assert!(
            poisson.is_sorted() && last_us.abs_diff(3_000_000) < 250_000,
            "seed 3: {last_us}"
        );
        assert_eq!(prepared(|_| ()).begins_us, vec![0; 1000]);
    }

    #[test]
    fn rates_are_drawn_in_bytes_and_buffers_follow_them() {
        let mut dice = Dice::of(3, 0, 0);
        assert_eq!(prepared(|_| ()).rate_bytes_per_s(&mut dice), 0);
        let paced = prepared(|class| class.rate = Some(Rate::fixed(2_000_000)));
        assert_eq!(paced.rate_bytes_per_s(&mut dice), 250_000);
        assert_eq!(paced.receive_buffer_bytes(250_000), Some(125_000));
        assert_eq!(paced.receive_buffer_bytes(1000), Some(65_536));
        assert_eq!(paced.receive_buffer_bytes(0), None);
        assert_eq!(paced.reading(250_000), Reading::Steady(250_000));
        let spread = Rate::spread(RateSpread::Pareto, 800_000, 8_000_000);
        let spread = prepared(|class| class.rate = Some(spread));
        assert!(
            (0..100).all(|_| (100_000..=1_000_000).contains(&spread.rate_bytes_per_s(&mut dice)))
        );
    }

    #[test]
    fn who_limits_itself_reads_by_its_kind_from_a_buffer_that_is_the_kernels_affair() {
        let of = |kind| {
            prepared(|class| {
                class.kind = kind;
                class.rate = (kind != Kind::Bursty).then(|| Rate::fixed(2_000_000));
                class.object.len_bytes = Some(1 << 20);
                class.segments = (kind == Kind::Player).then_some(Segments {
                    film_s: 4.0,
                    times: Some(4.0),
                });
                class.burst = (kind == Kind::Bursty).then_some(Burst {
                    len_bytes: 300_000,
                    every_s: 1.5,
                });
            })
        };
        let bursts = Reading::Bursts {
            len_bytes: 300_000,
            every_us: 1_500_000,
        };
        assert_eq!(bursts.rate_bytes_per_s(), 200_000);
        for (kind, reading) in [
            (Kind::SelfPaced, Reading::Steady(250_000)),
            (Kind::Player, Reading::Steady(1_000_000)),
            (Kind::Bursty, bursts),
        ] {
            let mut prepared = of(kind);
            assert_eq!(prepared.reading(250_000), reading);
            assert_eq!(prepared.receive_buffer_bytes(250_000), None, "{kind:?}");
            prepared.class.receive_buffer_bytes = Some(32 << 10);
            assert_eq!(prepared.receive_buffer_bytes(250_000), Some(32 << 10));
        }
        let mut player = of(Kind::Player);
        player.class.segments = Some(Segments {
            film_s: 4.0,
            times: None,
        });
        assert_eq!(player.reading(250_000), Reading::Free, "at full speed");
    }

    #[test]
    fn sources_are_dealt_one_after_the_other() {
        let prepared = prepared(|class| class.source = Some("10.0.0.1-10.0.0.3".into()));
        let address = |client| prepared.source(client).unwrap().ip().to_string();
        assert_eq!([0, 2, 3].map(address), ["10.0.0.1", "10.0.0.3", "10.0.0.1"]);
    }
}
