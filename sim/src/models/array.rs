//! Any device as the host sees it: one disk, several striped ones, or the channels of a flash device.
//!
//! A request is split at the stripes, and parts on adjacent chunks of one member are joined. The host's request
//! completes with its last part.

use super::disk::Disk;
use super::disk::profile::Profile;
use super::disk::request::{Completion, Request, Split};
use super::flash::Channel;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// A device of one or more members.
#[derive(Clone, Debug)]
pub struct Device {
    members: Vec<Member>,
    layout: Layout,
    size_bytes: u64,
    wholes: BTreeMap<u64, Whole>,
    parts: BTreeMap<u64, u64>,
    next_part: u64,
    done: VecDeque<Completion>,
}

#[derive(Clone, Debug)]
enum Member {
    Disk(Box<Disk>),
    Channel(Channel),
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    columns: u64,
    chunk_bytes: u64,
}

/// A host request whose parts are under way.
#[derive(Clone, Debug)]
struct Whole {
    parts_left: usize,
    so_far: Completion,
}

impl Device {
    /// An idle device. The caller has checked that no divisor in the profile is 0.
    pub fn new(profile: &Profile) -> Self {
        let disk = |profile: &_| Member::Disk(Box::new(Disk::new(Clone::clone(profile))));
        let (members, layout) = match profile {
            Profile::Disk(one) => (vec![disk(one)], Layout::whole()),
            Profile::Array(array) => {
                let layout = Layout {
                    columns: array.disks as u64,
                    chunk_bytes: array.chunk_bytes,
                };
                let members = (0..array.disks).map(|_| disk(&array.disk));
                (members.collect(), layout)
            }
            Profile::Flash(flash) => {
                let channel = Channel::new(flash.latency_ns, flash.channel_bytes_per_s);
                let layout = Layout {
                    columns: flash.channels as u64,
                    chunk_bytes: flash.stripe_bytes,
                };
                (vec![Member::Channel(channel); flash.channels], layout)
            }
        };
        Self {
            members,
            layout,
            size_bytes: profile.size_bytes(),
            wholes: BTreeMap::new(),
            parts: BTreeMap::new(),
            next_part: 0,
            done: VecDeque::new(),
        }
    }

    /// Queues a request that arrives at `now_ns`. Calls come in the order of time.
    pub fn submit(&mut self, now_ns: u64, request: Request) {
        debug_assert!(request.len_bytes > 0 && request.end_bytes() <= self.size_bytes);
        // Requests that finished before this arrival no longer count as queued, even if nobody has collected them.
        while let Some(done) = self.advance(now_ns) {
            self.done.push_back(done);
        }
        let parts = self.layout.split(request.offset_bytes..request.end_bytes());
        let so_far = Completion {
            request,
            arrived_ns: now_ns,
            started_ns: u64::MAX,
            finished_ns: 0,
            split: Split::default(),
            queued_before: self.wholes.len(),
            hit: true,
            failed: false,
        };
        let whole = Whole {
            parts_left: parts.len(),
            so_far,
        };
        let before = self.wholes.insert(request.id, whole);
        assert!(before.is_none(), "two requests named {}", request.id);
        for (member, range) in parts {
            let part = Request {
                id: self.next_part,
                offset_bytes: range.start,
                len_bytes: range.end - range.start,
                kind: request.kind,
            };
            self.next_part += 1;
            self.parts.insert(part.id, request.id);
            self.members[member].submit(now_ns, part);
        }
    }

    /// Time of the next event inside the device, if there is one. Call [`Self::complete`] then at the latest.
    pub fn next_ns(&self) -> Option<u64> {
        match self.done.front() {
            Some(done) => Some(done.finished_ns),
            None => self.members.iter().filter_map(Member::next_ns).min(),
        }
    }

    /// Returns the next completion that is due by `now_ns`, in the order of time. Call it until it returns `None`.
    pub fn complete(&mut self, now_ns: u64) -> Option<Completion> {
        let late = self.done.pop_front();
        late.or_else(|| self.advance(now_ns))
    }

    /// Number of host requests that wait or are being served.
    pub fn under_way(&self) -> usize {
        self.wholes.len()
    }

    /// Number of disks or channels. A fully busy device gains this many seconds of busy time a second.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Capacity.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Stops all completions from `now_ns` on.
    pub fn hang(&mut self, now_ns: u64) {
        for member in &mut self.members {
            match member {
                Member::Disk(disk) => disk.hang(now_ns),
                Member::Channel(channel) => channel.hang(now_ns),
            }
        }
    }

    /// Ends a hang.
    pub fn resume(&mut self, now_ns: u64) {
        for member in &mut self.members {
            match member {
                Member::Disk(disk) => disk.resume(now_ns),
                Member::Channel(channel) => channel.resume(now_ns),
            }
        }
    }

    /// Replaces the bad regions. Requests that touch one fail from now on. An empty list heals all.
    pub fn set_bad(&mut self, regions: &[Range<u64>]) {
        let mut bad = vec![Vec::new(); self.members.len()];
        for region in regions {
            for (column, range) in self.layout.split(region.clone()) {
                bad[column].push(range);
            }
        }
        for (member, bad) in self.members.iter_mut().zip(bad) {
            match member {
                Member::Disk(disk) => disk.set_bad(bad),
                Member::Channel(channel) => channel.set_bad(bad),
            }
        }
    }

    /// Advances the members to `now_ns`, or until a host request completes.
    fn advance(&mut self, now_ns: u64) -> Option<Completion> {
        loop {
            let busy = self.members.iter_mut();
            let busy = busy.filter_map(|member| Some((member.next_ns()?, member)));
            let (due_ns, member) = busy.min_by_key(|(due_ns, _)| *due_ns)?;
            if due_ns > now_ns {
                return None;
            }
            let part = member.complete(now_ns)?;
            let id = self.parts.remove(&part.request.id)?;
            let whole = self.wholes.get_mut(&id)?;
            whole.join(&part);
            if whole.parts_left == 0 {
                let done = self.wholes.remove(&id)?.so_far;
                return Some(done);
            }
        }
    }
}

impl Member {
    fn submit(&mut self, now_ns: u64, request: Request) {
        match self {
            Member::Disk(disk) => disk.submit(now_ns, request),
            Member::Channel(channel) => channel.submit(now_ns, request),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Member::Disk(disk) => disk.next_ns(),
            Member::Channel(channel) => channel.next_ns(),
        }
    }

    fn complete(&mut self, now_ns: u64) -> Option<Completion> {
        match self {
            Member::Disk(disk) => disk.complete(now_ns),
            Member::Channel(channel) => channel.complete(now_ns),
        }
    }
}

impl Layout {
    /// A layout with a single column.
    fn whole() -> Self {
        Self {
            columns: 1,
            chunk_bytes: u64::MAX,
        }
    }

    /// Splits a range into parts: a column and the range there. Adjacent parts on one column are joined.
    fn split(&self, range: Range<u64>) -> Vec<(usize, Range<u64>)> {
        let mut parts: Vec<(usize, Range<u64>)> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let (chunk, within) = (at / self.chunk_bytes, at % self.chunk_bytes);
            let len = (self.chunk_bytes - within).min(range.end - at);
            let column = (chunk % self.columns) as usize;
            let start = chunk / self.columns * self.chunk_bytes + within;
            let joins =
                |(other, part): &&mut (usize, Range<u64>)| *other == column && part.end == start;
            match parts.iter_mut().find(joins) {
                Some((_, part)) => part.end += len,
                None => parts.push((column, start..start + len)),
            }
            at += len;
        }
        parts
    }
}

impl Whole {
    fn join(&mut self, part: &Completion) {
        self.parts_left -= 1;
        let whole = &mut self.so_far;
        whole.started_ns = whole.started_ns.min(part.started_ns);
        whole.finished_ns = whole.finished_ns.max(part.finished_ns);
        whole.split.add(&part.split);
        whole.hit &= part.hit;
        whole.failed |= part.failed;
    }
}
