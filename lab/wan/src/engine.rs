//! Decides what happens to frames between the two ends: which path and links each takes, and when it comes out.
//! No I/O and no clock; the emulator's thread drives it.
//!
//! A frame that stands for many packets (a run) is offered to each link packet by packet, so rate, queue, loss
//! and marks are exact. Consecutive survivors travel on as one frame, which arrives when the last of them
//! would. Its first packet is thus late by at most the run's own time on the link, which `run_ns` bounds.

use super::packet::{self, FRAME_LEN_BYTES_MAX, Head, Run};
use super::plan::{Direction, LinkId, LinkPlan, PathPlan, Plan};
use ackpace_sim::models::link::{Link, LinkProfile, Totals, Verdict};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::Ipv4Addr;

/// Memory of all frames in flight: 10 Gbit/s for .8 s. Full: the frame is dropped.
pub const UNDER_WAY_BYTES_MAX: usize = 1 << 30;
/// Cached path choices by client. Full: the cache is emptied, and paths are searched again.
const CHOICES_MAX: usize = 1 << 16;
/// Buffers of each size kept for reuse. Others are freed.
const SPARE_BUFFERS_MAX: usize = 4096;
/// Buffers have three sizes; this one holds one packet, and the largest holds any frame.
const SMALL_BUFFER_BYTES: usize = 2048;
/// Holds a frame that TCP builds on a slow connection: about a millisecond of its rate. Such frames are copied,
/// too: a large buffer must be zero-filled to its end before the next frame is read into it, which costs more.
const MEDIUM_BUFFER_BYTES: usize = 16 << 10;

/// Counters of a link.
#[derive(Clone, Debug)]
pub struct LinkCounters {
    /// Its name.
    pub name: String,
    /// Its totals since the start.
    pub totals: Totals,
    /// Time that the transmitter was sending; a link without a rate sends in no time.
    pub busy_us: u64,
}

/// All links and paths, with the frames in flight.
pub struct Engine {
    links: Vec<LinkSlot>,
    paths: Vec<PathPlan>,
    /// Longest transmission time that one frame may stand for.
    run_ns: u64,
    choices: HashMap<Ipv4Addr, usize>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    due: BinaryHeap<Reverse<(u64, u64, usize)>>, // when, order, flight
    order: u64,
    under_way_bytes: usize,
    small: Vec<Vec<u8>>,
    medium: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

struct LinkSlot {
    name: String,
    link: Link,
    /// Time of the latest offer: a frame that is handled late must not turn the link's clock back.
    seen_ns: u64,
}

struct Flight {
    frame: Vec<u8>,
    head: Head,
    path: usize,
    direction: Direction,
    /// Links passed before the current one.
    hop: usize,
}

/// Consecutive survivors, while a frame is offered to a link.
struct Growing {
    run: Run,
    mark_ce: bool,
    began_ns: u64,
    at_ns: u64,
}

impl Engine {
    /// Builds idle links from a plan. `run_ns`: see the module; 0 cuts every frame into its packets.
    pub fn new(plan: Plan, run_ns: u64) -> Engine {
        let slot = |link: LinkPlan| LinkSlot {
            link: Link::new(link.profile, link.seed),
            name: link.name,
            seen_ns: 0,
        };
        Engine {
            links: plan.links.into_iter().map(slot).collect(),
            paths: plan.paths,
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
            return;
        };
        let Some(path) = self.path_of(&head, direction) else {
            return;
        };
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
            let links = self.paths[flight.path].links(flight.direction);
            if flight.hop < links.len() {
                self.offer(at_ns, flight);
                continue;
            }
            return Some((flight.direction, flight.frame));
        }
        None
    }

    /// The time at which the next frame reaches the end of a link.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((at_ns, _, _))| *at_ns)
    }

    /// Marks ECN-capable packets of a link with this probability from now on.
    pub fn set_mark(&mut self, now_ns: u64, link: LinkId, mark: f64) {
        let slot = &mut self.links[link.0];
        let profile = LinkProfile {
            mark,
            ..slot.link.profile().clone()
        };
        slot.link.set(now_ns.max(slot.seen_ns), profile);
    }

    /// Counters of all links at `now_ns`.
    pub fn counters(&self, now_ns: u64) -> Vec<LinkCounters> {
        let of = |slot: &LinkSlot| LinkCounters {
            name: slot.name.clone(),
            totals: slot.link.totals(),
            busy_us: slot.link.busy_ns(now_ns) / 1000,
        };
        self.links.iter().map(of).collect()
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
        let client = match direction {
            Direction::Down => head.to,
            Direction::Up => head.from,
        };
        if let Some(path) = self.choices.get(&client) {
            return Some(*path);
        }
        let mut paths = self.paths.iter();
        let path = paths.position(|path| path.clients.contains(&client))?;
        if self.choices.len() >= CHOICES_MAX {
            self.choices.clear();
        }
        self.choices.insert(client, path);
        Some(path)
    }

    /// Offers each packet of a frame to the next link, and forwards the survivors.
    fn offer(&mut self, now_ns: u64, flight: Flight) {
        let link = self.paths[flight.path].links(flight.direction)[flight.hop];
        let slot = &mut self.links[link.0];
        slot.seen_ns = slot.seen_ns.max(now_ns);
        let now_ns = slot.seen_ns;
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
                Verdict::Drop(_) => {
                    self.launch(&flight, growing.take());
                    continue;
                }
            };
            if let Some(so_far) = &mut growing {
                if so_far.mark_ce == mark_ce && departs_ns - so_far.began_ns <= self.run_ns {
                    so_far.run.count += 1;
                    so_far.at_ns = at_ns;
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
        if self.under_way_bytes + flight.frame.capacity() > UNDER_WAY_BYTES_MAX {
            return self.recycle(flight.frame);
        }
        if growing.mark_ce {
            packet::mark_ce(&mut flight.frame, &flight.head);
        }
        self.under_way_bytes += flight.frame.capacity();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() - 1
        });
        self.flights[slot] = Some(flight);
        self.order += 1;
        self.due.push(Reverse((growing.at_ns, self.order, slot)));
    }
}

#[cfg(test)]
mod tests;
