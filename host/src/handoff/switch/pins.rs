//! What outlives the process that moves connections: programs on devices and their maps, pinned in a BPF file system, a folder for
//! each network namespace.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ackpace_host_base::bpf::{Program, Side};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::{self, Lock, RUN_DIR};

use super::wires::Device;
use crate::place;

/// Where pins are, a folder for each network namespace.
const PIN_DIR: &str = "/sys/fs/bpf/ackpace-handoff";
/// Part of the folder's name: another layout of a map gets another number.
const LAYOUT: u32 = 2;

/// The pins of one network namespace.
pub struct Pins {
    folder: PathBuf,
    lock: PathBuf,
}

impl Pins {
    /// Those of this thread's.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn here() -> Result<Pins, Failure> {
        let path = "/proc/thread-self/ns/net";
        let told = fs::metadata(path);
        let told = told.map_err(|error| Failure::runtime(format!("{path}: {error}")))?;
        let space = told.ino();
        Ok(Pins {
            folder: Path::new(PIN_DIR).join(format!("net-{space}-v{LAYOUT}")),
            lock: Path::new(RUN_DIR).join(format!("handoff-{space}.lock")),
        })
    }

    /// The folder, which [`Pins::take`] makes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Takes the right to change them, and makes the folder.
    ///
    /// # Errors
    /// Another process has it; or a BPF file system is missing.
    pub fn take(&self) -> Result<Lock, Failure> {
        let lock = Lock::take(&self.lock, "moves connections of this network namespace")?;
        place::ensure_pin_folder()?;
        lock::own_folder(Path::new(PIN_DIR))?;
        lock::own_folder(&self.folder)?;
        Ok(lock)
    }

    /// Whether a program stood there already, on any of the devices. Those on other devices go.
    ///
    /// # Errors
    /// As bpf(2).
    pub fn attach(&self, program: &Program, devices: &[Device]) -> Result<bool, Failure> {
        let mut was_there = false;
        let mut pins = BTreeSet::new();
        for device in devices {
            for (side, name) in [(Side::In, "in"), (Side::Out, "out")] {
                let pin = self.folder.join(format!("{name}-{}", device.index));
                let stands = format!("flows_{name}");
                was_there |= program.attach_pinned(&stands, device.index, side, &pin)?;
                pins.insert(pin);
            }
        }
        for pin in self.links() {
            if !pins.contains(&pin) {
                let _ = fs::remove_file(pin);
            }
        }
        Ok(was_there)
    }

    /// The pins of programs on devices.
    fn links(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_link = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("in-") || name.starts_with("out-"))
        };
        entries.map(|entry| entry.path()).filter(is_link).collect()
    }

    /// Removes them all, unless another process uses them.
    ///
    /// # Errors
    /// That; or one can't be removed.
    pub fn clear(&self) -> Result<(), Failure> {
        let own = Lock::take_free(&self.lock)?;
        let user = fs::read_to_string(&self.lock).unwrap_or_default();
        if own.is_none() && user.trim() != std::process::id().to_string() {
            return Err(Failure::operator(format!(
                "process {} uses these programs: stop it first",
                user.trim()
            )));
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Failure::runtime(format!(
                "{}: {error}",
                self.folder.display()
            ))),
            _ => {
                let _ = fs::remove_file(&self.lock);
                Ok(())
            }
        }
    }
}
