//! Measures the cost of a server in a window: CPU and context switches from /proc, send queues sampled by
//! sock_diag, and the counters of the emulated disk and network. It starts before the window and ends after it.

use crate::cpu::{self, Core, Spent, Usage};
use crate::metrics::Values;
use crate::origin::{self, Origin};
use crate::peers::Running;
use crate::sampler::Sampler;
use crate::sockets::{Queues, Sockets};
use crate::target::Target;
use ackpace_lab_base::error::Result;
use ackpace_lab_base::stats::percentile;
use ackpace_lab_disk::Disk;
use ackpace_lab_wan::LinkCounters;
use ackpace_lab_wan::Wan;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two samples of the send queues, each of which takes a millisecond of the clients' core.
const SAMPLE_PAUSE: Duration = Duration::from_millis(100);

/// The instruments beside the server.
#[derive(Clone)]
pub struct Instruments {
    /// The sockets of the server's network.
    pub sockets: Arc<Sockets>,
    /// The emulated disk below the files.
    pub disk: Option<Arc<Disk>>,
    /// The emulated network.
    pub wan: Option<Arc<Wan>>,
    /// The origin of gateways.
    pub origin: Option<Arc<Origin>>,
    /// The target below the files.
    pub target: Option<Arc<Target>>,
}

/// An open window.
pub struct Watch<'a> {
    server: &'a Running,
    instruments: &'a Instruments,
    usage: Usage,
    core: Core,
    lab: Usage,
    disk: Option<ackpace_lab_disk::Counters>,
    wan: Option<ackpace_lab_wan::Counters>,
    sampler: Option<Sampler<Vec<Queues>>>,
    start: Instant,
    start_us: u64,
}

/// A closed window.
pub struct Watched {
    elapsed_s: f64,
    spent: Spent,
    softirq_s: f64,
    values: Values,
    origin_bytes: Option<u64>,
}

/// The work that clients received in the window; costs are given relative to it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Completed responses.
    pub responses: u64,
}

impl<'a> Watch<'a> {
    /// Opens the window; `queues` also samples the server's send queues.
    pub fn begin(server: &'a Running, instruments: &'a Instruments, queues: bool) -> Result<Self> {
        let sampler = queues.then(|| sample_queues(instruments.sockets.clone(), server));
        let wan = instruments.wan.as_ref().map(|wan| wan.counters());
        Ok(Self {
            server,
            instruments,
            disk: instruments.disk.as_ref().map(|disk| disk.counters()),
            wan: wan.transpose()?,
            usage: cpu::usage_of_all(&server.roots())?,
            core: cpu::core(server.core)?,
            lab: cpu::own_usage()?,
            sampler,
            start: Instant::now(),
            start_us: origin::now_us(),
        })
    }

    /// Closes the window.
    pub fn end(self) -> Result<Watched> {
        let elapsed_s = self.start.elapsed().as_secs_f64();
        let spent = cpu::usage_of_all(&self.server.roots())?.since(&self.usage);
        let core = cpu::core(self.server.core)?;
        let stolen_s = core.stolen_s - self.core.stolen_s;
        let (switches, waited_s) = (
            spent.voluntary + spent.involuntary,
            spent.waited_s + stolen_s,
        );
        let mut values = Values::default();
        values.set("server_core_share", spent.used_s / elapsed_s);
        let lab = cpu::own_usage()?.since(&self.lab);
        values.set("lab_core_share", lab.used_s / elapsed_s);
        values.set("server_waited_share", waited_s / elapsed_s);
        values.set("switches_per_s", switches as f64 / elapsed_s);
        if let (Some(disk), Some(before)) = (&self.instruments.disk, &self.disk) {
            add_disk(&mut values, before, &disk.counters(), elapsed_s);
        }
        if let (Some(wan), Some(before)) = (&self.instruments.wan, &self.wan) {
            add_wan(&mut values, before, &wan.counters()?);
        }
        let mut origin_bytes = None;
        if let Some(origin) = &self.instruments.origin {
            let (bytes, fetches) = origin.fetched(self.start_us, origin::now_us())?;
            values.set("origin_bytes_per_s", bytes as f64 / elapsed_s);
            values.set("origin_requests_per_s", fetches as f64 / elapsed_s);
            origin_bytes = Some(bytes);
        }
        if let Some(sampler) = self.sampler {
            add_queues(&mut values, &sampler.end()?);
        }
        Ok(Watched {
            elapsed_s,
            spent,
            softirq_s: core.softirq_s - self.core.softirq_s,
            values,
            origin_bytes,
        })
    }
}

impl Watched {
    /// The server's figures, relative to the work.
    pub fn values(self, work: Work) -> Values {
        let Self {
            elapsed_s,
            spent,
            softirq_s,
            mut values,
            origin_bytes,
        } = self;
        let gb = work.body_bytes as f64 / 1e9;
        if work.body_bytes > 0 {
            values.set("goodput_bytes_per_s", work.body_bytes as f64 / elapsed_s);
            let over = origin_bytes.map(|bytes| bytes as f64 / work.body_bytes as f64);
            values.set_some("origin_over_goodput", over);
            values.set("cpu_s_per_gb", spent.used_s / gb);
            values.set("softirq_s_per_gb", softirq_s / gb);
            values.set("voluntary_per_gb", spent.voluntary as f64 / gb);
            values.set("involuntary_per_gb", spent.involuntary as f64 / gb);
        }
        if work.responses > 0 {
            let responses = work.responses as f64;
            values.set("requests_per_s", responses / elapsed_s);
            values.set("cpu_us_per_request", spent.used_s * 1e6 / responses);
        }
        values
    }
}

fn sample_queues(sockets: Arc<Sockets>, server: &Running) -> Sampler<Vec<Queues>> {
    let address = server.address;
    let sample = move |samples: &mut Vec<Queues>| {
        samples.push(sockets.queues(address.ip(), address.port())?);
        Ok(())
    };
    Sampler::start("send queues", SAMPLE_PAUSE, Vec::new(), sample)
}

fn add_disk(
    values: &mut Values,
    before: &ackpace_lab_disk::Counters,
    now: &ackpace_lab_disk::Counters,
    elapsed_s: f64,
) {
    let added =
        |of: fn(&ackpace_lab_disk::Counters) -> u64| of(now).saturating_sub(of(before)) as f64;
    let all_us = elapsed_s * 1e6 * now.members.max(1) as f64;
    let read_bytes = added(|c| c.read_bytes);
    values.set("disk_busy_share", added(|c| c.busy_us) / all_us);
    values.set(
        "disk_seek_share",
        added(|c| c.seek_us + c.rotation_us) / all_us,
    );
    values.set(
        "disk_queue_mean",
        added(|c| c.waited_us) / (elapsed_s * 1e6),
    );
    values.set("disk_read_bytes", read_bytes);
    values.set("disk_bytes_per_s", read_bytes / elapsed_s);
    values.set("disk_reads_per_s", added(|c| c.reads) / elapsed_s);
    if now.reads > before.reads {
        values.set("disk_read_mean_bytes", read_bytes / added(|c| c.reads));
    }
    let (before, now) = (by_set(&before.files), by_set(&now.files));
    let mut again_bytes = 0;
    for (set, (read, again)) in &now {
        let (read_before, again_before) = before.get(set).copied().unwrap_or_default();
        again_bytes += again.saturating_sub(again_before);
        if now.len() > 1 {
            let read = read.saturating_sub(read_before);
            values.set(&format!("disk_read_bytes@{set}"), read as f64);
        }
    }
    values.set("disk_again_bytes", again_bytes as f64);
    values.set(
        "disk_again_pages_per_s",
        again_bytes as f64 / 4096.0 / elapsed_s,
    );
    let (read, again) = now
        .values()
        .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    if read > again {
        values.set("disk_amplification", read as f64 / (read - again) as f64);
    }
}

/// Bytes read, and read again, of each set of files, whose names are SET-NUMBER.bin.
fn by_set(files: &[ackpace_lab_disk::FileCounters]) -> BTreeMap<&str, (u64, u64)> {
    let mut sets: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for file in files {
        let set = file
            .file
            .rsplit_once('-')
            .map_or(file.file.as_str(), |(set, _)| set);
        let (read_bytes, again_bytes) = sets.entry(set).or_default();
        *read_bytes += file.read_bytes;
        *again_bytes += file.again_bytes;
    }
    sets
}

fn add_wan(
    values: &mut Values,
    before: &ackpace_lab_wan::Counters,
    now: &ackpace_lab_wan::Counters,
) {
    let elapsed_us = now.elapsed_us.saturating_sub(before.elapsed_us) as f64;
    let lost = |c: &LinkCounters| {
        c.totals.dropped_full_packets + c.totals.dropped_red_packets + c.totals.lost_packets
    };
    let (mut idle, mut links, mut offered, mut dropped) = (0.0, 0u32, 0, 0);
    let mut marked = 0;
    for (before, now) in before.links.iter().zip(&now.links) {
        if !now.name.ends_with(" down") {
            continue;
        }
        let busy_us = now.busy_us.saturating_sub(before.busy_us) as f64;
        if busy_us > 0.0 {
            idle += 1.0 - busy_us / elapsed_us;
            links += 1;
        }
        offered += now.totals.offered_packets - before.totals.offered_packets;
        dropped += lost(now).saturating_sub(lost(before));
        marked += now.totals.marked_packets - before.totals.marked_packets;
    }
    if links > 0 {
        values.set("link_idle_share", idle / f64::from(links));
    }
    values.set("link_marked_packets", marked as f64);
    if offered > 0 {
        values.set("link_drop_share", dropped as f64 / offered as f64);
    }
}

fn add_queues(values: &mut Values, samples: &[Queues]) {
    let mut queued: Vec<u64> = samples.iter().map(|sample| sample.queued_bytes).collect();
    queued.sort_unstable();
    let Some(p99) = percentile(&queued, 99.0) else {
        return;
    };
    let mean = queued.iter().sum::<u64>() as f64 / queued.len() as f64;
    values.set("send_queue_mean_bytes", mean);
    values.set("send_queue_p99_bytes", p99 as f64);
    let connections: usize = samples.iter().map(|sample| sample.connections).sum();
    if connections > 0 {
        let unsent: u64 = samples.iter().map(|sample| sample.unsent_bytes).sum();
        values.set(
            "unsent_per_connection_bytes",
            unsent as f64 / connections as f64,
        );
    }
}
