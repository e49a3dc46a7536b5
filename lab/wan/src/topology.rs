//! The description of a WAN. `plan.rs` turns it into links and paths.

use serde::Serialize;
use std::net::Ipv4Addr;

/// Address of the server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Largest packet, in bytes of IP.
pub const MTU_BYTES: u32 = 1500;

/// A network between a server and its clients.
#[derive(Clone, Debug, Serialize)]
pub struct Topology {
    /// Longest transmission time on a link that one frame may stand for, in us. Longer ones are split.
    pub run_us: u32,
    /// The emulator wakes every so many us, at most 1000, instead of at every frame. At a hundred thousand
    /// frames a second this halves its CPU time, and frames are late by up to this interval. 0: at every frame.
    pub grain_us: u32,
    /// Congestion control of both ends; read back after it was set.
    pub congestion_control: &'static str,
    /// Whether both ends request explicit congestion notification (ECN).
    pub ecn: bool,
    /// Fewest packets that the server's kernel puts into one frame even on a slow connection
    /// (tcp_min_tso_segs). If missing, the kernel's default of 2.
    pub frame_packets_min: Option<u32>,
    /// Limit of TCP's send buffer (tcp_wmem), in bytes; the machine's where missing.
    pub send_buffer_max_bytes: Option<u32>,
    /// Links from the server that several paths share, by name.
    pub link: Vec<(&'static str, LinkSpec)>,
    /// The paths; a packet takes the first that fits.
    pub path: Vec<PathSpec>,
    /// Address of a client that has a direct link to the server beside the emulator (veth(4)). It can
    /// time the server while the emulator is busy with others.
    pub beside: Option<&'static str>,
}

/// A path for some clients: a link of its own in each direction, and one that it shares.
#[derive(Clone, Debug, Serialize)]
pub struct PathSpec {
    /// Name, unique among the paths.
    pub name: String,
    /// Addresses of its clients: `10.1.0.7` or `10.1.0.1-10.1.3.232`.
    pub clients: String,
    /// Every client has a path of its own, named NAME/ADDRESS.
    pub per_client: bool,
    /// Own link from the server to the client, behind the shared one.
    pub down: LinkSpec,
    /// Own link from the client to the server.
    pub up: LinkSpec,
    /// Shared link from the server to the client.
    pub down_through: Option<&'static str>,
    /// With `per_client`: rates vary by up to this share, alike in both directions (.4: from .6 to 1.4 of the
    /// rate).
    pub rate_spread: f64,
    /// With `per_client`: delays vary by up to this share, alike in both directions.
    pub delay_spread: f64,
}

/// One direction of one link. The default is perfect: no rate limit, no delay, no loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LinkSpec {
    /// Rate in Mbit/s, counting all bytes of IP.
    pub rate_mbit_per_s: Option<f64>,
    /// One-way delay in ms.
    pub delay_ms: f64,
    /// Size of the queue in bytes.
    pub queue_bytes: Option<u64>,
    /// Size of the queue as time at the link's rate, in ms. The default without `queue_bytes` is 100, and then
    /// at least 15,000 bytes.
    pub queue_ms: Option<f64>,
    /// Random early detection in that queue.
    pub red: Option<RedSpec>,
    /// Probability that a packet is lost.
    pub loss: f64,
}

/// Random early detection: thresholds of the average queue. The drop probability rises to .1 at `max_bytes`, and to 1
/// at twice that ("gentle"); a new sample weighs .002.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RedSpec {
    /// Average queue from which packets are dropped at random.
    pub min_bytes: u64,
    /// Average queue from which more and more are dropped.
    pub max_bytes: u64,
}

impl Default for Topology {
    fn default() -> Topology {
        Topology {
            run_us: 1000,
            grain_us: 0,
            congestion_control: "reno",
            ecn: false,
            frame_packets_min: None,
            send_buffer_max_bytes: None,
            link: Vec::new(),
            path: Vec::new(),
            beside: None,
        }
    }
}

impl PathSpec {
    /// A perfect path for `clients`.
    pub fn new(name: &str, clients: &str) -> PathSpec {
        PathSpec {
            name: name.to_owned(),
            clients: clients.to_owned(),
            per_client: false,
            down: LinkSpec::default(),
            up: LinkSpec::default(),
            down_through: None,
            rate_spread: 0.0,
            delay_spread: 0.0,
        }
    }
}

impl LinkSpec {
    /// A link that only delays.
    pub fn delay(delay_ms: f64) -> LinkSpec {
        LinkSpec {
            delay_ms,
            ..LinkSpec::default()
        }
    }

    /// A link with a rate, a drop-tail queue and a delay.
    pub fn limited(mbit_per_s: f64, queue_ms: f64, delay_ms: f64) -> LinkSpec {
        LinkSpec {
            rate_mbit_per_s: Some(mbit_per_s),
            queue_ms: Some(queue_ms),
            ..LinkSpec::delay(delay_ms)
        }
    }
}
