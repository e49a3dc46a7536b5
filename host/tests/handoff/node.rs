//! The brokers of a segment.

use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::segment::{A, C, PORT, World, address, vip};

/// A broker of a node, as a process of its own.
pub struct Node {
    pub process: Started,
    pub path: PathBuf,
    pub client: Client,
}

impl Node {
    pub fn start(world: &World, number: usize) -> Node {
        let path = std::env::temp_dir().join(format!("{}.sock", world.space(number)));
        let names = ["", "a", "b", "c"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_ackpace-host"));
        command
            .args(["handoff", "--for", "0", "--port", &PORT.to_string()])
            .args(["--vip", &format!("{},{}", vip(false), vip(true))])
            .args(["--node", names[number]])
            .arg("--socket")
            .arg(&path);
        for other in (A..=C).filter(|other| *other != number) {
            // Clients of both kinds.
            let peer = format!("{}={}", names[other], address(other, true));
            command.args(["--peer", &peer]);
        }
        let space = std::fs::File::open(format!("/run/netns/{}", world.space(number)));
        let space = space.expect("it is there");
        let enter = move || {
            // SAFETY: no pointers; the descriptor was copied by the fork.
            match unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes one system call; it neither allocates nor locks.
        unsafe { command.pre_exec(enter) };
        let process = Started(command.spawn().expect("the binary of this package"));
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            if let Some(client) = Client::connect(&path) {
                return Node {
                    process,
                    path,
                    client,
                };
            }
            assert!(Instant::now() < until, "the broker does not start");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A process that ends with its test.
pub struct Started(pub Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
