//! All that runs: tgtd, `ackpace-host gateway` with its mount, `ackpace-host files`, and the server.

use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Storm;
use crate::hunter::findings::Findings;
use crate::hunter::watch::stop;
use crate::hunter::wrong::{Kind, Wrong};
use crate::{
    Program, Server, Setup, Tree, client, command, eventually, host_start, mounts_apart,
    needs_root, skip,
};

#[allow(dead_code, reason = "the tests of wire/ use the rest")]
#[path = "../../../../wire/tests/iscsi/tgtd.rs"]
mod tgtd;

use tgtd::Tgtd;

const UNIT_BYTES: u64 = 256 << 20;
/// An address from which no client calls, so that its ports stay free while the server is away.
const PLACE: &str = "127.0.77.2:0";

/// How often what was killed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    pub target: u32,
    pub answerer: u32,
    pub broker: u32,
    pub server: u32,
}

pub struct Programs {
    pub kills: Kills,
    tree: Tree,
    tgtd: Tgtd,
    gateway: Option<Program>,
    broker: Option<Program>,
    server: Option<Server>,
    nfs: String,
    metrics: String,
}

impl Drop for Programs {
    /// After a failure.
    fn drop(&mut self) {
        drop((self.server.take(), self.broker.take()));
        let Some(mut gateway) = self.gateway.take() else {
            return;
        };
        if gateway.ended().is_none() {
            gateway.signal(libc::SIGTERM);
            let _ = gateway.wait(); // what it has mounted is gone
        }
    }
}

impl Programs {
    /// Starts all, with these files on the unit. `None`: this machine can't, and that is reported as skipped.
    pub fn start(files: &[Vec<u8>]) -> Option<Programs> {
        if !needs_root("a mount") {
            return None;
        }
        client("mkfs.ext4")?;
        for device in ["/dev/fuse", "/dev/loop-control"] {
            if let Err(error) = File::options().read(true).write(true).open(device) {
                skip(&format!("{device}: {error}"));
                return None;
            }
        }
        let tgtd = Tgtd::with_disk(UNIT_BYTES)?;
        mounts_apart().expect("root may");
        let mut programs = Programs {
            kills: Kills::default(),
            tree: Tree::new(),
            tgtd,
            gateway: None,
            broker: None,
            server: None,
            nfs: PLACE.to_owned(),
            metrics: PLACE.to_owned(),
        };
        programs.start_gateway();
        let mount = programs.mount();
        fs::set_permissions(&mount, Permissions::from_mode(0o777)).expect("root may");
        for (nth, content) in files.iter().enumerate() {
            fs::write(mount.join(Storm::name(nth)), content).expect("room");
        }
        programs.start_broker();
        programs.start_server();
        programs.nfs = programs.nfs().to_string();
        programs.metrics = programs.server().metrics().to_string();
        Some(programs)
    }

    fn path(&self, name: &str) -> String {
        self.tree.at(name).to_str().expect("UTF-8").to_owned()
    }

    fn mount(&self) -> PathBuf {
        self.tree.at("mount")
    }

    fn url(&self) -> String {
        let port = self.tgtd.port;
        format!(
            "iscsi://127.0.0.1:{port}/{}/{}",
            self.tgtd.target(),
            tgtd::LUN
        )
    }

    fn start_gateway(&mut self) {
        fs::create_dir(self.mount()).expect("a folder");
        let [run, socket, mount] = ["run", "gateway.sock", "mount"].map(|name| self.path(name));
        let url = self.url();
        let gateway = host_start(&*format!(
            "gateway --iscsi {url} --runtime {run} --socket {socket} --mount {mount} --format"
        ));
        gateway.err_line(&["gateway: ready;"]);
        self.gateway = Some(gateway);
    }

    fn start_broker(&mut self) {
        let [root, socket] = ["mount", "files.sock"].map(|name| self.path(name));
        let line = format!("files --root {root} --for 0:0 --socket {socket}");
        let broker = host_start(&*line);
        broker.err_line(&["files: ready"]);
        self.broker = Some(broker);
    }

    fn start_server(&mut self) {
        let [broker, key, socket] =
            ["files.sock", "nfs.key", "gateway.sock"].map(|name| self.path(name));
        let (nfs, metrics, url) = (&self.nfs, &self.metrics, self.url());
        let args = format!(
            "--nfs {nfs} --nfs-export /=127.0.0.0/8,rw --nfs-broker {broker} --nfs-key {key} --metrics {metrics} \
             --workers 2 --cache-memory 32MiB --iscsi {url} --iscsi-gateway {socket}"
        );
        self.server = Some(Setup::new(self.mount()).args(&*args).start());
    }

    /// Where NFS is served.
    pub fn nfs(&self) -> SocketAddr {
        let line = self.server().out_line(&["NFS at "]);
        let rest = line.trim_start_matches("NFS at ");
        let address = rest.split(' ').next().expect("an address");
        address.parse().expect("an address")
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    pub fn kill_target(&mut self) {
        self.kills.target += 1;
        self.tgtd.kill();
    }

    pub fn restart_target(&mut self) {
        self.tgtd.restart();
    }

    /// SIGKILL to the process that answers the mount; its supervisor starts another.
    pub fn kill_answerer(&mut self) {
        self.kills.answerer += 1;
        let gateway = self.gateway.as_ref().expect("it runs").pid();
        let mut old = None;
        eventually("there is an answerer", || {
            old = answerer(gateway);
            old.is_some()
        });
        let old = old.expect("just now");
        // SAFETY: no pointers; the process is a child of a child of ours that runs, and was there a moment ago.
        unsafe { libc::kill(old, libc::SIGKILL) };
        eventually("another one takes over", || {
            answerer(gateway).is_some_and(|new| new != old)
        });
    }

    pub fn kill_broker(&mut self) {
        self.kills.broker += 1;
        self.broker.as_mut().expect("it runs").kill();
        self.start_broker();
    }

    /// Ends the server by this signal, and starts it again.
    pub fn kill_server(&mut self, signal: libc::c_int, findings: &Findings) {
        self.kills.server += 1;
        let mut server = self.server.take().expect("it runs");
        if let Some(status) = server.ended() {
            let text = format!("the server ended with {status}");
            findings.add(&Wrong::new(Kind::Abort, text), &server.err());
        } else if signal == libc::SIGKILL {
            server.kill();
        } else {
            stop(server, findings);
        }
        self.start_server();
    }

    /// Ends all in good order, and looks at the unit: what of these files, or of the file system, is wrong.
    pub fn end(mut self, files: &[(String, &[u8])]) -> Vec<String> {
        drop(self.server.take());
        drop(self.broker.take());
        let gateway = self.gateway.take().expect("it runs");
        let mut wrong = Vec::new();
        let code = gateway.end(libc::SIGTERM);
        if code != Some(0) {
            wrong.push(format!("the gateway ended with {code:?}"));
        }
        self.tgtd.kill();
        let disk = self.tgtd.disk();
        let checked = command("e2fsck").args(["-f", "-n"]).arg(&disk).output();
        let checked = checked.expect("it is where mkfs.ext4 is");
        if !checked.status.success() {
            wrong.push(format!("e2fsck: {checked:?}"));
        }
        let mount = self.mount();
        let mut command = command("mount");
        let mounted = command.args(["-o", "loop,ro"]).arg(&disk).arg(&mount);
        let mounted = mounted.output().expect("mount");
        if !mounted.status.success() {
            wrong.push(format!("mount: {mounted:?}"));
            return wrong;
        }
        wrong.extend(files.iter().filter_map(|file| differs(&mount, file)));
        let _ = crate::command("umount").arg(&mount).output();
        wrong
    }
}

/// Whether a file on the unit has other bytes.
fn differs(mount: &Path, (name, content): &(String, &[u8])) -> Option<String> {
    let is = match fs::read(mount.join(name)) {
        Ok(is) => is,
        Err(error) => return Some(format!("{name} on the unit: {error}")),
    };
    let same = is.iter().zip(*content).take_while(|(a, b)| a == b).count();
    let is_same = same == is.len() && same == content.len();
    let text = format!(
        "{name} on the unit: byte {same}, of {} that should be {}",
        is.len(),
        content.len()
    );
    (!is_same).then_some(text)
}

/// The process that answers for this supervisor.
fn answerer(supervisor: u32) -> Option<i32> {
    let word = format!("gateway-answer\0{supervisor}\0");
    let all = fs::read_dir("/proc").expect("proc").flatten();
    let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).ends_with(&word)
    })
}
