//! Turns a topology into links and paths, and checks every value. An error names the key and what is allowed.

use super::topology::{LinkSpec, PathSpec, Topology};
use ackpace_lab_base::error::{Doing, LabError};
use ackpace_sim::models::link::{LinkProfile, Loss, QueueDiscipline, Red};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::path::Path;

/// Most paths of a topology, including those of single clients. More are refused.
pub const PATHS_MAX: usize = 1 << 16;
/// Length of a queue without a configured size, as time at the link's rate...
const QUEUE_DEFAULT_MS: f64 = 100.0;
/// ... but at least ten full packets.
const QUEUE_DEFAULT_BYTES_MIN: u64 = 15_000;

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the server to the client.
    Down,
    /// From the client to the server.
    Up,
}

/// Index of a link in [`Plan::links`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub usize);

/// Links and paths, ready to be built.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Shared links first, then two for each path.
    pub links: Vec<LinkPlan>,
    /// In the order in which they are matched.
    pub paths: Vec<PathPlan>,
    /// Clients with a direct link to the server.
    pub beside: Option<RangeInclusive<IpAddr>>,
}

/// One link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Name in the file; a path's own links are `PATH down` and `PATH up`.
    pub name: String,
    /// As in the file, with spreads applied.
    pub spec: LinkSpec,
    /// The parameters for the model.
    pub profile: LinkProfile,
    /// Seed of its random decisions.
    pub seed: u64,
}

/// One path.
#[derive(Clone, Debug)]
pub struct PathPlan {
    /// Name in the file, with `/ADDRESS` where every client has its own path.
    pub name: String,
    /// Addresses of its clients, all of one family.
    pub clients: RangeInclusive<IpAddr>,
    /// Only connections to this port of the server; `None`: any port.
    pub server_port: Option<u16>,
    down: Vec<LinkId>,
    up: Vec<LinkId>,
}

/// Reads a topology from a file and checks it. The error names the file, the key and what is allowed.
pub fn read(path: &Path) -> ackpace_lab_base::error::Result<Topology> {
    let setup = |why: String| LabError::Setup(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).doing(|| path.display().to_string())?;
    let topology = Topology::parse(&text).map_err(setup)?;
    Plan::of(&topology).map_err(setup)?;
    Ok(topology)
}

impl Plan {
    /// Checks a topology and builds its links and paths.
    pub fn of(topology: &Topology) -> Result<Plan, String> {
        check_top(topology)?;
        let mut plan = Plan::default();
        for (name, spec) in &topology.link {
            let within = format!("link {name:?}");
            plan.link(topology, &within, name.clone(), spec.clone())?;
        }
        for (nth, path) in topology.path.iter().enumerate() {
            if path.name.is_empty() || topology.path[..nth].iter().any(|p| p.name == path.name) {
                let name = &path.name;
                return Err(format!("path.name {name:?}: not empty, and once only"));
            }
            plan.path(topology, path)?;
        }
        plan.beside = topology.beside.as_deref().map(beside).transpose()?;
        if plan.beside.is_some() && !topology.server.iter().any(IpAddr::is_ipv4) {
            return Err("beside: server has no address of that family".into());
        }
        Ok(plan)
    }

    /// A link by its name.
    pub fn link_named(&self, name: &str) -> Option<LinkId> {
        let found = self.links.iter().position(|link| link.name == name);
        found.map(LinkId)
    }

    fn path(&mut self, topology: &Topology, spec: &PathSpec) -> Result<(), String> {
        let within = format!("path {:?}", spec.name);
        let clients = clients(&spec.clients).map_err(|why| format!("{within}: clients {why}"))?;
        let family = |address: &IpAddr| address.is_ipv4() == clients.start().is_ipv4();
        if !topology.server.iter().any(family) {
            return Err(format!(
                "{within}: clients {}: server has no address of that family",
                spec.clients
            ));
        }
        let ranges = if spec.per_client {
            each(&clients)
        } else {
            vec![clients]
        };
        if self.paths.len() + ranges.len() > PATHS_MAX {
            return Err(format!("{within}: more than {PATHS_MAX} paths in all"));
        }
        check_spreads(spec).map_err(|why| format!("{within}: {why}"))?;
        let shared = |names: &[String], key: &str, plan: &Plan| {
            let find = |name: &String| {
                let found = plan.link_named(name);
                found
                    .filter(|_| topology.link.contains_key(name))
                    .ok_or_else(|| {
                        let known: Vec<&str> = topology.link.keys().map(String::as_str).collect();
                        format!(
                            "{within}: {key} names {name:?}; allowed: {}",
                            known.join(", ")
                        )
                    })
            };
            names.iter().map(find).collect::<Result<Vec<_>, String>>()
        };
        let mut down = shared(&spec.down_through, "down_through", self)?;
        let up_through = shared(&spec.up_through, "up_through", self)?;
        for clients in ranges {
            let name = match spec.per_client {
                true => format!("{}/{}", spec.name, clients.start()),
                false => spec.name.clone(),
            };
            // The same factor in both directions, independent of other paths.
            let chance = |salt| spread_of(topology.seed, &name, salt);
            let rate = 1.0 + spec.rate_spread * chance(1);
            let delay = 1.0 + spec.delay_spread * chance(2);
            let own = |spec: &LinkSpec| LinkSpec {
                rate_mbit_per_s: spec.rate_mbit_per_s.map(|value| value * rate),
                delay_ms: spec.delay_ms.map(|value| value * delay),
                ..spec.clone()
            };
            let in_down = format!("{within}: down");
            let in_up = format!("{within}: up");
            let own_down =
                self.link(topology, &in_down, format!("{name} down"), own(&spec.down))?;
            let own_up = self.link(topology, &in_up, format!("{name} up"), own(&spec.up))?;
            down.push(own_down);
            let up = std::iter::once(own_up).chain(up_through.iter().copied());
            self.paths.push(PathPlan {
                clients,
                server_port: spec.server_port,
                down: down.clone(),
                up: up.collect(),
                name,
            });
            down.pop();
        }
        Ok(())
    }

    fn link(
        &mut self,
        topology: &Topology,
        within: &str,
        name: String,
        spec: LinkSpec,
    ) -> Result<LinkId, String> {
        let profile = profile(&spec).map_err(|why| format!("{within}.{why}"))?;
        let seed = topology.seed ^ hash(&name);
        self.links.push(LinkPlan {
            name,
            spec,
            profile,
            seed,
        });
        Ok(LinkId(self.links.len() - 1))
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

    /// True if packets between this client and this port of the server take the path.
    pub fn takes(&self, client: IpAddr, server_port: Option<u16>) -> bool {
        let port_fits = self.server_port.is_none() || self.server_port == server_port;
        port_fits && self.clients.contains(&client)
    }
}

/// The model's parameters. The error starts with the key.
pub fn profile(spec: &LinkSpec) -> Result<LinkProfile, String> {
    let us = |ms: Option<f64>| (ms.unwrap_or(0.0) * 1e3).round() as u64;
    let rate = within("rate_mbit_per_s", spec.rate_mbit_per_s, 0.001..=400_000.0)?;
    let delay_ms = within("delay_ms", spec.delay_ms, 0.0..=60_000.0)?;
    let jitter_ms = within("jitter_ms", spec.jitter_ms, 0.0..=60_000.0)?;
    let queue = queue(spec, rate)?;
    let loss = loss(spec)?;
    let mark = within("mark", spec.mark, 0.0..=1.0)?;
    Ok(LinkProfile {
        rate_bits_per_s: rate.map(|mbit| (mbit * 1e6).round() as u64),
        delay_us: us(delay_ms),
        jitter_us: us(jitter_ms),
        may_reorder: spec.may_reorder.unwrap_or(false),
        queue,
        loss,
        mark: mark.unwrap_or(0.0),
    })
}

/// The value of a key, if it is within the allowed range.
fn within(
    key: &str,
    value: Option<f64>,
    allowed: RangeInclusive<f64>,
) -> Result<Option<f64>, String> {
    match value {
        Some(value) if !allowed.contains(&value) => Err(format!(
            "{key} = {value}; allowed: {} to {}",
            allowed.start(),
            allowed.end()
        )),
        value => Ok(value),
    }
}

/// The queue before a link of that rate in Mbit/s, and its drop policy.
fn queue(spec: &LinkSpec, rate_mbit_per_s: Option<f64>) -> Result<QueueDiscipline, String> {
    within("queue_ms", spec.queue_ms, 0.0..=600_000.0)?;
    if spec.queue_bytes.is_some() && spec.queue_ms.is_some() {
        return Err("queue_bytes and queue_ms; allowed: one of them".into());
    }
    if rate_mbit_per_s.is_none() && spec.red.is_some() {
        return Err("red; allowed: with rate_mbit_per_s, without which nothing queues".into());
    }
    let bytes_per_ms = rate_mbit_per_s.unwrap_or(0.0) * 1e6 / 8e3;
    let limit_bytes = match (spec.queue_bytes, spec.queue_ms) {
        (Some(bytes), _) => bytes,
        (_, Some(ms)) => (ms * bytes_per_ms) as u64,
        _ => ((QUEUE_DEFAULT_MS * bytes_per_ms) as u64).max(QUEUE_DEFAULT_BYTES_MIN),
    };
    let Some(red) = &spec.red else {
        return Ok(QueueDiscipline::DropTail { limit_bytes });
    };
    within("red.p_max", Some(red.p_max), 1e-6..=1.0)?;
    within("red.weight", Some(red.weight), 1e-6..=1.0)?;
    if !(red.min_bytes < red.max_bytes && red.max_bytes <= limit_bytes) {
        return Err(format!(
            "red.max_bytes = {}; allowed: above min_bytes ({}), at most the queue ({limit_bytes})",
            red.max_bytes, red.min_bytes
        ));
    }
    Ok(QueueDiscipline::Red(Red {
        min_bytes: red.min_bytes,
        max_bytes: red.max_bytes,
        p_max: red.p_max,
        weight: red.weight,
        limit_bytes,
        ecn: red.ecn,
        gentle: red.gentle,
    }))
}

/// The link's losses: single packets at random, or bursts of them.
fn loss(spec: &LinkSpec) -> Result<Loss, String> {
    match (within("loss", spec.loss, 0.0..=1.0)?, &spec.bursts) {
        (Some(_), Some(_)) => Err("loss and bursts; allowed: one of them".into()),
        (Some(p), None) => Ok(Loss::Bernoulli { p }),
        (None, None) => Ok(Loss::None),
        (None, Some(bursts)) => {
            within("bursts.to_bad", Some(bursts.to_bad), 0.0..=1.0)?;
            within("bursts.to_good", Some(bursts.to_good), 1e-6..=1.0)?;
            within("bursts.loss_good", Some(bursts.loss_good), 0.0..=1.0)?;
            within("bursts.loss_bad", Some(bursts.loss_bad), 0.0..=1.0)?;
            Ok(Loss::GilbertElliott {
                to_bad: bursts.to_bad,
                to_good: bursts.to_good,
                loss_good: bursts.loss_good,
                loss_bad: bursts.loss_bad,
            })
        }
    }
}

/// The fewest prefixes that together cover exactly the range, as (address, length).
pub fn prefixes(range: &RangeInclusive<IpAddr>) -> Vec<(IpAddr, u32)> {
    let (bits, mut at, last) = (
        bits(range.start()),
        number(range.start()),
        number(range.end()),
    );
    let mut prefixes = Vec::new();
    while at <= last {
        let mut free = at.trailing_zeros().min(bits);
        // The largest aligned block that ends within the range.
        while free > 0 && (free < 128 && last - at < (1 << free) - 1) {
            free -= 1;
        }
        prefixes.push((address(at, bits), bits - free));
        match 1u128
            .checked_shl(free)
            .and_then(|size| at.checked_add(size))
        {
            Some(next) => at = next,
            None => break,
        }
    }
    prefixes
}

fn check_top(topology: &Topology) -> Result<(), String> {
    let mtu = topology.mtu_bytes;
    let v6 = topology.server.iter().any(IpAddr::is_ipv6);
    let least = if v6 { 1280 } else { 576 };
    if !(least..=9000).contains(&mtu) {
        return Err(format!("mtu_bytes = {mtu}; allowed: {least} to 9000"));
    }
    if topology.server.is_empty() {
        return Err("server; allowed: at least one address".into());
    }
    if topology.path.is_empty() {
        return Err("path; allowed: at least one [[path]]".into());
    }
    if topology.grain_us > 1000 {
        let grain_us = topology.grain_us;
        return Err(format!("grain_us = {grain_us}; allowed: 0 to 1000"));
    }
    let name = &topology.congestion_control;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!(
            "congestion_control = {name:?}; allowed: a name from \
             /proc/sys/net/ipv4/tcp_available_congestion_control"
        ));
    }
    let counts = [
        ("initcwnd_packets", topology.initcwnd_packets, 1000),
        ("frame_packets_min", topology.frame_packets_min, 44),
    ];
    for (key, packets, most) in counts {
        match packets {
            Some(packets) if !(1..=most).contains(&packets) => {
                return Err(format!("{key} = {packets}; allowed: 1 to {most}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_spreads(spec: &PathSpec) -> Result<(), String> {
    let wrong = |spread: &f64| !(0.0..1.0).contains(spread) || (*spread > 0.0 && !spec.per_client);
    match [spec.rate_spread, spec.delay_spread]
        .into_iter()
        .find(wrong)
    {
        Some(spread) => Err(format!(
            "a spread of {spread}; allowed: 0 to below 1, with per_client"
        )),
        None => Ok(()),
    }
}

fn beside(text: &str) -> Result<RangeInclusive<IpAddr>, String> {
    let clients = clients(text).map_err(|why| format!("beside {why}"))?;
    match clients.start() {
        IpAddr::V4(_) => Ok(clients),
        IpAddr::V6(_) => Err(format!("beside = {text:?}; allowed: addresses of IPv4")),
    }
}

/// `A`, `A/LEN` or `A-B`.
fn clients(text: &str) -> Result<RangeInclusive<IpAddr>, String> {
    let wrong = || {
        format!(
            "= {text:?}; allowed: 10.1.0.7, 10.1.0.0/24 or 10.1.0.1-10.1.3.232, or the same in IPv6"
        )
    };
    let parse = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| wrong());
    if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (parse(from)?, parse(to)?);
        let is_range = from.is_ipv4() == to.is_ipv4() && from <= to;
        return if is_range {
            Ok(from..=to)
        } else {
            Err(wrong())
        };
    }
    let Some((from, len)) = text.split_once('/') else {
        return parse(text).map(|one| one..=one);
    };
    let from = parse(from)?;
    let bits = bits(&from);
    let len: u32 = len.parse().map_err(|_| wrong())?;
    let host = match bits.checked_sub(len).ok_or_else(wrong)? {
        128 => u128::MAX,
        free => (1 << free) - 1,
    };
    let number = number(&from);
    match number & host {
        0 => Ok(from..=address(number | host, bits)),
        _ => Err(wrong()),
    }
}

fn each(range: &RangeInclusive<IpAddr>) -> Vec<RangeInclusive<IpAddr>> {
    let (first, last) = (number(range.start()), number(range.end()));
    let one = |at| {
        let one = address(at, bits(range.start()));
        one..=one
    };
    // One more than the limit is enough to be refused.
    (first..=last).take(PATHS_MAX + 1).map(one).collect()
}

fn bits(address: &IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn number(address: &IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(*address).into(),
        IpAddr::V6(address) => u128::from(*address),
    }
}

fn address(number: u128, bits: u32) -> IpAddr {
    match bits {
        32 => Ipv4Addr::from(number as u32).into(),
        _ => Ipv6Addr::from(number).into(),
    }
}

/// A value from -1 to 1, derived from seed, name and salt.
fn spread_of(seed: u64, name: &str, salt: u64) -> f64 {
    let word = mix(seed ^ hash(name).wrapping_add(salt));
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
mod tests;
