//! The door to the kernel: loads the program (`host/src/bpf/tune.bpf.c`) and makes passes over the sockets of this network
//! namespace with it. Without BPF at build time, [`Kernel::open`] fails and says so.

use std::path::Path;

use ackpace_share::outside::Setting;

use crate::failure::Failure;
use crate::matching::Matching;
use crate::snapshot::{Answer, View};

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
    #[cfg(has_bpf)]
    passes: passes::Passes,
    #[cfg(not(has_bpf))]
    nothing: std::convert::Infallible,
}

/// Whether this binary has the program.
pub const HAS_BPF: bool = cfg!(has_bpf);

/// What a binary without BPF says.
#[cfg(not(has_bpf))]
pub fn no_bpf() -> Failure {
    Failure::operator(
        "this ackpace-host was built without BPF: install clang-14, libbpf-dev, libelf-dev, zlib1g-dev, pkg-config \
         and make, and build it by 'cargo build --release -p ackpace-host --features bpf'",
    )
}

#[cfg(not(has_bpf))]
impl Kernel {
    /// Fails.
    ///
    /// # Errors
    /// This binary has no BPF.
    pub fn open(_: Option<&Path>) -> Result<Kernel, Failure> {
        Err(no_bpf())
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn select(&mut self, _: &Matching) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn select_cgroups(&mut self, _: &[u64]) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn snapshot(&mut self, _: &mut View) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn look(&mut self, _: &mut View, _: impl FnMut(&View)) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    pub fn leave(&mut self, _: &[Order]) {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn carry_out(&mut self, _: &[Order], _: impl FnMut(Answer)) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn restore(&mut self) -> Result<(), Failure> {
        match self.nothing {}
    }

    /// See the real one.
    ///
    /// # Errors
    /// Never called.
    pub fn changed(&mut self) -> Result<u64, Failure> {
        match self.nothing {}
    }
}

#[cfg(has_bpf)]
impl Kernel {
    /// Loads the program. `pin`: where the records are; made if they are not there. `None`: records that end with this
    /// process, for snapshots alone.
    ///
    /// # Errors
    /// The kernel refuses; what to do.
    pub fn open(pin: Option<&Path>) -> Result<Kernel, Failure> {
        let passes = passes::Passes::open(pin)?;
        Ok(Kernel { passes })
    }

    /// From now on these sockets match.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn select(&mut self, matching: &Matching) -> Result<(), Failure> {
        self.passes.select(matching)
    }

    /// From now on the sockets of these cgroups match, of those that match otherwise.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn select_cgroups(&mut self, ids: &[u64]) -> Result<(), Failure> {
        self.passes.select_cgroups(ids)
    }

    /// Takes a snapshot of each socket that matches, and of those that were changed. The view has all of them.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn snapshot(&mut self, view: &mut View) -> Result<(), Failure> {
        view.clear();
        self.passes.snapshot(view, |_| {})
    }

    /// Likewise, and hands them over piece by piece, while what the kernel told is still in the processor's caches.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn look(&mut self, view: &mut View, mut piece: impl FnMut(&View)) -> Result<(), Failure> {
        view.clear();
        self.passes.snapshot(view, |view| {
            piece(view);
            view.clear();
        })
    }

    /// Leaves orders, [`crate::limits::ORDERS_MAX`] at most, for the next snapshot: it carries them out in the same visit of a
    /// socket, and tells what became of them. They take the place of those that were left before, as do those of
    /// [`Kernel::carry_out`].
    pub fn leave(&mut self, orders: &[Order]) {
        self.passes.leave(orders);
    }

    /// Carries out orders at once, [`crate::limits::ORDERS_MAX`] at most. Sockets that are gone by now have no answer.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn carry_out(
        &mut self,
        orders: &[Order],
        answered: impl FnMut(Answer),
    ) -> Result<(), Failure> {
        self.passes.carry_out(orders, answered)
    }

    /// Undoes all that was changed and is still as it was set.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn restore(&mut self) -> Result<(), Failure> {
        self.passes.restore()
    }

    /// How many sockets there are that were changed, whether they match or not.
    ///
    /// # Errors
    /// As bpf(2) and read(2).
    pub fn changed(&mut self) -> Result<u64, Failure> {
        self.passes.changed()
    }
}

#[cfg(has_bpf)]
pub mod object;
#[cfg(has_bpf)]
mod orders;
#[cfg(has_bpf)]
mod passes;
#[cfg(has_bpf)]
pub mod ring;
#[cfg(has_bpf)]
pub mod selection;
