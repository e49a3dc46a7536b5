//! Decides what happens to frames between the two ends: which path and links each takes, and when it comes out.
//! No I/O and no clock; the emulator's thread drives it.
//!
//! A frame that stands for many packets (a run) is offered to each link packet by packet, so rate, queue, loss
//! and marks are exact. Consecutive survivors travel on as one frame, which arrives when the last of them
//! would. Its first packet is thus late by at most the run's own time on the link, which `run_ns` bounds.

use super::packet::{self, FRAME_LEN_BYTES_MAX, Head, Run};
use super::plan::{Direction, LinkId, PathPlan, Plan};
use ackpace_sim::models::link::{DropCause, Link, LinkProfile, Totals, Verdict};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::IpAddr;

/// Memory of all frames in flight: 10 Gbit/s for .8 s. Full: the frame is dropped and counted.
pub const UNDER_WAY_BYTES_MAX: usize = 1 << 30;
/// Cached path choices by client and port. Full: the cache is emptied, and paths are searched again.
const CHOICES_MAX: usize = 1 << 16;
/// Buffers of each size kept for reuse. Others are freed.
const SPARE_BUFFERS_MAX: usize = 4096;
/// Buffers have three sizes; this one holds one packet, and the largest holds any frame.
const SMALL_BUFFER_BYTES: usize = 2048;
/// Holds a frame that TCP builds on a slow connection: about a millisecond of its rate. Such frames are copied,
/// too: a large buffer must be zero-filled to its end before the next frame is read into it, which costs more.
const MEDIUM_BUFFER_BYTES: usize = 16 << 10;

/// Packets of a path in one direction. `entered` is the sum of those delivered, dropped, lost and still in
/// flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PathTotals {
    /// Packets that came in.
    pub entered_packets: u64,
    /// Their bytes, IP with all headers.
    pub entered_bytes: u64,
    /// Packets delivered to the other end.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Dropped by a full queue.
    pub dropped_full_packets: u64,
    /// Dropped early by RED.
    pub dropped_red_packets: u64,
    /// Lost on the wire.
    pub lost_packets: u64,
    /// Dropped because the emulator's own memory was full: the experiment exceeds its capacity.
    pub dropped_memory_packets: u64,
    /// Delivered with "congestion experienced" set here.
    pub marked_packets: u64,
}

/// State of a link.
#[derive(Clone, Copy, Debug)]
pub struct LinkState {
    /// Its totals since the start.
    pub totals: Totals,
    /// Time that the transmitter was sending.
    pub busy_ns: u64,
    /// Bytes in the queue now.
    pub queue_bytes: u64,
}

/// Frames that belong to no path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Strays {
    /// No path has this client and port.
    pub no_path: u64,
    /// Could not be parsed.
    pub malformed: u64,
}

/// All links and paths, with the frames in flight.
pub struct Engine {
    links: Vec<LinkSlot>,
    paths: Vec<PathState>,
    /// Longest transmission time that one frame may stand for; `None`: every packet is a frame.
    run_ns: Option<u64>,
    choices: HashMap<(IpAddr, u16), usize>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, u64, usize)>>, // when, order, flight
    order: u64,
    under_way_bytes: usize,
    small: Vec<Vec<u8>>,
    medium: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    strays: Strays,
}

struct LinkSlot {
    link: Link,
    /// Time of the latest offer: a frame that is handled late must not turn the link's clock back.
    seen_ns: u64,
}

struct PathState {
    plan: PathPlan,
    totals: [PathTotals; 2],
}

struct Flight {
    frame: Vec<u8>,
    head: Head,
    path: usize,
    direction: Direction,
    /// Links passed before the current one.
    hop: usize,
    departs_ns: u64,
}

/// Consecutive survivors, while a frame is offered to a link.
struct Growing {
    run: Run,
    mark_ce: bool,
    began_ns: u64,
    departs_ns: u64,
    at_ns: u64,
}

impl Engine {
    /// Builds idle links from a plan. `run_ns`: see the module; `None` cuts every frame into its packets.
    pub fn new(plan: Plan, run_ns: Option<u64>) -> Engine {
        let slot = |(profile, seed): (LinkProfile, u64)| LinkSlot {
            link: Link::new(profile, seed),
            seen_ns: 0,
        };
        let links = plan.links.into_iter().map(|link| (link.profile, link.seed));
        let path = |plan| PathState {
            plan,
            totals: Default::default(),
        };
        Engine {
            links: links.map(slot).collect(),
            paths: plan.paths.into_iter().map(path).collect(),
            run_ns,
            choices: HashMap::new(),
            flights: Vec::new(),
            free: Vec::new(),
            due: BinaryHeap::new(),
            order: 0,
            under_way_bytes: 0,
            small: Vec::new(),
            medium: Vec::new(),
            large: Vec::new(),
            strays: Strays::default(),
        }
    }

    /// A buffer with `FRAME_LEN_BYTES_MAX` bytes to read a frame into.
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare(FRAME_LEN_BYTES_MAX);
        buffer.resize(FRAME_LEN_BYTES_MAX, 0);
        buffer
    }

    /// Takes back the buffer of a written frame.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        let spare = match buffer.capacity() {
            FRAME_LEN_BYTES_MAX.. => &mut self.large,
            MEDIUM_BUFFER_BYTES.. => &mut self.medium,
            SMALL_BUFFER_BYTES.. => &mut self.small,
            _ => return,
        };
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(buffer);
        }
    }

    /// Accepts a frame of `len_bytes` from one end. A small one is copied; for a large one, the buffer itself
    /// is taken and replaced.
    pub fn receive(
        &mut self,
        now_ns: u64,
        direction: Direction,
        buffer: &mut Vec<u8>,
        len_bytes: usize,
    ) {
        let Some(head) = packet::parse(&buffer[..len_bytes]) else {
            self.strays.malformed += 1;
            return;
        };
        let Some(path) = self.path_of(&head, direction) else {
            self.strays.no_path += 1;
            return;
        };
        let totals = &mut self.paths[path].totals[direction as usize];
        for nth in 0..head.segments() {
            totals.entered_packets += 1;
            totals.entered_bytes += u64::from(head.wire_len_bytes(nth));
        }
        let frame = if len_bytes <= MEDIUM_BUFFER_BYTES {
            let mut copy = self.spare(len_bytes);
            copy.clear();
            copy.extend_from_slice(&buffer[..len_bytes]);
            copy
        } else {
            let next = self.buffer();
            let mut taken = std::mem::replace(buffer, next);
            taken.truncate(len_bytes);
            taken
        };
        let flight = Flight {
            frame,
            head,
            path,
            direction,
            hop: 0,
            departs_ns: now_ns,
        };
        self.offer(now_ns, flight);
    }

    /// The next frame that arrives by now, with its direction. The caller writes it and recycles the buffer.
    pub fn arrived(&mut self, now_ns: u64) -> Option<(Direction, Vec<u8>)> {
        while self.deadline_ns()? <= now_ns {
            let Reverse((at_ns, _, slot)) = self.due.pop()?;
            self.free.push(slot);
            let Some(mut flight) = self.flights[slot].take() else {
                continue;
            };
            self.under_way_bytes -= flight.frame.capacity();
            flight.hop += 1;
            let path = &mut self.paths[flight.path];
            if flight.hop < path.plan.links(flight.direction).len() {
                self.offer(at_ns, flight);
                continue;
            }
            let totals = &mut path.totals[flight.direction as usize];
            for nth in 0..flight.head.segments() {
                totals.delivered_packets += 1;
                totals.delivered_bytes += u64::from(flight.head.wire_len_bytes(nth));
            }
            return Some((flight.direction, flight.frame));
        }
        None
    }

    /// The time at which the next frame reaches the end of a link.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_ns, _, _))| *at_ns)
    }

    /// Changes a link while it runs; queued packets go out at the new rate.
    pub fn set(&mut self, now_ns: u64, link: LinkId, profile: LinkProfile) {
        let slot = &mut self.links[link.0];
        let now_ns = now_ns.max(slot.seen_ns);
        let mut retime = slot.link.set(now_ns, profile);
        if retime.is_nothing() {
            return;
        }
        let mut due = std::mem::take(&mut self.due).into_vec();
        due.sort_unstable_by_key(|Reverse(when)| *when);
        for Reverse((at_ns, _, nth)) in &mut due {
            let Some(flight) = self.flights[*nth].as_mut() else {
                continue;
            };
            let links = self.paths[flight.path].plan.links(flight.direction);
            if links[flight.hop] == link && flight.departs_ns > now_ns {
                (flight.departs_ns, *at_ns) = retime.apply(flight.departs_ns, *at_ns);
            }
        }
        self.due = due.into();
    }

    /// Totals of a path, by its index in the plan.
    pub fn path_totals(&self, path: usize, direction: Direction) -> PathTotals {
        self.paths[path].totals[direction as usize]
    }

    /// State of a link at `now_ns`.
    pub fn link_state(&self, link: LinkId, now_ns: u64) -> LinkState {
        let link = &self.links[link.0].link;
        LinkState {
            totals: link.totals(),
            busy_ns: link.busy_ns(now_ns),
            queue_bytes: link.queue_bytes(now_ns),
        }
    }

    /// Number of paths in the plan.
    pub fn path_count(&self) -> usize {
        self.paths.len()
    }

    /// Number of links in the plan.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Frames that belong to no path.
    pub fn strays(&self) -> Strays {
        self.strays
    }

    /// A buffer with capacity for `len_bytes`; its content and length are unspecified.
    fn spare(&mut self, len_bytes: usize) -> Vec<u8> {
        let (spare, capacity) = if len_bytes <= SMALL_BUFFER_BYTES {
            (&mut self.small, SMALL_BUFFER_BYTES)
        } else if len_bytes <= MEDIUM_BUFFER_BYTES {
            (&mut self.medium, MEDIUM_BUFFER_BYTES)
        } else {
            (&mut self.large, FRAME_LEN_BYTES_MAX)
        };
        spare.pop().unwrap_or_else(|| Vec::with_capacity(capacity))
    }

    fn path_of(&mut self, head: &Head, direction: Direction) -> Option<usize> {
        let (client, server_port) = match direction {
            Direction::Down => (head.to, head.ports.map(|(from, _)| from)),
            Direction::Up => (head.from, head.ports.map(|(_, to)| to)),
        };
        let key = (client, server_port.unwrap_or(0));
        if let Some(path) = self.choices.get(&key) {
            return Some(*path);
        }
        let fits = |path: &PathState| path.plan.takes(client, server_port);
        let path = self.paths.iter().position(fits)?;
        if self.choices.len() >= CHOICES_MAX {
            self.choices.clear();
        }
        self.choices.insert(key, path);
        Some(path)
    }

    /// Offers each packet of a frame to the next link, and forwards the survivors.
    fn offer(&mut self, now_ns: u64, flight: Flight) {
        let link = self.paths[flight.path].plan.links(flight.direction)[flight.hop];
        let slot = &mut self.links[link.0];
        slot.seen_ns = slot.seen_ns.max(now_ns);
        let now_ns = slot.seen_ns;
        let run_ns = if slot.link.profile().may_reorder {
            None
        } else {
            self.run_ns
        };
        let mut growing: Option<Growing> = None;
        for nth in 0..flight.head.segments() {
            let len_bytes = flight.head.wire_len_bytes(nth);
            let link = &mut self.links[link.0].link;
            let verdict = link.offer(now_ns, len_bytes, flight.head.ecn_capable);
            let (departs_ns, at_ns, mark_ce) = match verdict {
                Verdict::Deliver {
                    departs_ns,
                    at_ns,
                    mark_ce,
                } => (departs_ns, at_ns, mark_ce),
                Verdict::Drop(why) => {
                    self.count_drop(&flight, why);
                    self.launch(&flight, growing.take());
                    continue;
                }
            };
            if let (Some(so_far), Some(run_ns)) = (&mut growing, run_ns) {
                if so_far.mark_ce == mark_ce && departs_ns - so_far.began_ns <= run_ns {
                    so_far.run.count += 1;
                    (so_far.departs_ns, so_far.at_ns) = (departs_ns, at_ns);
                    continue;
                }
            }
            let next = Growing {
                run: Run {
                    first: nth,
                    count: 1,
                },
                mark_ce,
                began_ns: departs_ns,
                departs_ns,
                at_ns,
            };
            self.launch(&flight, growing.replace(next));
        }
        match growing {
            Some(whole) if whole.run.count == flight.head.segments() => {
                self.launch_whole(flight, &whole);
            }
            rest => {
                self.launch(&flight, rest);
                self.recycle(flight.frame);
            }
        }
    }

    fn launch(&mut self, flight: &Flight, growing: Option<Growing>) {
        let Some(growing) = growing else {
            return;
        };
        let most_bytes = growing.run.count * flight.head.wire_len_bytes(0) as usize;
        let mut frame = self.spare(most_bytes + packet::OFFLOAD_LEN_BYTES);
        packet::cut(&flight.frame, &flight.head, growing.run, &mut frame);
        let Some(head) = packet::parse(&frame) else {
            self.strays.malformed += 1;
            return self.recycle(frame);
        };
        let part = Flight {
            frame,
            head,
            ..*flight
        };
        self.launch_whole(part, &growing);
    }

    fn launch_whole(&mut self, mut flight: Flight, growing: &Growing) {
        let totals = &mut self.paths[flight.path].totals[flight.direction as usize];
        let packets = growing.run.count as u64;
        if self.under_way_bytes + flight.frame.capacity() > UNDER_WAY_BYTES_MAX {
            totals.dropped_memory_packets += packets;
            return self.recycle(flight.frame);
        }
        if growing.mark_ce {
            totals.marked_packets += packets;
            packet::mark_ce(&mut flight.frame, &flight.head);
        }
        flight.departs_ns = growing.departs_ns;
        self.under_way_bytes += flight.frame.capacity();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[slot] = Some(flight);
        self.order += 1;
        self.due.push(Reverse((growing.at_ns, self.order, slot)));
    }

    fn count_drop(&mut self, flight: &Flight, why: DropCause) {
        let totals = &mut self.paths[flight.path].totals[flight.direction as usize];
        *match why {
            DropCause::QueueFull => &mut totals.dropped_full_packets,
            DropCause::Red => &mut totals.dropped_red_packets,
            DropCause::Loss => &mut totals.lost_packets,
        } += 1;
    }
}

#[cfg(test)]
mod tests;
