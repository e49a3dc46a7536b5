//! A testbed is a place that was built: its files exist, memory is filled or a slow disk mounted, and the network
//! is up. Servers start in it; dropping the value takes it down.

use crate::cgroup::{self, Group};
use crate::corpus::{self, Set};
use crate::environment::{self, Cores};
use crate::leftovers;
use crate::origin::Origin;
use crate::peers::{Contender, Kind, Running, Site, StartEnvironment};
use crate::place::{self, Network, Place, Receive};
use crate::sockets::Sockets;
use crate::target::Target;
use crate::throttle::LoopDisk;
use crate::watch::Instruments;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::pages::{self, Pinned};
use ackpace_lab_disk::{CorpusFile, Disk, NO_ELEVATOR};
use ackpace_lab_wan::Wan;
use ackpace_lab_wan::topology::SERVER;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// Where a target listens, as RFC 7143 has it.
const TARGET_PORT: u16 = 3260;
/// Where an origin listens.
const ORIGIN_PORT: u16 = 7700;

/// The constants of a run.
pub struct Lab {
    /// The cores.
    pub cores: Cores,
    /// Directory of the files, kept for the next run.
    pub scratch: PathBuf,
    /// The ackpace binary.
    pub ackpace: PathBuf,
}

/// A place that was built.
pub struct Testbed<'a> {
    lab: &'a Lab,
    /// Its declaration.
    pub place: Place,
    /// The served directory.
    pub root: PathBuf,
    /// The instruments that are read while a server is measured.
    pub instruments: Instruments,
    address: IpAddr,
    ports: std::ops::RangeFrom<u16>,
    // Fields drop in this order: memory locks first, then the disk below them.
    _pinned: Vec<Pinned>,
    slow: Option<LoopDisk>,
}

/// The served files on their storage.
struct Storage {
    root: PathBuf,
    pinned: Vec<Pinned>,
    slow: Option<LoopDisk>,
    emulated: Option<Arc<Disk>>,
}

impl<'a> Testbed<'a> {
    /// Builds a place.
    pub fn up(lab: &'a Lab, place: &Place) -> Result<Self> {
        let storage = storage(lab, place)?;
        let (wan, sockets, address) = match &place.network {
            Network::Loopback => (None, Sockets::open()?, IpAddr::V4(Ipv4Addr::LOCALHOST)),
            Network::Wan { topology, receive } => {
                let wan = Wan::up(topology)?;
                wan.server()
                    .run(|| receive_on(core_of(*receive, lab.cores)))?;
                let sockets = wan.server().run(Sockets::open)?;
                (Some(Arc::new(wan)), sockets, IpAddr::V4(SERVER))
            }
        };
        let origin = match place.origin {
            None => None,
            Some(ip) => Some(Arc::new(origin(lab, ip, &storage.root, wan.as_deref())?)),
        };
        let target = match place.disk {
            place::Disk::Target {
                at, store_bytes, ..
            } => {
                let disk = (&place.files[..], store_bytes);
                Some(Arc::new(target(lab, at, disk, wan.as_deref())?))
            }
            _ => None,
        };
        Ok(Self {
            lab,
            place: place.clone(),
            root: storage.root,
            instruments: Instruments {
                sockets: Arc::new(sockets),
                disk: storage.emulated,
                wan,
                origin,
                target,
            },
            address,
            ports: 8001..,
            _pinned: storage.pinned,
            slow: storage.slow,
        })
    }

    /// Drops from memory what must not be cached, and resets the disk's counters.
    pub fn before_round(&self) -> Result<()> {
        if let Some(origin) = &self.instruments.origin {
            origin.mark();
        }
        let (place::Disk::Throttled { cached, .. } | place::Disk::Emulated { cached, .. }) =
            &self.place.disk
        else {
            return Ok(());
        };
        for set in &self.place.files {
            if !cached.contains(&set.name()) {
                for (path, _) in set.list() {
                    pages::drop_cached(&corpus::below(&self.root, &path))?;
                }
            }
        }
        if let Some(disk) = &self.instruments.disk {
            disk.reset_counters();
        }
        Ok(())
    }

    /// Moves a command into the clients' network and onto their core.
    pub fn client(&self, command: Command) -> Command {
        let mut command = environment::on_core(command, self.lab.cores.load_core, &[]);
        if let Some(wan) = &self.instruments.wan {
            wan.client().enter_before_exec(&mut command);
        }
        command
    }

    /// Runs in the clients' network. Sockets that are made there stay there.
    pub fn in_clients_network<T: Send>(
        &self,
        inside: impl FnOnce() -> Result<T> + Send,
    ) -> Result<T> {
        match &self.instruments.wan {
            Some(wan) => wan.client().run(inside),
            None => inside(),
        }
    }

    /// Moves a command onto the server's core; it stays in the run's own network.
    pub fn beside_server(&self, command: Command) -> Command {
        environment::on_core(command, self.lab.cores.server_core, &[])
    }

    /// The constants of the run.
    pub fn lab(&self) -> &Lab {
        self.lab
    }

    /// The ackpace binary.
    pub fn ackpace(&self) -> &Path {
        &self.lab.ackpace
    }

    /// The clients' core.
    pub fn load_core(&self) -> usize {
        self.lab.cores.load_core
    }

    /// Directory for files of a run.
    pub fn scratch(&self) -> &Path {
        &self.lab.scratch
    }

    /// Starts a contender that must hold `connections` connections at once.
    pub fn start(&mut self, contender: &Contender, connections: usize) -> Result<Running> {
        if let (Some(disk), place::Disk::Emulated { read_ahead_kb, .. }) =
            (&self.instruments.disk, &self.place.disk)
        {
            disk.set_read_ahead_kb(contender.read_ahead_kb.unwrap_or(*read_ahead_kb))?;
            disk.set_elevator(contender.elevator.unwrap_or(NO_ELEVATOR))?;
        }
        // A new port each time: no server waits for its predecessor's connections to leave TIME-WAIT.
        let port = self.ports.next().unwrap_or(u16::MAX);
        let site = Site {
            root: &self.root,
            scratch: &self.lab.scratch,
            ackpace: &self.lab.ackpace,
            address: SocketAddr::new(self.address, port),
            connections,
            memory_limit_bytes: self.place.memory_limit_bytes,
            origin: self
                .instruments
                .origin
                .as_ref()
                .map(|origin| origin.address),
            target: self
                .instruments
                .target
                .as_ref()
                .map(|target| target.url.as_str()),
            is_written: matches!(
                self.place.disk,
                place::Disk::Target {
                    is_written: true,
                    ..
                }
            ),
        };
        fresh_caches(&self.lab.scratch, contender.kind)?;
        let environment = StartEnvironment {
            cores: &self.lab.cores,
            group: self.group()?,
            sockets: &self.instruments.sockets,
            enter: &|command| {
                if let Some(wan) = &self.instruments.wan {
                    wan.server().enter_before_exec(command);
                }
            },
        };
        Running::start(contender, &site, environment)
    }

    /// The end of the log of the server that was started last.
    pub fn log_tail(&self) -> String {
        crate::peers::log_tail(&self.lab.scratch)
    }

    /// Checks that the connections of a server use the congestion control of its network, and fails if not.
    /// Returns false while the server has no connection.
    pub fn congestion_control_checked(&self, server: &Running) -> Result<bool> {
        let want = match &self.place.network {
            Network::Loopback => environment::CONGESTION_CONTROL,
            Network::Wan { topology, .. } => topology.congestion_control,
        };
        let sockets = &self.instruments.sockets;
        let seen = sockets.queues(server.address.ip(), server.address.port())?;
        match seen.congestion_controls.iter().find(|name| *name != want) {
            Some(name) => Err(LabError::contender(
                &server.name,
                format!("its connections use {name}, not {want}: nothing measured"),
            )),
            None => Ok(seen.connections > 0),
        }
    }

    fn group(&self) -> Result<Group> {
        let read = match (&self.place.disk, &self.slow) {
            (
                place::Disk::Throttled {
                    read_bytes_per_s, ..
                },
                Some(disk),
            ) => Some((disk.device.clone(), *read_bytes_per_s)),
            _ => None,
        };
        Group::new(&cgroup::Spec {
            name: "server".into(),
            memory_limit_bytes: self.place.memory_limit_bytes,
            sockets_limit_bytes: self.place.sockets_limit_bytes,
            read,
        })
    }
}

fn storage(lab: &Lab, place: &Place) -> Result<Storage> {
    let files = &place.files;
    let mut storage = Storage {
        root: lab.scratch.join("site"),
        pinned: Vec::new(),
        slow: None,
        emulated: None,
    };
    match &place.disk {
        // Mounted for each contender anew.
        place::Disk::Target { .. } => storage.root = lab.scratch.join("mounted"),
        place::Disk::Memory => {
            corpus::make(&storage.root, files)?;
            storage.pinned = pin(&storage.root, files, |_| true)?;
        }
        place::Disk::Throttled {
            read_ahead_kb,
            cached,
            ..
        } => {
            let slow = LoopDisk::up(&lab.scratch, files, *read_ahead_kb)?;
            storage.root = slow.mount.clone();
            storage.pinned = pin(&slow.mount, files, |name| cached.contains(&name))?;
            // The disk below the loop device must not be the slow part.
            storage.pinned.push(Pinned::new(&slow.image)?);
            storage.slow = Some(slow);
        }
        place::Disk::Emulated {
            profile,
            read_ahead_kb,
            cached,
        } => {
            let corpus = files.iter().flat_map(Set::list);
            let disk = Disk::up(&ackpace_lab_disk::Spec {
                name: leftovers::DISK.into(),
                profile: ackpace_lab_disk::profile::load(profile)?,
                corpus: corpus
                    .map(|(path, len_bytes)| CorpusFile {
                        path: path.trim_start_matches('/').into(),
                        len_bytes,
                    })
                    .collect(),
                writable: false,
                read_ahead_kb: *read_ahead_kb,
            })?;
            storage.root = disk.mount_point();
            storage.pinned = pin(&storage.root, files, |name| cached.contains(&name))?;
            storage.emulated = Some(Arc::new(disk));
        }
    }
    Ok(storage)
}

/// Starts the target of a place on the clients' core, in their network.
fn target(lab: &Lab, at: Ipv4Addr, disk: (&[Set], u64), wan: Option<&Wan>) -> Result<Target> {
    let address = SocketAddr::from((at, TARGET_PORT));
    Target::up(address, disk, &lab.scratch, |command| {
        let mut command = environment::on_core(command, lab.cores.load_core, &[]);
        if let Some(wan) = wan {
            wan.client().enter_before_exec(&mut command);
        }
        command
    })
}

/// Starts the origin of a place on the clients' core, in their network.
fn origin(lab: &Lab, ip: Ipv4Addr, root: &Path, wan: Option<&Wan>) -> Result<Origin> {
    let place = |command| {
        let mut command = environment::on_core(command, lab.cores.load_core, &[]);
        if let Some(wan) = wan {
            wan.client().enter_before_exec(&mut command);
        }
        command
    };
    let sockets = match wan {
        None => Sockets::open()?,
        Some(wan) => wan.client().run(Sockets::open)?,
    };
    let listens = || sockets.listening(ORIGIN_PORT);
    let address = SocketAddr::from((ip, ORIGIN_PORT));
    Origin::start(address, root, &lab.scratch, place, listens)
}

/// Empties the folders in which a peer keeps what it has from an origin: one on the disk, and one of a tmpfs that is new.
/// The mount is the run's own, and goes with it.
fn fresh_caches(scratch: &Path, kind: Kind) -> Result<()> {
    if kind != Kind::NginxGateway {
        return Ok(());
    }
    let (disk, memory) = (scratch.join("cache-disk"), scratch.join("cache-memory"));
    let _ = std::fs::remove_dir_all(&disk); // it need not be there
    let _ = unmount(&memory, UnmountFlags::DETACH); // nor need the mount
    for folder in [&disk, &memory] {
        std::fs::create_dir_all(folder).doing(|| folder.display().to_string())?;
    }
    let what = || memory.display().to_string();
    mount("tmpfs", &memory, "tmpfs", MountFlags::empty(), None).doing(what)
}

fn core_of(receive: Receive, cores: Cores) -> usize {
    match receive {
        Receive::ServerCore => cores.server_core,
        Receive::ClientsCore => cores.load_core,
    }
}

/// Moves the receive processing of all devices of the calling thread's network to a core (RPS; kernel:
/// Documentation/networking/scaling). Their settings are in a /sys of that network. The thread ends soon, and the mount with it.
pub fn receive_on(core: usize) -> Result<()> {
    // SAFETY: no pointers; only this thread gets a mount namespace of its own.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "a mount namespace".into());
    }
    let what = || "/sys of a network".to_owned();
    mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).doing(what)?;
    let mask = format!("{:x}", 1u64 << core);
    for entry in std::fs::read_dir("/sys/class/net").doing(what)?.flatten() {
        let cpus = entry.path().join("queues/rx-0/rps_cpus");
        if entry.file_name() != "lo" && cpus.exists() {
            std::fs::write(&cpus, &mask).doing(|| cpus.display().to_string())?;
        }
    }
    Ok(())
}

fn pin(root: &Path, sets: &[Set], wanted: impl Fn(&str) -> bool) -> Result<Vec<Pinned>> {
    let wanted = sets.iter().filter(|set| wanted(set.name()));
    wanted
        .flat_map(Set::list)
        .map(|(path, _)| Pinned::new(&corpus::below(root, &path)))
        .collect()
}
