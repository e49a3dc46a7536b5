//! The description of a WAN, as in its TOML file. `plan.rs` turns it into links and paths.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// A network between a server and its clients. Unknown keys are errors.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Topology {
    /// Whether the kernel's large frames stay whole where possible.
    pub mode: Mode,
    /// Longest transmission time on a link that one frame may stand for in mode `runs`, in us.
    pub run_us: u32,
    /// The emulator wakes every so many us, at most 1000, instead of at every frame. At a hundred thousand
    /// frames a second this halves its CPU time, and frames are late by up to this interval. 0: at every frame.
    pub grain_us: u32,
    /// Seed of all losses, RED decisions and spreads.
    pub seed: u64,
    /// Largest packet, in bytes of IP; 576 to 9000.
    pub mtu_bytes: u16,
    /// Congestion control of both ends; read back after it was set.
    pub congestion_control: String,
    /// Explicit congestion notification (ECN) at both ends.
    pub ecn: Ecn,
    /// Whether a connection returns to slow start after an idle period (tcp_slow_start_after_idle).
    pub slow_start_after_idle: bool,
    /// Initial congestion window, in packets; the kernel's own where missing.
    pub initcwnd_packets: Option<u32>,
    /// Fewest packets that the server's kernel puts into one frame even on a slow connection
    /// (tcp_min_tso_segs), 1 to 44. If missing, the kernel's default of 2.
    pub frame_packets_min: Option<u32>,
    /// Clients acknowledge every packet at once instead of every second one.
    pub quickack: bool,
    /// Limit of TCP's send buffer (tcp_wmem), in bytes; the machine's where missing.
    pub send_buffer_max_bytes: Option<u32>,
    /// Limit of TCP's receive buffer (tcp_rmem), in bytes; the machine's where missing.
    pub receive_buffer_max_bytes: Option<u32>,
    /// Idle cores poll instead of halting, so the emulator and all other threads wake within a microsecond. An
    /// unconfigured machine halts idle cores.
    pub awake: bool,
    /// Addresses of the server, at least one; both families are allowed.
    pub server: Vec<IpAddr>,
    /// Links that several paths share, by name. Each has one direction.
    pub link: BTreeMap<String, LinkSpec>,
    /// The paths; a packet takes the first that fits.
    pub path: Vec<PathSpec>,
    /// IPv4 addresses of clients that have a direct link to the server beside the emulator (veth(4)). They can
    /// time the server while the emulator is busy with others.
    pub beside: Option<String>,
}

/// How frames of many packets are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Keep them whole unless loss, marks or a long transmission split them: fast.
    #[default]
    Runs,
    /// Split them into packets: exact.
    Packets,
}

/// Explicit congestion notification (tcp_ecn).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ecn {
    /// Neither request it nor accept it.
    Off,
    /// Request it and accept it.
    On,
    /// Accept it where the other end requests it.
    #[default]
    Passive,
}

/// A path for some clients: a link of its own in each direction, and links that it shares.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PathSpec {
    /// Name, unique among the paths.
    pub name: String,
    /// Addresses of its clients: `10.1.0.7`, `10.1.0.0/24` or `10.1.0.1-10.1.3.232`.
    pub clients: String,
    /// Every client has a path of its own, named NAME/ADDRESS; at most 65,536 in all.
    #[serde(default)]
    pub per_client: bool,
    /// Only connections to this port of the server.
    #[serde(default)]
    pub server_port: Option<u16>,
    /// Own link from the server to the client, behind all shared ones.
    #[serde(default)]
    pub down: LinkSpec,
    /// Own link from the client to the server, before all shared ones.
    #[serde(default)]
    pub up: LinkSpec,
    /// Shared links from the server to the client, in that order.
    #[serde(default)]
    pub down_through: Vec<String>,
    /// Shared links from the client to the server, in that order.
    #[serde(default)]
    pub up_through: Vec<String>,
    /// With `per_client`: rates vary by up to this share, alike in both directions (.4: from .6 to 1.4 of the
    /// rate).
    #[serde(default)]
    pub rate_spread: f64,
    /// With `per_client`: delays vary by up to this share, alike in both directions.
    #[serde(default)]
    pub delay_spread: f64,
}

/// One direction of one link. A missing value means perfect: no rate limit, no delay, no loss.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// Rate in Mbit/s, counting all bytes of IP; .001 to 400,000.
    pub rate_mbit_per_s: Option<f64>,
    /// One-way delay in ms; 0 to 60,000.
    pub delay_ms: Option<f64>,
    /// Random addition to the delay in ms, uniform from 0 to this.
    pub jitter_ms: Option<f64>,
    /// Whether jitter may let packets overtake.
    pub may_reorder: Option<bool>,
    /// Size of the queue in bytes.
    pub queue_bytes: Option<u64>,
    /// Size of the queue as time at the link's rate, in ms. The default without `queue_bytes` is 100, and then
    /// at least 15,000 bytes.
    pub queue_ms: Option<f64>,
    /// Random early detection in that queue.
    pub red: Option<RedSpec>,
    /// Probability that a packet is lost.
    pub loss: Option<f64>,
    /// Losses in bursts (Gilbert-Elliott), instead of `loss`.
    pub bursts: Option<BurstsSpec>,
    /// Probability that an ECN-capable packet is marked "congestion experienced" (RFC 3168), whatever the queue
    /// holds.
    pub mark: Option<f64>,
}

/// Random early detection: thresholds of the average queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedSpec {
    /// Average queue from which packets are dropped (or marked) at random.
    pub min_bytes: u64,
    /// Average queue from which all are dropped; above `min_bytes`, at most the queue.
    pub max_bytes: u64,
    /// Drop probability just below `max_bytes`.
    #[serde(default = "default_p_max")]
    pub p_max: f64,
    /// Weight of a new sample in the average.
    #[serde(default = "default_weight")]
    pub weight: f64,
    /// Mark ECN-capable packets instead of dropping them.
    #[serde(default)]
    pub ecn: bool,
    /// Let the probability rise from `p_max` to 1 between `max_bytes` and twice that.
    #[serde(default)]
    pub gentle: bool,
}

/// Losses in bursts (Gilbert-Elliott): probabilities per packet.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BurstsSpec {
    /// Probability that the good state ends.
    pub to_bad: f64,
    /// Probability that the bad state ends; its mean length is 1/`to_good` packets.
    pub to_good: f64,
    /// Loss probability in the good state.
    #[serde(default)]
    pub loss_good: f64,
    /// Loss probability in the bad state.
    #[serde(default = "certain")]
    pub loss_bad: f64,
}

impl Default for Topology {
    /// The default of every key: server 10.0.0.1, and no links, paths or clients.
    fn default() -> Topology {
        Topology {
            mode: Mode::Runs,
            run_us: 1000,
            grain_us: 0,
            seed: 1,
            mtu_bytes: 1500,
            congestion_control: "reno".into(),
            ecn: Ecn::Passive,
            slow_start_after_idle: true,
            initcwnd_packets: None,
            frame_packets_min: None,
            quickack: false,
            awake: true,
            send_buffer_max_bytes: None,
            receive_buffer_max_bytes: None,
            server: vec![Ipv4Addr::new(10, 0, 0, 1).into()],
            link: BTreeMap::new(),
            path: Vec::new(),
            beside: None,
        }
    }
}

impl Topology {
    /// Parses the text of a file; `plan.rs` checks the ranges.
    ///
    /// # Errors
    /// The first syntax error, unknown key or wrong type, with its line.
    pub fn parse(text: &str) -> Result<Topology, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }
}

impl PathSpec {
    /// A perfect path for `clients`.
    pub fn new(name: &str, clients: &str) -> PathSpec {
        PathSpec {
            name: name.to_owned(),
            clients: clients.to_owned(),
            per_client: false,
            server_port: None,
            down: LinkSpec::default(),
            up: LinkSpec::default(),
            down_through: Vec::new(),
            up_through: Vec::new(),
            rate_spread: 0.0,
            delay_spread: 0.0,
        }
    }
}

impl LinkSpec {
    /// This link with the values that a change names; the others stay. A rate, queue, loss or mark of 0 removes
    /// it.
    pub fn changed(&self, change: &LinkSpec) -> LinkSpec {
        let removed_at_0 = |new: Option<f64>, old| new.or(old).filter(|value| *value != 0.0);
        let has_queue = change.queue_bytes.is_some() || change.queue_ms.is_some();
        let queue_of = if has_queue { change } else { self };
        let has_loss = change.loss.is_some() || change.bursts.is_some();
        let loss_of = if has_loss { change } else { self };
        LinkSpec {
            rate_mbit_per_s: removed_at_0(change.rate_mbit_per_s, self.rate_mbit_per_s),
            delay_ms: change.delay_ms.or(self.delay_ms),
            jitter_ms: change.jitter_ms.or(self.jitter_ms),
            may_reorder: change.may_reorder.or(self.may_reorder),
            queue_bytes: queue_of.queue_bytes,
            queue_ms: queue_of.queue_ms,
            red: change.red.clone().or_else(|| self.red.clone()),
            loss: removed_at_0(loss_of.loss, None),
            bursts: loss_of.bursts.clone(),
            mark: removed_at_0(change.mark, self.mark),
        }
    }
}

fn default_p_max() -> f64 {
    0.1
}

fn default_weight() -> f64 {
    0.002
}

fn certain() -> f64 {
    1.0
}
