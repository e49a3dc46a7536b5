//! The flow switch of a node: tells the program on its devices (`host/src/bpf/flows.bpf.c`) to which node the packets of a
//! connection go, keeps those that come while a connection is frozen, and sends them to its owner.
//!
//! A node is asked only about connections that are, or were, its own to decide; all others have no entry. An entry is replaced as a
//! whole: a packet sees the old one or the new one. What the client said last is copied along, so one packet's may be lost then.
//! Entries and programs are pinned: they go on without this process, and the next one finds them.
//!
//! Out of reach: clients on the node itself (their packets come by lo), packets with VLAN tags (a VLAN's own device has none), and
//! devices that come after the start. Packets of more than 64 KiB (BIG TCP) can't be held.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ackpace_host_base::bpf::{Aligned, Program, Ring, Side};
use ackpace_host_base::clock::monotonic_ns;
use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::Lock;
use ackpace_host_base::object;
use ackpace_wire::cluster::Tuple;

pub mod counts;
mod ends;
pub mod entry;
pub mod frame;
pub mod held;
pub mod pins;
pub mod routes;
pub mod settings;
pub mod wires;

pub use counts::Counts;
pub use entry::Tracked;
pub use settings::Settings;

use self::entry::{Action, Entry, Key, NextHop, canonical, mapped};
use self::held::{Held, Waiting};
use self::pins::Pins;
use self::wires::Wires;

static OBJECT: &Aligned<[u8]> = object!("flows");
const NEEDS: &str = "'handoff' needs Linux 6.6 or later, for programs on devices by links (tcx)";
/// Connections that are away or guests (`FLOWS_MAX`): about 12 MB. More: refused, so the connection stays where it is.
pub const FLOWS_MAX: usize = 65_536;

/// A frozen connection that nobody thaws is as it was before so long: the broker hangs, or was killed.
const HOLD_NS: u64 = 1_000_000_000;
/// A connection that was taken over is still tracked so long: an ACK of what the dead node had sent may come late.
const TAKEN_OVER_NS: u64 = 60_000_000_000;

/// The switch. Dropping it changes nothing: entries and programs stay until [`Switch::clear`].
pub struct Switch {
    program: Program,
    ring: Ring,
    wires: Wires,
    vips: Vec<IpAddr>,
    ports: Vec<u16>,
    peers: Vec<NextHop>,
    waiting: Waiting,
    /// When entries end.
    ends: BTreeSet<(u64, Key)>,
    /// The server that asks now, by a number of its own; 0: nobody.
    owner: u32,
    /// When entries are looked at that nobody may need any more.
    age_at_ns: u64,
    /// What is counted here; the program has the others.
    own: Counts,
    _lock: Lock,
}

impl Switch {
    /// Loads the programs and lets them stand on the devices, or takes over those of a process that has ended. It
    /// takes CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW; none of them is used afterwards.
    ///
    /// # Errors
    /// The settings are wrong, a peer is on another segment, another process does the same, or the kernel refuses.
    pub fn start(settings: &Settings) -> Result<Switch, Failure> {
        settings.check()?;
        let devices = settings.devices()?;
        let peers = settings.next_hops()?;
        let place = Pins::here()?;
        let lock = place.take()?;
        let program = Program::load_pinned(OBJECT, NEEDS, place.folder())?;
        let mut switch = Switch {
            ring: program.ring("held_packets")?,
            wires: Wires::open()?,
            vips: settings.vips.iter().map(IpAddr::to_canonical).collect(),
            ports: settings.ports.clone(),
            peers,
            waiting: Waiting::default(),
            ends: BTreeSet::new(),
            owner: 0,
            age_at_ns: 0,
            own: Counts::default(),
            program,
            _lock: lock,
        };
        switch.choose_vips()?;
        let was_there = place.attach(&switch.program, &devices)?;
        switch.take_entries_over(was_there)?;
        Ok(switch)
    }

    fn choose_vips(&self) -> Result<(), Failure> {
        for (vip, _) in self.program.entries("vips")? {
            self.program.delete("vips", &vip)?;
        }
        for vip in &self.vips {
            self.program.set("vips", &mapped(*vip), &[1, 0, 0, 0])?;
        }
        Ok(())
    }

    /// Freezes a flow: the client's packets are kept here, and nothing of it leaves. For a second at most.
    ///
    /// # Errors
    /// A higher epoch has decided, it is not a flow of a VIP, or the map is full.
    pub fn hold(&mut self, tuple: &Tuple, epoch: u32) -> Result<(), Failure> {
        let (key, old) = self.checked(tuple, epoch)?;
        let held = Entry {
            action: Action::Hold,
            epoch,
            expires_ns: monotonic_ns() + HOLD_NS,
            next: None,
            ..old.unwrap_or(Entry::new(Action::Hold, epoch))
        };
        self.write(key, &held)
    }

    /// Ends [`Switch::hold`]: the entry is again what it was, and the own stack gets the packets that were kept.
    pub fn thaw(&mut self, tuple: &Tuple) {
        let key = Key::of(tuple);
        let held = self.read(key).filter(|it| it.action == Action::Hold);
        if let Some(held) = held {
            // They make the socket send.
            let _ = self.write(key, &held.thawing());
        }
        self.collect();
        // In their order, before those that come now.
        self.settle(key);
        if let Some(entry) = self.read(key).filter(|it| it.action == Action::Thaw) {
            self.unfreeze(key, entry);
        }
        self.collect();
    }

    /// A guest's is one again, any other entry goes.
    fn unfreeze(&mut self, key: Key, entry: Entry) {
        if entry.lease_until_ns == 0 || self.write(key, &entry.guest_again()).is_err() {
            self.remove(key);
        }
    }

    /// Sends the client's packets to a peer from now on, and those first that were kept. How many that were.
    ///
    /// # Errors
    /// As [`Switch::hold`]; or the peer can't take packets of this kind.
    pub fn redirect(&mut self, tuple: &Tuple, peer: usize, epoch: u32) -> Result<u32, Failure> {
        let (key, old) = self.checked(tuple, epoch)?;
        let next = self.next_hop(key, peer)?;
        let redirected = Entry {
            next: Some(next),
            ..Entry::new(Action::Redirect, epoch)
        };
        let released = self.own.released;
        if let Some(held) = old.filter(|old| old.action == Action::Hold) {
            // What is released goes to the peer already, while what comes is still kept behind it.
            let leaving = Entry {
                next: Some(next),
                ..held
            };
            self.write(key, &leaving)?;
            self.collect();
            self.settle(key);
        }
        let tracked = self.read(key).and_then(|entry| entry.tracked);
        self.write(
            key,
            &Entry {
                tracked,
                ..redirected
            },
        )?;
        self.collect();
        self.settle(key);
        Ok((self.own.released - released) as u32)
    }

    /// Takes the client's packets here. With a lease (CLOCK_MONOTONIC), this node is a guest: it sends only until then, and never
    /// SYN, FIN or RST. Without, this node is home, and the entry goes; but one that was fenced is tracked for another minute.
    ///
    /// # Errors
    /// As [`Switch::hold`].
    pub fn claim(&mut self, tuple: &Tuple, epoch: u32, lease: Option<u64>) -> Result<(), Failure> {
        let (key, old) = self.checked(tuple, epoch)?;
        let is_fenced = old.is_some_and(|old| old.action == Action::Fence);
        let mut mine = Entry::new(Action::Mine, epoch);
        mine.tracked = old.and_then(|old| old.tracked);
        match lease {
            // 0 would say that it is home.
            Some(until_ns) => mine.lease_until_ns = until_ns.max(1),
            None => mine.expires_ns = monotonic_ns() + TAKEN_OVER_NS,
        }
        if lease.is_some() || is_fenced {
            self.write(key, &mine)?;
        } else {
            self.remove(key);
        }
        self.collect();
        self.settle(key);
        Ok(())
    }

    /// Renews a guest's lease.
    ///
    /// # Errors
    /// As [`Switch::hold`]; or this node is not a guest.
    pub fn lease(&mut self, tuple: &Tuple, epoch: u32, until_ns: u64) -> Result<(), Failure> {
        let (key, old) = self.checked(tuple, epoch)?;
        let guest = old.filter(|old| old.lease_until_ns != 0 && old.epoch == epoch);
        let guest = guest.ok_or_else(|| Failure::runtime("this node is not its guest"))?;
        let renewed = Entry {
            lease_until_ns: until_ns.max(1),
            ..guest
        };
        self.write(key, &renewed)
    }

    /// Drops the client's packets, and what this node sends. What the client says is tracked.
    ///
    /// # Errors
    /// As [`Switch::hold`].
    pub fn fence(&mut self, tuple: &Tuple, epoch: u32) -> Result<(), Failure> {
        let (key, old) = self.checked(tuple, epoch)?;
        let mut fence = Entry::new(Action::Fence, epoch);
        fence.tracked = old.and_then(|old| old.tracked);
        self.write(key, &fence)?;
        self.collect();
        self.waiting.take(key);
        Ok(())
    }

    /// What the client said last; `None`: nothing since the flow has an entry. Anyone who knows the tuple can forge it: compare it
    /// with what was sent.
    pub fn track(&mut self, tuple: &Tuple) -> Option<Tracked> {
        self.read(Key::of(tuple))?.tracked
    }

    /// By whose decision the flow has its entry; `None`: it has none.
    pub fn epoch(&self, tuple: &Tuple) -> Option<u32> {
        self.read(Key::of(tuple)).map(|entry| entry.epoch)
    }

    /// Whether the client's packets are dropped ([`Switch::fence`]).
    pub fn is_fenced(&self, tuple: &Tuple) -> bool {
        (self.read(Key::of(tuple))).is_some_and(|entry| entry.action == Action::Fence)
    }

    /// Puts an IP packet into the own stack, as if its sender had sent it to a VIP.
    ///
    /// # Errors
    /// It is not a packet to a VIP, or as raw(7).
    pub fn inject(&mut self, packet: &[u8]) -> Result<(), Failure> {
        let to = match packet {
            [0x45, ..] => packet
                .get(16..20)
                .and_then(|to| to.first_chunk::<4>())
                .copied()
                .map(IpAddr::from),
            [first, ..] if first >> 4 == 6 => packet
                .get(24..40)
                .and_then(|to| to.first_chunk::<16>())
                .copied()
                .map(IpAddr::from),
            _ => None,
        };
        let to = to.filter(|to| self.vips.contains(to));
        let to = to.ok_or_else(|| Failure::runtime("a packet to inject is for no VIP"))?;
        let injected = self.wires.inject(to, packet);
        injected.map_err(|error| Failure::runtime(format!("a packet to inject: {error}")))
    }

    /// Readable when [`Switch::hear`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }

    /// Takes packets of frozen flows, and removes entries that have ended, or are idle. Call it once a second in any case.
    pub fn hear(&mut self) {
        self.collect();
        self.sweep();
        self.age();
    }

    /// Entries that have not ended.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn entries(&self) -> Result<usize, Failure> {
        let now_ns = monotonic_ns();
        let entries = self.program.entries("flows")?;
        let live = entries.iter().filter_map(|(_, entry)| Entry::read(entry));
        Ok(live.filter(|entry| !entry.is_over(now_ns)).count())
    }

    /// What has happened since the programs stand on the devices; what is counted here, since this process has started.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn counts(&self) -> Result<Counts, Failure> {
        Ok(self.own.with_those_of(&self.program.only("counts")?))
    }

    /// Takes the programs off all devices of this network namespace, and removes all entries: whatever is away is lost.
    ///
    /// # Errors
    /// A pin can't be removed.
    pub fn clear() -> Result<(), Failure> {
        Pins::here()?.clear()
    }

    /// Runs the program of one side so many times on a packet that goes nowhere. Its verdict, and nanoseconds of one run.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn measure(&self, side: Side, frame: &[u8], times: u32) -> Result<(i32, u64), Failure> {
        let program = match side {
            Side::In => "flows_in",
            Side::Out => "flows_out",
        };
        let (verdict, took) = self.program.test_run(program, frame, times)?;
        Ok((verdict, took.as_nanos() as u64))
    }
}

/// Loads the programs, and attaches none.
///
/// # Errors
/// The kernel refuses; what to do.
pub fn can_load() -> Result<(), Failure> {
    Program::load(OBJECT, NEEDS, None).map(drop)
}

/// How entries are read and written.
impl Switch {
    /// The key and the present entry of a flow about which `epoch` may decide.
    fn checked(&mut self, tuple: &Tuple, epoch: u32) -> Result<(Key, Option<Entry>), Failure> {
        self.sweep();
        let server = canonical(tuple.server);
        let is_same_kind = server.is_ipv4() == canonical(tuple.client).is_ipv4();
        if !is_same_kind
            || !self.vips.contains(&server.ip())
            || !self.ports.contains(&server.port())
        {
            return Err(Failure::runtime(format!(
                "{server} is not a VIP and port of this node"
            )));
        }
        let key = Key::of(tuple);
        match self.read(key) {
            Some(entry) if entry.epoch > epoch => {
                self.own.epochs_refused += 1;
                Err(Failure::runtime(format!(
                    "epoch {epoch} is stale: epoch {} owns the connection",
                    entry.epoch
                )))
            }
            old => Ok((key, old)),
        }
    }

    fn next_hop(&self, key: Key, peer: usize) -> Result<NextHop, Failure> {
        let next = self.peers.get(peer).copied();
        let next = next.ok_or_else(|| Failure::runtime(format!("there is no peer {peer}")))?;
        if key.is_ipv6() && next.address.is_ipv4() {
            return Err(Failure::runtime(format!(
                "peer {} takes no packets of IPv6: name it by an address of IPv6",
                next.address
            )));
        }
        Ok(next)
    }

    /// The entry, unless it has ended.
    fn read(&self, key: Key) -> Option<Entry> {
        let told = self.program.get("flows", &key.0).ok()??;
        let entry = Entry::read(&told)?;
        match entry.is_over(monotonic_ns()) {
            false => Some(entry),
            true if entry.is_held() && entry.lease_until_ns != 0 => Some(entry.guest_again()),
            true => None,
        }
    }

    fn write(&mut self, key: Key, entry: &Entry) -> Result<(), Failure> {
        let entry = &Entry {
            last: entry::last(monotonic_ns()),
            owner: self.owner,
            ..*entry
        };
        self.program
            .set("flows", &key.0, &entry.bytes())
            .map_err(|error| {
                Failure::runtime(format!("no room for a flow, of {FLOWS_MAX}: {error}"))
            })?;
        if entry.expires_ns != 0 {
            self.ends.insert((entry.expires_ns, key));
        }
        Ok(())
    }

    /// It may not be there.
    fn remove(&mut self, key: Key) {
        let _ = self.program.delete("flows", &key.0);
    }
}

/// How packets are kept and released.
impl Switch {
    /// Takes what the program has handed over. A packet whose flow is not frozen any more goes on at once.
    fn collect(&mut self) {
        let Ok(records) = self.ring.take() else {
            return;
        };
        for record in records {
            let Some((key, held)) = Held::read(&record) else {
                continue;
            };
            match self.read(key).map(|entry| entry.action) {
                Some(Action::Hold | Action::Thaw) => {
                    if !self.waiting.push(key, held) {
                        self.own.no_room += 1;
                    }
                }
                Some(Action::Fence) => {}
                _ => self.send(held),
            }
        }
    }

    /// Sends what waits on to where the flow's entry says.
    fn settle(&mut self, key: Key) {
        for held in self.waiting.take(key) {
            self.send(held);
        }
    }

    fn send(&mut self, mut held: Held) {
        let Some(head) = frame::prepare(&mut held.frame, held.segment_bytes) else {
            self.own.damaged += 1;
            return;
        };
        match self.wires.send(held.device, &head, &held.frame) {
            Ok(()) => self.own.released += 1,
            Err(_) => self.own.not_sent += 1,
        }
    }
}
