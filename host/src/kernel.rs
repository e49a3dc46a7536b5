//! The door to the kernel: loads the program (`host/src/bpf/tune.bpf.c`) and makes passes over the sockets of this network
//! namespace with it. Without BPF at build time, [`Kernel::open`] fails and says so.
//!
//! A pass takes the lock of each socket, and a hostile user may keep that of his own for long. So a process of its own does this
//! ([`crate::passes`]), and nothing else.

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

static OBJECT: &Aligned<[u8]> = object!("tune");
static RECORDS: &Aligned<[u8]> = object!("records");
const NEEDS: &str = "this kernel has no BTF, no iterator over TCP sockets, or lacks what the program uses: Linux 5.16 or \
                     later has all; or the record of an older ackpace-host is there, whose `--restore` ends it";

/// What a pass does (`MODE_...`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mode {
    /// Tells the time alone.
    Clock = 0,
    /// Tells of each socket that matches, and of those that were changed: a `struct socket_snapshot`, or a `struct quiet`.
    Look = 1,
    /// Carries out the orders of [`Kernel::order`], and answers each by a `struct answer`.
    Orders = 2,
    /// Undoes all that was changed and is still as it was set.
    Restore = 3,
    /// Tells of each socket that was changed, whether it matches or not: a `struct answer`.
    Changed = 4,
}

impl Mode {
    /// By its number.
    pub fn of(number: u32) -> Option<Mode> {
        let all = [
            Mode::Clock,
            Mode::Look,
            Mode::Orders,
            Mode::Restore,
            Mode::Changed,
        ];
        all.into_iter().find(|mode| *mode as u32 == number)
    }
}
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
/// One order as it is told to the kernel.
pub const ORDER_BYTES: usize = 28;
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

impl Order {
    /// Its cookie and a `struct order`.
    pub fn told(&self) -> [u8; ORDER_BYTES] {
        let (from, to) = (self.from, self.to.unwrap_or_default());
        let words = [
            u32::from(self.to.is_none()),
            from.clamp_segments,
            from.lowat_bytes,
            to.clamp_segments,
            to.lowat_bytes,
        ];
        let mut told = [0; ORDER_BYTES];
        told[..8].copy_from_slice(&self.cookie.to_ne_bytes());
        told[8..].copy_from_slice(&words.map(u32::to_ne_bytes).concat());
        told
    }
}

/// An open program. Dropping it leaves changed sockets as they are.
pub struct Kernel {
    program: Program,
    /// By what sockets are matched.
    by: u32,
    /// HZ.
    pub ticks_per_s: u32,
    buffer: Vec<u8>,
}

impl Kernel {
    /// Loads the program for the sockets that match. `pin`: where the records are; made if they are not there. `None`: records that
    /// end with this process.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(pin: Option<&Path>, matching: &Matching) -> Result<Kernel, Failure> {
        let mut program = Program::load(OBJECT, NEEDS, pin.map(|pin| ("touched", pin)))?;
        program.attach()?;
        let mut kernel = Kernel {
            program,
            by: 0,
            ticks_per_s: 0,
            buffer: vec![0; READ_BYTES],
        };
        let first = kernel.clock()?;
        thread::sleep(Duration::from_millis(100)); // long enough to tell 250 from 300
        let second = kernel.clock()?;
        let ticks = second.0.saturating_sub(first.0);
        kernel.ticks_per_s = nearest_ticks_per_s(ticks, second.1.saturating_sub(first.1));
        kernel.select(matching)?;
        Ok(kernel)
    }

    /// The kernel's count of ticks, and nanoseconds.
    fn clock(&mut self) -> Result<(u64, u64), Failure> {
        self.pass(Mode::Clock, 0, |_| Ok(()))?;
        let control = self.program.only("control")?;
        let mut fields = Fields(control.get(16..).unwrap_or_default());
        Ok((fields.long(), fields.long()))
    }

    fn select(&mut self, matching: &Matching) -> Result<(), Failure> {
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

    /// Carries out these orders in a pass: whole ones of [`Order::told`], [`ORDERS_MAX`] at most. Sockets that are gone by now have
    /// no answer.
    ///
    /// # Errors
    /// As [`Kernel::pass`].
    pub fn order(
        &mut self,
        orders: &[u8],
        told: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let orders = orders.chunks_exact(ORDER_BYTES);
        let cookies: Vec<u8> = orders
            .clone()
            .flat_map(|order| &order[..8])
            .copied()
            .collect();
        let values: Vec<u8> = orders.flat_map(|order| &order[8..]).copied().collect();
        self.program.set_all("orders", &cookies, &values)?;
        self.pass(Mode::Orders, 0, told)?;
        self.program.delete_all("orders", &cookies)
    }

    /// One pass over all sockets of the namespace. `told` gets what the program tells, cut anywhere. `cgroup`: the id of the one that
    /// is meant, if one is; 0: none.
    ///
    /// # Errors
    /// As bpf(2) and read(2), and those of `told`.
    pub fn pass(
        &mut self,
        mode: Mode,
        cgroup: u64,
        mut told: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let quiet_ticks = QUIET_US * u64::from(self.ticks_per_s) / US_PER_S;
        let mut control = [mode as u32, self.by, quiet_ticks as u32]
            .map(u32::to_ne_bytes)
            .concat();
        control.resize(CONTROL_BYTES - size_of::<u64>(), 0);
        control.extend(cgroup.to_ne_bytes());
        self.program.set_only("control", &control)?;
        let mut sockets = self.program.iterate()?;
        loop {
            match sockets.read(&mut self.buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => told(&self.buffer[..read])?,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => {}
                Err(error) => {
                    return Err(Failure::runtime(format!(
                        "a pass over the sockets: {error}"
                    )));
                }
            }
        }
    }
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
