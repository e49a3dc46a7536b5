//! Programs that stand in the path of packets, and what they hand to user space: pinned, so that they go on when this process ends.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::libbpf_sys::{
    BPF_TCX_EGRESS, BPF_TCX_INGRESS, bpf_link_create, bpf_link_update, bpf_obj_get, bpf_obj_pin,
};
use libbpf_rs::{ProgramInput, RingBuffer, RingBufferBuilder};
use rustix::io::Errno;

use super::program::{Program, failed};
use super::{Aligned, Side};
use crate::failure::Failure;

impl Program {
    /// Loads an object file whose maps are pinned in this folder by their names, or are those that are pinned there.
    ///
    /// # Errors
    /// As [`Program::load`]; or what is pinned there has another layout.
    pub fn load_pinned(
        file: &Aligned<[u8]>,
        needs: &'static str,
        folder: &Path,
    ) -> Result<Program, Failure> {
        Program::load_with(file, needs, |name, map| map.set_pin_path(folder.join(name)))
    }

    /// Lets a program stand on one side of the device with this index, and pins that at `pin`. If one stands there already
    /// by that pin, this program takes its place between two packets. `true`: one stood there.
    ///
    /// # Errors
    /// As bpf(2); what to do where the kernel has no tcx.
    pub fn attach_pinned(
        &self,
        program: &str,
        device: u32,
        side: Side,
        pin: &Path,
    ) -> Result<bool, Failure> {
        let program = self.program(program)?;
        let program = program.as_fd();
        let path = CString::new(pin.as_os_str().as_bytes())
            .map_err(|error| Failure::runtime(error.to_string()))?;
        // SAFETY: a path that ends in zero.
        if let Ok(link) = opened(unsafe { bpf_obj_get(path.as_ptr()) }) {
            // SAFETY: two open descriptors; there are no options.
            let updated =
                unsafe { bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
            if updated == 0 {
                return Ok(true);
            }
            // The device is gone, and another one has its number.
            fs::remove_file(pin).map_err(|error| pinned(pin, &error))?;
        }
        let side = match side {
            Side::In => BPF_TCX_INGRESS,
            Side::Out => BPF_TCX_EGRESS,
        };
        // SAFETY: an open descriptor; there are no options.
        let link =
            unsafe { bpf_link_create(program.as_raw_fd(), device as i32, side, std::ptr::null()) };
        let link = opened(link).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::INVAL.raw_os_error() => Failure::operator(self.needs),
            _ => Failure::runtime(format!("bpf(2): a link to device {device}: {error}")),
        })?;
        // SAFETY: an open descriptor, and a path that ends in zero.
        match unsafe { bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) } {
            0 => Ok(false),
            error => Err(pinned(pin, &io::Error::from_raw_os_error(-error))),
        }
    }

    /// Opens the ring buffer by which the program hands over records.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn ring(&self, map: &str) -> Result<Ring, Failure> {
        let records = Rc::new(RefCell::new(Vec::new()));
        let told = Rc::clone(&records);
        let map = self.map(map)?;
        let mut builder = RingBufferBuilder::new();
        let hear = move |record: &[u8]| {
            told.borrow_mut().push(record.to_owned());
            0
        };
        builder.add(&map, hear).map_err(failed)?;
        Ok(Ring {
            ring: builder.build().map_err(failed)?,
            records,
        })
    }

    /// Runs a program so many times on a packet that nobody sends. Its verdict, and what one run took on average.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn test_run(
        &self,
        program: &str,
        packet: &[u8],
        times: u32,
    ) -> Result<(i32, Duration), Failure> {
        let input = ProgramInput {
            data_in: Some(packet),
            repeat: times,
            ..ProgramInput::default()
        };
        let output = self.program(program)?.test_run(input).map_err(failed)?;
        Ok((output.return_value as i32, output.duration))
    }

    pub(super) fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, Failure> {
        let program = self
            .object
            .progs_mut()
            .find(|program| program.name() == name);
        program.ok_or_else(|| Failure::runtime(format!("the object file lacks its program {name}")))
    }
}

fn opened(descriptor: i32) -> io::Result<OwnedFd> {
    match descriptor {
        // SAFETY: the kernel has just opened it for us alone.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        error => Err(io::Error::from_raw_os_error(-error)),
    }
}

fn pinned(pin: &Path, error: &io::Error) -> Failure {
    Failure::runtime(format!("{}: {error}", pin.display()))
}

/// A ring buffer of records.
pub struct Ring {
    ring: RingBuffer<'static>,
    records: Rc<RefCell<Vec<Vec<u8>>>>,
}

impl Ring {
    /// Takes what is there, oldest first: at most what the buffer can hold.
    ///
    /// # Errors
    /// As epoll_wait(2).
    pub fn take(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        self.ring.consume().map_err(failed)?;
        Ok(self.records.take())
    }
}

/// Readable when there are records.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring buffer keeps it open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
