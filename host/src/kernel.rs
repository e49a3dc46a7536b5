//! The door to the kernel: loads the program (`host/src/bpf/tune.bpf.c`) and makes passes over the sockets of this network
//! namespace with it. Without BPF at build time, [`Kernel::open`] fails and says so.

use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ackpace_core::units::US_PER_S;
use ackpace_host_base::bpf::{Aligned, Program};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::fields::Fields;
use ackpace_host_base::object;
use ackpace_share::outside::Setting;

use crate::matching::Matching;
use crate::snapshot::{ANSWER_BYTES, Answer, View};

static OBJECT: &Aligned<[u8]> = object!("tune");
static RECORDS: &Aligned<[u8]> = object!("records");
const NEEDS: &str = "this kernel has no BTF, no iterator over TCP sockets, or lacks what the program uses: Linux 5.16 or \
                     later has all; or the record of an older ackpace-host is there, whose `--restore` ends it";

// `MODE_...`
const CLOCK: u32 = 0;
const SNAPSHOT: u32 = 1;
const ORDERS: u32 = 2;
const RESTORE: u32 = 3;
const CHANGED: u32 = 4;
/// `struct control`.
const CONTROL_BYTES: usize = 40;

// By what sockets are matched.
const BY_PORT: u32 = 1;
const BY_CGROUP: u32 = 2;
const BY_ADDRESS: u32 = 4;

/// A socket that has sent nothing for so long, and has nothing to send, takes no part: longer than from one look to the
/// next, so that all of what it sent has been seen.
const QUIET_US: u64 = 3_000_000;
/// Orders of one pass (`ORDERS_MAX`). More: the rest are carried out in the next passes.
pub const ORDERS_MAX: usize = 65_536;
/// What one read takes of the snapshots of sockets: a page table's worth of memory.
const READ_BYTES: usize = 256 << 10;

/// Whether this binary has the program.
pub fn has_bpf() -> bool {
    !OBJECT.0.is_empty()
}

/// Whether a pinned map has no records, so that nothing is left to undo by it.
///
/// # Errors
/// The kernel refuses.
pub fn is_empty_record(pin: &Path) -> Result<bool, Failure> {
    let mut program = Program::load(RECORDS, NEEDS, None)?;
    program.attach_to(pin)?;
    let told = program.iterate()?.read(&mut [0]);
    told.map(|bytes| bytes == 0)
        .map_err(|error| Failure::runtime(format!("{}: {error}", pin.display())))
}

/// What is done to one socket, if it still has `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Which socket.
    pub cookie: u64,
    /// What it had when this was decided.
    pub from: Setting,
    /// What it gets; `None`: back what it had before the first change.
    pub to: Option<Setting>,
}

/// An open program. Dropping it leaves changed sockets as they are; see [`Kernel::restore`].
pub struct Kernel {
    program: Program,
    /// By what sockets are matched.
    by: u32,
    /// The cgroup whose sockets match, with those below it, of those that match otherwise; 0: none.
    cgroup: u64,
    ticks_per_s: u32,
    buffer: Vec<u8>,
}

impl Kernel {
    /// Loads the program. `pin`: where the records are; made if they are not there. `None`: records that end with this
    /// process, for snapshots alone.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(pin: Option<&Path>) -> Result<Kernel, Failure> {
        let mut program = Program::load(OBJECT, NEEDS, pin.map(|pin| ("touched", pin)))?;
        program.attach()?;
        let mut kernel = Kernel {
            program,
            by: 0,
            cgroup: 0,
            ticks_per_s: 0,
            buffer: vec![0; READ_BYTES],
        };
        let first = kernel.clock()?;
        thread::sleep(Duration::from_millis(100)); // long enough to tell 250 from 300
        let second = kernel.clock()?;
        let ticks = second.0.saturating_sub(first.0);
        kernel.ticks_per_s = nearest_ticks_per_s(ticks, second.1.saturating_sub(first.1));
        Ok(kernel)
    }

    /// The kernel's count of ticks, and nanoseconds.
    fn clock(&mut self) -> Result<(u64, u64), Failure> {
        self.pass(CLOCK, |_| 0)?;
        let control = self.program.only("control")?;
        let mut fields = Fields(control.get(16..).unwrap_or_default());
        Ok((fields.long(), fields.long()))
    }

    /// From now on these sockets match. To be called once.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn select(&mut self, matching: &Matching) -> Result<(), Failure> {
        if !matching.ports.is_empty() {
            self.by |= BY_PORT;
            self.program.choose_ports(&matching.ports)?;
        }
        for (prefix, matches) in matching.longest_prefixes() {
            self.by |= BY_ADDRESS;
            let mut key = prefix.bits.to_ne_bytes().to_vec();
            key.extend(prefix.octets);
            self.program.set("prefixes", &key, &[u8::from(matches)])?;
        }
        if matching.cgroup.is_some() {
            self.by |= BY_CGROUP;
        }
        Ok(())
    }

    /// From now on the sockets of the cgroup with this id match, and of those below it; 0: none.
    pub fn select_cgroup(&mut self, id: u64) {
        self.cgroup = id;
    }

    /// Takes a snapshot of each socket that matches, and of those that were changed, and hands them over piece by piece, while
    /// what the kernel told is still in the processor's caches.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn look(&mut self, view: &mut View, mut piece: impl FnMut(&View)) -> Result<(), Failure> {
        let ticks_per_s = self.ticks_per_s;
        self.pass(SNAPSHOT, |bytes| {
            view.clear();
            let mut from = 0;
            while let Some(len_bytes) = view.take(&bytes[from..], ticks_per_s) {
                from += len_bytes;
            }
            piece(view);
            from
        })
    }

    /// Carries out orders, [`ORDERS_MAX`] at most. Sockets that are gone by now have no answer.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn carry_out(
        &mut self,
        orders: &[Order],
        answered: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        let cookies = orders.iter().flat_map(|order| order.cookie.to_ne_bytes());
        let cookies: Vec<u8> = cookies.collect();
        let values: Vec<u8> = orders.iter().flat_map(told).collect();
        self.program.set_all("orders", &cookies, &values)?;
        self.answers(ORDERS, answered)?;
        self.program.delete_all("orders", &cookies)
    }

    /// Undoes all that was changed and is still as it was set.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn restore(&mut self) -> Result<(), Failure> {
        self.answers(RESTORE, |_| {})
    }

    /// How many sockets there are that were changed, whether they match or not.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn changed(&mut self) -> Result<u64, Failure> {
        let mut sockets = 0;
        self.answers(CHANGED, |_| sockets += 1)?;
        Ok(sockets)
    }

    fn answers(&mut self, mode: u32, mut answered: impl FnMut(Answer)) -> Result<(), Failure> {
        self.pass(mode, |bytes| {
            let answers = bytes.chunks_exact(ANSWER_BYTES);
            let read = answers.len() * ANSWER_BYTES;
            answers.filter_map(Answer::parse).for_each(&mut answered);
            read
        })
    }

    /// One pass over all sockets of the namespace. `take` takes what is whole from the front of what was told, and says how
    /// long that was.
    fn pass(&mut self, mode: u32, mut take: impl FnMut(&[u8]) -> usize) -> Result<(), Failure> {
        let quiet_ticks = QUIET_US * u64::from(self.ticks_per_s) / US_PER_S;
        let mut control = [mode, self.by, quiet_ticks as u32]
            .map(u32::to_ne_bytes)
            .concat();
        control.resize(CONTROL_BYTES - size_of::<u64>(), 0);
        control.extend(self.cgroup.to_ne_bytes());
        self.program.set_only("control", &control)?;
        let mut sockets = self.program.iterate()?;
        let mut held = 0;
        loop {
            let read = match sockets.read(&mut self.buffer[held..]) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {
                    continue;
                }
                Err(error) => {
                    return Err(Failure::runtime(format!(
                        "a pass over the sockets: {error}"
                    )));
                }
            };
            held += read;
            let from = take(&self.buffer[..held]);
            self.buffer.copy_within(from..held, 0);
            held -= from;
        }
    }
}

/// As a `struct order`.
fn told(order: &Order) -> Vec<u8> {
    let (from, to) = (order.from, order.to.unwrap_or_default());
    let words = [
        u32::from(order.to.is_none()),
        from.clamp_segments,
        from.lowat_bytes,
        to.clamp_segments,
        to.lowat_bytes,
    ];
    words.map(u32::to_ne_bytes).concat()
}

/// The value of HZ that a distribution's kernel has which is next to what was measured.
fn nearest_ticks_per_s(ticks: u64, ns: u64) -> u32 {
    let measured = ticks.saturating_mul(1_000_000_000) / ns.max(1);
    let distance = |ticks_per_s: &u32| measured.abs_diff(u64::from(*ticks_per_s));
    [100, 250, 300, 1_000]
        .into_iter()
        .min_by_key(distance)
        .unwrap_or(250)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_told_from_a_tenth_of_a_second() {
        for (ticks, ticks_per_s) in [
            (9, 100),
            (11, 100),
            (24, 250),
            (26, 250),
            (29, 300),
            (31, 300),
            (99, 1_000),
        ] {
            assert_eq!(
                nearest_ticks_per_s(ticks, 100_000_000),
                ticks_per_s,
                "{ticks}"
            );
        }
    }
}
