//! A client and three nodes on one segment, each a network namespace; the VIPs are on lo of each node. The client's packets to a VIP
//! go to node A.

use std::fs;
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use ackpace_host::handoff::switch::{Settings, Switch};
use ackpace_host_base::bpf;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

// linux/ethtool.h
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGRO: u32 = 0x2c;

pub const PORT: u16 = 80;
pub const CLIENT: usize = 0;
pub const A: usize = 1;
pub const B: usize = 2;
pub const C: usize = 3;
/// Where the device of each namespace is: the client's, and those of the nodes.
pub const DEVICE: &str = "eth0";

pub fn vip(is_ipv6: bool) -> IpAddr {
    let vip = if is_ipv6 { "fd77:9::9" } else { "10.77.9.9" };
    vip.parse().expect("an address")
}

/// The address of a client or node on the segment.
pub fn address(number: usize, is_ipv6: bool) -> IpAddr {
    let host = number + 1;
    let address = if is_ipv6 {
        format!("fd77::{host}")
    } else {
        format!("10.77.0.{host}")
    };
    address.parse().expect("an address")
}

/// The namespaces; they go away with it.
pub struct World {
    name: String,
}

impl World {
    /// `None`: said why not.
    pub fn new(test: &str) -> Option<World> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let skipped = |why: &str| {
            println!("skipped: {test}: {why}");
            None
        };
        if !ackpace_host::kernel::has_bpf() {
            return skipped("built without BPF");
        }
        if !rustix::process::geteuid().is_root() || bpf::cores().is_err() {
            return skipped("network namespaces need root");
        }
        if !ackpace_host::place::is_bpf_fs() {
            return skipped("no BPF file system at /sys/fs/bpf");
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let world = World {
            name: format!("ackpace-{}-{number}-", std::process::id()),
        };
        if !ip(&format!("netns add {}sw", world.name)) {
            return skipped("no ip(8), or no right to make network namespaces");
        }
        world.wire();
        Some(world)
    }

    fn wire(&self) {
        let switch = format!("{}sw", self.name);
        run(&format!(
            "-n {switch} link add br0 type bridge mcast_snooping 0"
        ));
        run(&format!("-n {switch} link set br0 up"));
        for number in CLIENT..=C {
            let own = self.space(number);
            run(&format!("netns add {own}"));
            run(&format!("-n {own} link set lo up"));
            run(&format!(
                "link add {DEVICE} netns {own} type veth peer name port{number} netns {switch}"
            ));
            run(&format!("-n {switch} link set port{number} master br0 up"));
            for (is_ipv6, bits, nodad) in [(false, 24, ""), (true, 64, "nodad")] {
                let address = address(number, is_ipv6);
                run(&format!(
                    "-n {own} addr add {address}/{bits} dev {DEVICE} {nodad}"
                ));
            }
            self.within(number, settle);
            run(&format!("-n {own} link set {DEVICE} up"));
            for is_ipv6 in [false, true] {
                let vip = vip(is_ipv6);
                if number == CLIENT {
                    let via = address(A, is_ipv6);
                    run(&format!("-n {own} route add {vip} via {via}"));
                } else {
                    let bits = if is_ipv6 { 128 } else { 32 };
                    run(&format!("-n {own} addr add {vip}/{bits} dev lo"));
                }
            }
        }
        (CLIENT..C).for_each(|number| self.wait_for_the_segment(number));
    }

    /// A port of a bridge takes a moment: until the others refuse a connection, nothing comes through.
    fn wait_for_the_segment(&self, number: usize) {
        self.within(number, move || {
            for (other, is_ipv6) in (number + 1..=C).flat_map(|it| [(it, false), (it, true)]) {
                let _ = TcpStream::connect((address(other, is_ipv6), 1));
            }
        });
    }

    /// The name of a namespace.
    pub fn space(&self, number: usize) -> String {
        format!("{}{number}", self.name)
    }

    /// Does something in a namespace. Sockets that are opened there stay there.
    pub fn within<T: Send + 'static>(
        &self,
        number: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        within(self.space(number), work)
    }

    /// Has a node's segments come one by one, and its device merge them.
    pub fn merge_at(&self, number: usize) {
        within(format!("{}sw", self.name), move || {
            set_offload(&format!("port{number}"), [ETHTOOL_STSO, 0]);
        });
        self.within(number, || set_offload(DEVICE, [ETHTOOL_SGRO, 1]));
    }

    /// Has the kernel cut what a node sends and is larger than the MTU.
    pub fn cut_at(&self, number: usize) {
        self.within(number, || set_offload(DEVICE, [ETHTOOL_STSO, 0]));
    }

    pub fn settings(&self, number: usize) -> Settings {
        World::settings_of(number)
    }

    /// What a node is to do: the same in each world.
    pub fn settings_of(number: usize) -> Settings {
        let others = |is_ipv6| move |other: usize| address(other, is_ipv6);
        let nodes = || (A..=C).filter(move |other| *other != number);
        // First by IPv4, then the same by IPv6.
        let peers = nodes().map(others(false)).chain(nodes().map(others(true)));
        Settings {
            vips: vec![vip(false), vip(true)],
            ports: vec![PORT],
            peers: peers.collect(),
            devices: Vec::new(),
        }
    }

    /// Starts the switch of a node.
    pub fn node(&self, number: usize) -> Node {
        Node::start(self.space(number), self.settings(number))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for number in CLIENT..=C {
            // Also what a process that is still to be killed has pinned.
            let space = fs::metadata(Path::new("/run/netns").join(self.space(number)));
            if let Ok(space) = space.map(|it| it.ino()) {
                let pins = format!("/sys/fs/bpf/ackpace-handoff/net-{space}-v2");
                let _ = fs::remove_dir_all(pins);
                let _ = fs::remove_file(format!("/run/ackpace-host/handoff-{space}.lock"));
            }
            ip(&format!("netns del {}", self.space(number)));
        }
        ip(&format!("netns del {}sw", self.name));
    }
}

/// The index of a peer in the settings of a node.
pub fn peer(of: usize, other: usize, is_ipv6: bool) -> usize {
    let at = (A..=C).filter(|it| *it != of).position(|it| it == other);
    at.expect("a peer") + if is_ipv6 { 2 } else { 0 }
}

type Work = Box<dyn FnOnce(&mut Switch) + Send>;

/// A node's switch, on a thread of its own.
pub struct Node {
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub fn start(space: String, settings: Settings) -> Node {
        let (work, works) = channel::<Work>();
        let thread = thread::spawn(move || {
            enter(&space);
            let mut switch = Switch::start(&settings).unwrap_or_else(|why| panic!("{why}"));
            for work in works {
                work(&mut switch);
            }
        });
        let node = Node {
            work: Some(work),
            thread: Some(thread),
        };
        node.with(|_| ()); // it has started
        node
    }

    /// Does something with it.
    pub fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Switch) -> T + Send + 'static,
    ) -> T {
        let (told, tells) = channel();
        let work = Box::new(move |switch: &mut Switch| drop(told.send(work(switch))));
        let sender = self.work.as_ref().expect("it runs");
        sender.send(work).expect("it runs");
        tells.recv().expect("no panic")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.work = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Moves this thread.
pub fn enter(space: &str) {
    let file = fs::File::open(Path::new("/run/netns").join(space)).expect("it was made");
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
}

/// As docs for operators say; and no router's advertisements, which would only delay tests.
fn settle() {
    let settings = [
        ("ipv4/conf/all/arp_ignore", "1"),
        ("ipv4/conf/all/arp_announce", "2"),
        ("ipv4/conf/all/rp_filter", "0"),
        ("ipv6/conf/eth0/accept_dad", "0"),
    ];
    for (name, value) in settings {
        fs::write(format!("/proc/sys/net/{name}"), value).expect("root may");
    }
}

fn within<T: Send + 'static>(space: String, work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        enter(&space);
        work()
    });
    thread.join().expect("no panic")
}

/// Switches an offload on or off.
fn set_offload(device: &str, mut value: [u32; 2]) {
    use std::os::fd::AsRawFd;
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    // SAFETY: plain numbers.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    asked.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: it reads the name and the two numbers.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut asked) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

fn ip(arguments: &str) -> bool {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    status.is_ok_and(|status| status.success())
}

pub fn run(arguments: &str) {
    assert!(ip(arguments), "ip {arguments}");
}
