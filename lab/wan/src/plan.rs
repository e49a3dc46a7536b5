//! What a topology means: links of the model, and paths through them.

use super::topology::{LinkSpec, PathSpec, Topology};
use ackpace_sim::models::link::{LinkProfile, Loss, QueueDiscipline, Red};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// The default queue, as time at the link's rate.
const QUEUE_DEFAULT_MS: f64 = 100.0;
/// Its minimum: ten packets.
const QUEUE_DEFAULT_BYTES_MIN: u64 = 15_000;
/// Seed of all losses, RED decisions and spreads.
const SEED: u64 = 1;

/// Index of a link in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkId(pub usize);

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server to a client.
    Down,
    /// From a client to the server.
    Up,
}

/// A link with its name and its seed.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Name: a shared one's, or `PATH down`, `PATH up`.
    pub name: String,
    /// Parameters of the model.
    pub profile: LinkProfile,
    /// Seed of its draws.
    pub seed: u64,
}

/// A path with its links.
#[derive(Clone, Debug)]
pub struct PathPlan {
    /// Addresses of its clients.
    pub clients: RangeInclusive<Ipv4Addr>,
    down: Vec<LinkId>,
    up: [LinkId; 1],
}

/// The links and paths of a topology.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All links: the shared ones, then each path's own, down and up.
    pub links: Vec<LinkPlan>,
    /// All paths, in the order in which they are tried.
    pub paths: Vec<PathPlan>,
}

impl Plan {
    /// The links and paths of a topology.
    ///
    /// # Errors
    /// Names an address or a link that there is not.
    pub fn of(topology: &Topology) -> Result<Plan, String> {
        let mut plan = Plan::default();
        for (name, spec) in &topology.link {
            plan.link((*name).to_owned(), spec);
        }
        for path in &topology.path {
            plan.path(path)?;
        }
        Ok(plan)
    }

    /// A link by its name.
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        let found = self.links.iter().position(|link| link.name == name);
        found.map(LinkId)
    }

    fn path(&mut self, spec: &PathSpec) -> Result<(), String> {
        let clients = clients(&spec.clients)?;
        let shared = match spec.down_through {
            None => None,
            Some(name) => Some(self.link_named(name).ok_or(format!("no link {name:?}"))?),
        };
        let ranges: Vec<_> = match spec.per_client {
            true => each(&clients).map(|one| one..=one).collect(),
            false => vec![clients],
        };
        for clients in ranges {
            let name = match spec.per_client {
                true => format!("{}/{}", spec.name, clients.start()),
                false => spec.name.clone(),
            };
            // The same factor in both directions, independent of other paths.
            let rate = 1.0 + spec.rate_spread * spread_of(&name, 1);
            let delay = 1.0 + spec.delay_spread * spread_of(&name, 2);
            let own = |spec: &LinkSpec| LinkSpec {
                rate_mbit_per_s: spec.rate_mbit_per_s.map(|value| value * rate),
                delay_ms: spec.delay_ms * delay,
                ..spec.clone()
            };
            let down = self.link(format!("{name} down"), &own(&spec.down));
            let up = self.link(format!("{name} up"), &own(&spec.up));
            self.paths.push(PathPlan {
                clients,
                down: shared.into_iter().chain([down]).collect(),
                up: [up],
            });
        }
        Ok(())
    }

    fn link(&mut self, name: String, spec: &LinkSpec) -> LinkId {
        self.links.push(LinkPlan {
            profile: profile(spec),
            seed: SEED ^ hash(&name),
            name,
        });
        LinkId(self.links.len() - 1)
    }
}

impl PathPlan {
    /// Its links in one direction, in travelling order; at least one.
    pub fn links(&self, direction: Direction) -> &[LinkId] {
        match direction {
            Direction::Down => &self.down,
            Direction::Up => &self.up,
        }
    }
}

/// The model's parameters.
fn profile(spec: &LinkSpec) -> LinkProfile {
    let bytes_per_ms = spec.rate_mbit_per_s.unwrap_or(0.0) * 1e6 / 8e3;
    let limit_bytes = match (spec.queue_bytes, spec.queue_ms) {
        (Some(bytes), _) => bytes,
        (_, Some(ms)) => (ms * bytes_per_ms) as u64,
        _ => ((QUEUE_DEFAULT_MS * bytes_per_ms) as u64).max(QUEUE_DEFAULT_BYTES_MIN),
    };
    let queue = match &spec.red {
        None => QueueDiscipline::DropTail { limit_bytes },
        Some(red) => QueueDiscipline::Red(Red {
            min_bytes: red.min_bytes,
            max_bytes: red.max_bytes,
            p_max: 0.1,
            weight: 0.002,
            limit_bytes,
            ecn: false,
            gentle: true,
        }),
    };
    let loss = match spec.loss {
        0.0 => Loss::None,
        p => Loss::Bernoulli { p },
    };
    LinkProfile {
        rate_bits_per_s: spec.rate_mbit_per_s.map(|mbit| (mbit * 1e6).round() as u64),
        delay_us: (spec.delay_ms * 1e3).round() as u64,
        jitter_us: 0,
        may_reorder: false,
        queue,
        loss,
        mark: 0.0,
    }
}

/// The fewest prefixes that together cover exactly the range, as (address, length).
pub fn prefixes(range: &RangeInclusive<Ipv4Addr>) -> Vec<(Ipv4Addr, u32)> {
    let (mut at, last) = (number(range.start()), number(range.end()));
    let mut prefixes = Vec::new();
    while at <= last {
        let mut free = at.trailing_zeros().min(32);
        // The largest aligned block that ends within the range.
        while free > 0 && last - at < (1 << free) - 1 {
            free -= 1;
        }
        prefixes.push((address(at), 32 - free));
        at += 1 << free;
    }
    prefixes
}

/// `A` or `A-B`.
fn clients(text: &str) -> Result<RangeInclusive<Ipv4Addr>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("clients {text:?}")),
    }
}

fn each(range: &RangeInclusive<Ipv4Addr>) -> impl Iterator<Item = Ipv4Addr> {
    (number(range.start())..=number(range.end())).map(address)
}

fn number(address: &Ipv4Addr) -> u64 {
    u32::from(*address).into()
}

fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(number as u32)
}

/// A value from -1 to 1, derived from name and salt.
fn spread_of(name: &str, salt: u64) -> f64 {
    let word = mix(SEED ^ hash(name).wrapping_add(salt));
    (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// FNV-1a: the same in every build, unlike the standard library's hasher.
fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    mix(name.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_client_has_a_path_whose_rate_and_delay_are_its_own() {
        let mut home = PathSpec::new("home", "10.1.0.1-10.1.1.44");
        home.per_client = true;
        home.down = LinkSpec::limited(10.0, 50.0, 20.0);
        (home.rate_spread, home.delay_spread) = (0.4, 0.5);
        home.down_through = Some("isp");
        let topology = Topology {
            link: vec![("isp", LinkSpec::default())],
            path: vec![home],
            ..Topology::default()
        };
        let plan = Plan::of(&topology).unwrap();
        assert_eq!((plan.paths.len(), plan.links.len()), (300, 601));
        assert_eq!(plan.links[1].name, "home/10.1.0.1 down");
        let rates = plan.links.iter();
        let rates = rates.filter_map(|link| link.profile.rate_bits_per_s);
        let rates: Vec<u64> = rates.collect();
        let ranged = rates
            .iter()
            .all(|rate| (6_000_000..=14_000_000).contains(rate));
        let mean = rates.iter().sum::<u64>() / rates.len() as u64;
        assert!(ranged && mean.abs_diff(10_000_000) < 400_000, "{mean}");
        assert_eq!(plan.paths[7].links(Direction::Down)[0], LinkId(0));
    }

    #[test]
    fn what_is_not_there_is_named() {
        let mut path = PathSpec::new("a", "10.1.0.9-10.1.0.1");
        let wrong = |path: &PathSpec| Plan::default().path(path).unwrap_err();
        assert!(wrong(&path).contains("10.1.0.9-"));
        path.clients = "10.1.0.1".into();
        path.down_through = Some("isp");
        assert!(wrong(&path).contains("isp"));
    }

    proptest! {
        #[test]
        fn prefixes_cover_a_range_exactly(first: u32, len in 0u32..100_000) {
            let last = first.saturating_add(len);
            let mut next = u64::from(first);
            for (address, bits) in prefixes(&(first.into()..=last.into())) {
                prop_assert_eq!(number(&address), next);
                next += 1 << (32 - bits);
            }
            prop_assert_eq!(next, u64::from(last) + 1);
        }
    }
}
