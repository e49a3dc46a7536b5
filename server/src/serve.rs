//! From options to a running server, and to its orderly end.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ackpace_core::addresses::AddressCounts;
use ackpace_core::disk;
use ackpace_core::units::duration_us;
use ackpace_core::worker::{SendPolicy, Settings};

use crate::admin::{self, Board, place};
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::config::{Layer, Loaded};
use crate::descriptors;
use crate::disk::Disks;
use crate::disk::{Channel, Context as DiskContext};
use crate::divider::{self, Dividing};
use crate::ending::{self, Running, Stopping};
use crate::ends::Ends;
use crate::failure::Failure;
use crate::front::site::Site;
use crate::gateway::Gateway;
use crate::greeting;
use crate::ledger::Ledger;
use crate::limits::WORKERS_MAX;
use crate::listeners::{self, Listener, Listeners, bind_metrics};
use crate::log::{self, AccessHandle, AccessLog, Diagnostics, Seldom};
use crate::lun;
use crate::memory;
use crate::needs;
use crate::nfs_threads::{self, Prepared};
use crate::node;
use crate::notify::ServiceManager;
use crate::options::{LogTarget, ServeOptions, Size, Workers, display_duration, shown_path};
use crate::resolver::{Inbox, Resolver, Return};
use crate::rights;
use crate::shares::{self, Shares, descriptors_allowed};
use crate::signals::Caught;
use crate::sites::{site, take_cache_folder, watch_root};
use crate::store::closing;
use crate::upstream;
use crate::worker::{HandOver, Nodes, Shared, Worker, WorkerContext};

/// Checks whether this machine can serve what the options name.
pub fn check(loaded: &Loaded) -> Result<(), Failure> {
    let (options, given) = (&loaded.options, &loaded.given);
    let checks = [
        needs::check().map_err(Failure::operator),
        shares(options, given)
            .and_then(|shares| check_descriptors(&shares, options, descriptors::inherited())),
        check_site(options, given),
        listeners::check(&options.listen, &options.congestion_control)
            .map_err(|error| error.failure(given)),
        node::check(options, given),
        log::check(&options.access_log)
            .map_err(|error| log_failure(given, &options.access_log, &error)),
    ];
    match Failure::all(checks.into_iter().filter_map(Result::err)) {
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// Whether the site can be served, however little memory there is: that is told by itself.
fn check_site(options: &ServeOptions, given: &Layer) -> Result<(), Failure> {
    let enough = || ServeOptions {
        memory_max: Size::Auto,
        ..options.clone()
    };
    let Ok(shares) = divided(options).or_else(|_| divided(&enough())) else {
        return Ok(());
    };
    let site = site(options, given, &shares, &Arc::new(shares.ledger()))?;
    nfs_threads::check(options, given, &Arc::new(site))
}

fn check_descriptors(
    shares: &Shares,
    options: &ServeOptions,
    inherited: u64,
) -> Result<(), Failure> {
    let checked = shares.check_descriptors(options, descriptors_allowed(), inherited);
    checked.map_err(Failure::operator)
}

/// What little memory and few descriptors cost with these options, as the start of the server says it.
pub fn cost(loaded: &Loaded) -> Vec<String> {
    let (options, given) = (&loaded.options, &loaded.given);
    divided(options).map_or_else(|_| Vec::new(), |shares| cost_of(&shares, options, given))
}

fn cost_of(shares: &Shares, options: &ServeOptions, given: &Layer) -> Vec<String> {
    let lost = shares.lost_descriptors(given, descriptors_allowed());
    let memory = shares.cost(options.connections_max, given);
    memory.into_iter().chain(lost).collect()
}

pub fn divided(options: &ServeOptions) -> Result<Shares, String> {
    Shares::of(options, workers(options))
}

/// The text of `ackpace limits`.
pub fn limits(loaded: &Loaded) -> Result<String, Failure> {
    let (options, given) = (&loaded.options, &loaded.given);
    shares::text::print(options, workers(options))
        .map_err(|error| Failure::value(given, "memory_max", &error))
}

/// Serves until a signal stops it; `inherited` descriptors were open before.
pub fn run(loaded: Loaded, signals: Caught, inherited: u64) -> Result<(), Failure> {
    let Loaded { options, given, .. } = loaded;
    let workers = workers(&options);
    needs::check().map_err(Failure::operator)?;
    rights::give_up(&options).map_err(|error| runtime("capabilities", error))?;
    descriptors::raise_limit();
    let shares = shares(&options, &given)?;
    check_descriptors(&shares, &options, inherited)?;
    descriptors::reserve(shares.descriptors());
    let ledger = Arc::new(shares.ledger());
    let site = Arc::new(site(&options, &given, &shares, &ledger)?);
    take_cache_folder(&site, &options, &given, &shares)?;
    let (controls, mode) = (&options.congestion_control, options.unix_mode);
    // From here on a stop is orderly: no file of a socket stays behind.
    signals
        .catch_stops()
        .map_err(|error| runtime("signals", error))?;
    let mut listeners = Listeners::bind(&options.listen, workers, controls, mode)
        .map_err(|error| error.failure(&given))?;
    let node = node::prepare((&options, &shares), &given, &mut listeners)?;
    let cluster = node.as_ref().map(|node| Arc::clone(&node.cluster));
    let (diagnostics, log) = logs(&options, &given, shares.log_queue_bytes)?;
    let nfs = nfs_threads::prepare((&options, &given), &shares, &site)?;
    let nfs_addrs = nfs.addrs();
    let (metrics, metrics_url) = bind_metrics(&options.metrics)
        .map_err(|error| Failure::value_now(&given, "metrics", &error))?
        .unzip();
    let (admin, admin_file) = place::make(&options.admin)
        .map_err(|error| Failure::value_now(&given, "admin", &error))?
        .unzip();
    let urls = listeners.urls.clone();
    let unix = std::mem::take(&mut listeners.unix);
    let Started {
        shared,
        admin: channels,
        running,
    } = start(
        &options,
        &shares,
        (site, ledger),
        (listeners, nfs, cluster),
        &log,
    )
    .map_err(|e| runtime("start", e))?;
    let node = node.map(|node| node.start(&options, &channels, &shared));
    node.transpose().map_err(|e| runtime("cluster thread", e))?;
    watch_root(&shared.site).map_err(|e| runtime("start", e))?;
    let (access_log, handle) = (log.handle(), diagnostics.handle());
    let board = Board::new(channels, Arc::clone(&shared), access_log, handle);
    admin::start(board, metrics, admin).map_err(|e| runtime("control thread", e))?;
    let cost = cost_of(&shares, &options, &given);
    let told = metrics_url.map(|url| format!("metrics at {url}"));
    let told = greeting::nfs(&nfs_addrs).chain(told);
    greeting::print(&options, &shared.site, &urls, told, cost);
    let manager = ServiceManager::of_environment();
    let asked = Arc::clone(&shared);
    manager.ready(move || asked.hung());
    let stop = stop(Arc::clone(&shared), running.stopping(), manager);
    let obeyed = signals.obey(log.handle(), diagnostics.handle(), stop);
    obeyed.map_err(|error| runtime("signals", error))?;
    let ended = running.wait(options.drain_timeout);
    tell_rest(&shared, options.drain_timeout);
    drop(unix);
    drop(log);
    let in_order = ended.and_then(|()| ending::wait_for_disks(&shared));
    drop(admin_file);
    drop(diagnostics);
    in_order
}

/// Starts both logs.
fn logs(
    options: &ServeOptions,
    given: &Layer,
    queue_bytes: u64,
) -> Result<(Diagnostics, AccessLog), Failure> {
    let diagnostics =
        Diagnostics::start(options.log_level).map_err(|error| runtime("log", error))?;
    let log = AccessLog::start(&options.access_log, options.access_log_format)
        .map_err(|error| log_failure(given, &options.access_log, &error))?;
    diagnostics.handle().bound(queue_bytes);
    log.handle().bound(queue_bytes);
    Ok((diagnostics, log))
}

/// A failure of the system, with what to do about it.
fn runtime(what: &str, error: io::Error) -> Failure {
    let cure = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "; no thread could be started: raise TasksMax= in the unit, pids.max of the container, ulimit -u or ulimit -v"
        }
        other => descriptors::cure(other),
    };
    Failure::runtime(format!("{what}: {error}{cure}"))
}

pub fn catch_signals() -> Result<Caught, Failure> {
    Caught::catch().map_err(|error| runtime("signals", error))
}

/// What a signal to stop does.
fn stop(shared: Arc<Shared>, stopping: Stopping, manager: ServiceManager) -> impl Fn() {
    move || {
        manager.stopping(); // first: with nothing under way, the process ends soon after the next line
        stopping.begin();
        shared.stopping.store(true, Ordering::Release);
        if let Some(cluster) = &shared.cluster {
            cluster.drain(true);
        }
        let channels = shared.channels.iter();
        channels.for_each(|channel| channel.waker.wake());
    }
}

fn log_failure(given: &Layer, target: &LogTarget, error: &io::Error) -> Failure {
    let error = format!(
        "{target}: {error}; name a file in a folder that is there and that this user may write"
    );
    Failure::value_now(given, "access_log", &error)
}

struct Started {
    shared: Arc<Shared>,
    /// How the control thread reaches the workers.
    admin: Vec<admin::WorkerChannel>,
    running: Running,
}

fn start(
    options: &ServeOptions,
    shares: &Shares,
    (site, ledger): (Arc<Site>, Arc<Ledger>),
    (listeners, nfs, cluster): (Listeners, Prepared, Option<Arc<Cluster>>),
    log: &AccessLog,
) -> io::Result<Started> {
    let clock = Clock::start();
    let (places, workers) = (shares.connections_per_worker, listeners.by_worker.len());
    let Ends {
        channels,
        returns,
        mut inboxes,
    } = Ends::new(workers, places, (nfs.threads(), shares.nfs_connections))?;
    let of_nfs = inboxes.split_off(workers);
    let channels = Arc::new(channels);
    let seldom = Arc::default();
    let disks = disks_of(
        options,
        shares,
        (&site, &ledger),
        &channels,
        (clock, &seldom),
    );
    closing::start(descriptors::allowed());
    start_upstream(&site, &returns, &disks)?;
    start_unit(&site, options, &disks)?;
    let resolver = Resolver::start(&site, returns, places, shares.queries_bytes)?;
    let dividing = dividing(options, shares, &channels[..workers], clock)?;
    let shared = Arc::new(Shared {
        site,
        dividing,
        handovers: (0..workers).map(|_| HandOver::default()).collect(),
        moves: options.compare.moves,
        nodes: Nodes::new(workers),
        disks,
        channels,
        resolver,
        cluster,
        stopping: AtomicBool::new(false),
        clock,
        ledger,
        connection_bytes: shares.connection_bytes(),
        places_bound: shares.places_bound(options.connections_max),
        seldom,
        cut_off: AtomicU64::new(0),
        nfs: (0..nfs.threads()).map(|_| Arc::default()).collect(),
        addresses: addresses(options, places.saturating_mul(workers as u32)),
    });
    let (listeners, log) = (listeners.by_worker, log.handle());
    let (mut running, admin) = start_workers(options, shares, &shared, (listeners, inboxes), &log)?;
    nfs.start(workers, &shared, of_nfs, &mut running)?;
    Ok(Started {
        shared,
        admin,
        running,
    })
}

fn start_workers(
    options: &ServeOptions,
    shares: &Shares,
    shared: &Arc<Shared>,
    (listeners, inboxes): (Vec<Vec<Listener>>, Vec<Inbox>),
    log: &AccessHandle,
) -> io::Result<(Running, Vec<admin::WorkerChannel>)> {
    let (mut running, mut admin_channels) = (Running::default(), Vec::new());
    for (index, (listeners, inbox)) in listeners.into_iter().zip(inboxes).enumerate() {
        let settings = settings(options, index as u16, shares, log.is_on());
        let (channel, questions) =
            admin::WorkerChannel::new(Arc::clone(&shared.channels[index].waker));
        let context = WorkerContext {
            inbox,
            questions,
            tally: Arc::clone(&channel.tally),
            log: log.clone(),
            listeners,
            response_cache_bytes: shares.object_cache_bytes / u64::from(shares.workers),
        };
        admin_channels.push(channel);
        let worker = Worker::new(settings, Arc::clone(shared), context)?;
        running.start(format!("worker-{index}"), move || worker.run())?;
    }
    Ok((running, admin_channels))
}

fn disks_of(
    options: &ServeOptions,
    shares: &Shares,
    (site, ledger): (&Site, &Arc<Ledger>),
    channels: &Arc<Vec<Channel>>,
    (clock, seldom): (Clock, &Arc<Seldom>),
) -> Arc<Disks> {
    Arc::new(Disks::new(DiskContext {
        devices: Arc::clone(&site.devices),
        channels: Arc::clone(channels),
        clock,
        settings: disk_settings(options, shares),
        ledger: Arc::clone(ledger),
        pool_bytes: shares.prefetch_bytes,
        device_bytes: shares.device_bytes(),
        seldom: Arc::clone(seldom),
    }))
}

/// The thread of the origins, if there are some, or one for each of the other nodes.
fn start_upstream(site: &Site, returns: &[Return], disks: &Arc<Disks>) -> io::Result<()> {
    let (returns, disks) = (returns.to_vec(), Arc::clone(disks));
    let start = move |gateway: &Arc<Gateway>| {
        let handle = upstream::start(upstream::Context {
            gateway: Arc::clone(gateway),
            returns: returns.clone(),
            disk: disks.context().clone(),
        })?;
        disks.enter(gateway.device, handle);
        Ok(())
    };
    site.gateway.iter().try_for_each(&start)?;
    match &site.peers {
        Some(peers) => peers.start(Box::new(start)),
        None => Ok(()),
    }
}

/// The thread that reads from the iSCSI unit, and the one that hears what is mounted, if there is a unit.
fn start_unit(site: &Site, options: &ServeOptions, disks: &Disks) -> io::Result<()> {
    let Some(unit) = &site.unit else {
        return Ok(());
    };
    let session = unit.session().map_err(io::Error::other)?;
    let handle = lun::start(unit, session, disks.context().clone())?;
    disks.enter(unit.device, handle);
    lun::listen(unit, options.iscsi.iscsi_gateway.clone())?;
    let top = site.root.served().next();
    let top = top.and_then(|top| rustix::fs::fstat(&top.dir).ok());
    unit.begin(&shown_path(site.root.path()), top.map(|top| top.st_dev));
    Ok(())
}

/// The counts of each address's connections, if these have a bound.
fn addresses(options: &ServeOptions, connections_max: u32) -> Option<Arc<AddressCounts>> {
    (options.connections_per_address != 0).then(|| {
        let key = RandomState::new().hash_one(0);
        Arc::new(AddressCounts::new(connections_max, key))
    })
}

/// What divides send memory, with its thread, if it is divided.
fn dividing(
    options: &ServeOptions,
    shares: &Shares,
    channels: &[Channel],
    clock: Clock,
) -> io::Result<Option<Arc<Dividing>>> {
    let Some(pool_bytes) = shares.send_bytes else {
        return Ok(None);
    };
    let wakers = channels.iter().map(|channel| Arc::clone(&channel.waker));
    let places = shares.connections_per_worker;
    let dividing = Dividing::new(options.compare.share, pool_bytes, wakers, places, clock);
    let dividing = Arc::new(dividing);
    divider::start(&dividing, clock)?;
    Ok(Some(dividing))
}

fn tell_rest(shared: &Shared, drain_timeout: Duration) {
    shared.seldom.tell_all();
    let count = shared.cut_off.load(Ordering::Relaxed);
    if count > 0 {
        tracing::warn!(
            "the end of drain_timeout ({}): {count} {} cut off",
            display_duration(drain_timeout),
            if count == 1 {
                "download was"
            } else {
                "downloads were"
            },
        );
    }
}

/// One worker for each core that this process may use: affinity mask and cgroup quota count (std looks at both).
fn workers(options: &ServeOptions) -> u16 {
    match options.workers {
        Workers::Count(count) => count,
        Workers::Auto => {
            let cores = thread::available_parallelism().map_or(1, usize::from);
            cores.min(usize::from(WORKERS_MAX)) as u16
        }
    }
}

fn shares(options: &ServeOptions, given: &Layer) -> Result<Shares, Failure> {
    divided(options).map_err(|error| Failure::value(given, "memory_max", &error))
}

fn settings(options: &ServeOptions, worker: u16, shares: &Shares, arrivals: bool) -> Settings {
    Settings {
        worker,
        connections_max: shares.connections_per_worker,
        connections_per_address: options.connections_per_address as u32, // at most 16,384
        header_timeout_us: duration_us(options.header_timeout),
        idle_timeout_us: duration_us(options.idle_timeout),
        send_timeout_us: duration_us(options.send_timeout),
        pause_timeout_us: duration_us(options.pause_timeout),
        rate_min_bytes_per_s: options.rate_min_bytes_per_s,
        drain_timeout_us: duration_us(options.drain_timeout),
        arrivals,
        arrivals_bytes_max: shares.records_bytes / u64::from(shares.workers),
        send: send_policy(options, shares),
        pacing: options.compare.pacing,
        delay: options.compare.delay,
    }
}

fn send_policy(options: &ServeOptions, shares: &Shares) -> SendPolicy {
    if options.compare.eager {
        return SendPolicy::Eager;
    }
    let divided_bytes = shares.send_bytes.unwrap_or(u64::MAX) / u64::from(shares.workers.max(1));
    SendPolicy::Margin {
        budget_bytes: shares
            .send_queue_bytes(memory::tcp_bytes())
            .min(divided_bytes),
    }
}

fn disk_settings(options: &ServeOptions, shares: &Shares) -> disk::Settings {
    disk::Settings {
        prefetch: options.compare.prefetch,
        order: options.compare.order,
        cancel: options.compare.cancel,
        delay: options.compare.delay,
        direct: options.compare.direct,
        memory_bytes: shares.remembered_by_bytes(),
        page_cache_bytes: shares.page_cache_bytes,
        rotational: true,
        spindles: 1,
        reads: None,
        arriving: false,
    }
}
