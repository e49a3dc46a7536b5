//! The program for the kernel, and its maps.

use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::Duration;

use ackpace_core::units::US_PER_S;
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapMut, Object, ObjectBuilder};

use super::Order;
use super::object::{Aligned, failed, refused};
use super::orders::Orders;
use super::selection::{self, Selection};
use crate::failure::Failure;
use crate::limits::{QUIET_US, READ_BYTES};
use crate::matching::Matching;
use crate::snapshot::{ANSWER_BYTES, Answer, View};

// `MODE_...`
const CLOCK: u32 = 0;
const SNAPSHOT: u32 = 1;
const ORDERS: u32 = 2;
const RESTORE: u32 = 3;
const CHANGED: u32 = 4;
/// `struct control`.
const CONTROL_BYTES: usize = 32;

const NEEDS: &str = "this kernel has no BTF, no iterator over TCP sockets, or lacks what the program uses: Linux 5.16 or \
                     later has all; or the record of an older ackpace-host is there, whose `--restore` ends it";
static PROGRAM: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/tune.bpf.o")));

/// The loaded program.
pub struct Passes {
    object: Object,
    link: Link,
    selection: Selection,
    ticks_per_s: u32,
    buffer: Vec<u8>,
    orders: Orders,
}

impl Passes {
    /// As [`super::Kernel::open`].
    pub fn open(pin: Option<&Path>) -> Result<Passes, Failure> {
        libbpf_rs::set_print(None); // errors are told here
        let refused = |error: libbpf_rs::Error| refused(&error, NEEDS);
        let mut open = ObjectBuilder::default()
            .open_memory(&PROGRAM.0)
            .map_err(refused)?;
        if let Some(pin) = pin {
            for mut map in open.maps_mut().filter(|map| map.name() == "touched") {
                // libbpf takes the map that is there, if it is one of this layout, or pins a new one.
                map.set_pin_path(pin).map_err(refused)?;
            }
        }
        let object = open.load().map_err(refused)?;
        let program = object.progs_mut().find(|program| program.name() == "pass");
        let program =
            program.ok_or_else(|| Failure::runtime("the object file lacks its program"))?;
        let link = program.attach().map_err(refused)?;
        let map = |name| selection::map(&object, name);
        let orders = Orders::of(&map("orders")?, &map("order_marks")?)?;
        let mut passes = Passes {
            object,
            link,
            selection: Selection::default(),
            ticks_per_s: 0,
            buffer: vec![0; READ_BYTES],
            orders,
        };
        let first = passes.clock()?;
        thread::sleep(Duration::from_millis(100)); // long enough to tell 250 from 300
        let second = passes.clock()?;
        let ticks = second.0.saturating_sub(first.0);
        passes.ticks_per_s = nearest_ticks_per_s(ticks, second.1.saturating_sub(first.1));
        Ok(passes)
    }

    /// The kernel's count of ticks, and nanoseconds.
    fn clock(&mut self) -> Result<(u64, u64), Failure> {
        self.pass(CLOCK, |_| 0)?;
        let value = self
            .map("control")?
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed)?;
        let long = |at: usize| {
            let bytes = value.as_ref()?.get(at..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        long(16)
            .zip(long(24))
            .ok_or_else(|| Failure::runtime("the program's clock is not there"))
    }

    fn map(&mut self, name: &str) -> Result<MapMut<'_>, Failure> {
        let map = self.object.maps_mut().find(|map| map.name() == name);
        map.ok_or_else(|| Failure::runtime(format!("the object file lacks its map {name}")))
    }

    /// As [`super::Kernel::select`].
    pub fn select(&mut self, matching: &Matching) -> Result<(), Failure> {
        self.selection.choose(&self.object, matching)
    }

    /// As [`super::Kernel::select_cgroups`].
    pub fn select_cgroups(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.selection.choose_cgroups(&self.object, ids)
    }

    /// As [`super::Kernel::carry_out`].
    pub fn carry_out(
        &mut self,
        orders: &[Order],
        answered: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        self.orders.set(orders);
        if self.orders.mask() == 0 {
            return Ok(());
        }
        let passed = self.answers(ORDERS, answered);
        self.orders.clear();
        passed
    }

    /// As [`super::Kernel::leave`].
    pub fn leave(&mut self, orders: &[Order]) {
        self.orders.set(orders);
    }

    /// Adds to the view, and shows it after each piece; orders that were left are carried out.
    pub fn snapshot(
        &mut self,
        view: &mut View,
        mut piece: impl FnMut(&mut View),
    ) -> Result<(), Failure> {
        let ticks_per_s = self.ticks_per_s;
        let passed = self.pass(SNAPSHOT, |bytes| {
            let mut from = 0;
            while let Some(len_bytes) = view.take(&bytes[from..], ticks_per_s) {
                from += len_bytes;
            }
            piece(view);
            from
        });
        self.orders.clear();
        passed
    }

    /// As [`super::Kernel::restore`].
    pub fn restore(&mut self) -> Result<(), Failure> {
        self.answers(RESTORE, |_| {})
    }

    /// As [`super::Kernel::changed`].
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
        let mut control = [0; CONTROL_BYTES];
        let words = [
            mode,
            self.selection.by(),
            quiet_ticks as u32,
            self.orders.mask(),
        ];
        for (at, word) in words.into_iter().enumerate() {
            control[4 * at..4 * at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        self.map("control")?
            .update(&0u32.to_ne_bytes(), &control, MapFlags::ANY)
            .map_err(failed)?;
        let mut sockets = Iter::new(&self.link).map_err(failed)?;
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
