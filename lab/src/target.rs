//! An iSCSI target on the clients' core: tgtd with an ext4 in memory, as the paper of the network-centric cache has a RAM disk on its
//! storage server.

use crate::corpus::{self, Set};
use crate::throttle::run;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "iqn.2026-01.org.example:lab";
/// Time limit for it to answer.
const START_MAX: Duration = Duration::from_secs(10);
const TGTADM: &str = "tgtadm";

/// A running target; killed when dropped.
pub struct Target {
    /// Its unit, as our options name it.
    pub url: String,
    child: Child,
}

impl Target {
    /// Makes the disk of so many bytes with these files and serves it; `place` moves the command to its core and network.
    ///
    /// # Errors
    /// There is no tgtd, it does not start, or the disk can't be made.
    pub fn up(
        address: SocketAddr,
        (files, store_bytes): (&[Set], u64),
        scratch: &Path,
        place: impl FnOnce(Command) -> Command,
    ) -> Result<Self> {
        let folder = scratch.join("target");
        let disk = store(&folder, files, store_bytes)?;
        let mut command = program("tgtd");
        let portal = format!("portal={address}");
        command.args(["-f", "-C", "0", "--iscsi", &portal]);
        command.env("TGT_IPC_SOCKET", folder.join("socket"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        let child = place(command).spawn();
        let mut target = Self {
            url: format!("iscsi://{address}/{NAME}/1"),
            child: child.doing(|| "the target (package tgt)".into())?,
        };
        target.set_up(&folder, &disk)?;
        Ok(target)
    }

    /// The pid of its process.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until it answers, then gives it its unit.
    fn set_up(&mut self, folder: &Path, disk: &Path) -> Result<()> {
        let admin = |words: &str| {
            let mut command = program(TGTADM);
            command.args(["-C", "0", "--lld", "iscsi", "--tid", "1"]);
            command.args(words.split(' '));
            command.env("TGT_IPC_SOCKET", folder.join("socket"));
            run(&mut command)
        };
        let start = Instant::now();
        let target = format!("--op new --mode target --targetname {NAME}");
        while let Err(error) = admin(&target) {
            let ended = self.child.try_wait().doing(|| "tgtd: wait".into())?;
            if ended.is_some() || start.elapsed() > START_MAX {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let unit = format!(
            "--op new --mode logicalunit --lun 1 --backing-store {}",
            disk.display()
        );
        admin(&unit)?;
        admin("--op bind --mode target --initiator-address ALL")
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill(); // its disk is gone with it
        let _ = self.child.wait();
    }
}

/// True if its programs are there.
pub fn is_there() -> bool {
    let there = |name: &str| program(name).arg("--help").output().is_ok();
    there("tgtd") && there(TGTADM)
}

/// An installed program of tgt, or that which `scripts/lib.sh` (`ensure_tgt`) unpacks beside what is built.
fn program(name: &str) -> Command {
    let own = std::env::current_exe().unwrap_or_default();
    // TARGET_DIR/PROFILE/ackpace-lab
    let beside = own.ancestors().nth(2).unwrap_or(Path::new("."));
    let unpacked = beside.join("tools/tgt/usr/sbin").join(name);
    match unpacked.is_file() {
        true => Command::new(unpacked),
        false => Command::new(name),
    }
}

/// Makes the disk: a file of a tmpfs of its own, which goes with the run's mounts.
fn store(folder: &Path, files: &[Set], len_bytes: u64) -> Result<PathBuf> {
    let what = || folder.display().to_string();
    let _ = unmount(folder, UnmountFlags::DETACH); // an earlier place of the run
    std::fs::create_dir_all(folder).doing(what)?;
    mount("tmpfs", folder, "tmpfs", MountFlags::empty(), None).doing(what)?;
    let needed_bytes: u64 = files.iter().map(Set::len_bytes).sum();
    if needed_bytes > len_bytes {
        let why = format!("{needed_bytes} bytes of files on a disk of {len_bytes}");
        return Err(LabError::Setup(why));
    }
    let (disk, inside) = (folder.join("disk.ext4"), folder.join("inside"));
    let file = File::create(&disk).doing(what)?;
    file.set_len(len_bytes).doing(what)?;
    // With a journal, as a target's disk has one. Nothing is left to do in the background.
    let options = "-q -F -J size=8 -E lazy_itable_init=0,lazy_journal_init=0 -m 0";
    run(Command::new("mkfs.ext4")
        .args(options.split(' '))
        .arg(&disk))?;
    std::fs::create_dir_all(&inside).doing(what)?;
    run(Command::new("mount")
        .args(["-o", "loop,noatime"])
        .args([&disk, &inside]))?;
    let made = corpus::make(&inside, files);
    run(Command::new("umount").arg(&inside))?;
    made.map(|()| disk)
}
