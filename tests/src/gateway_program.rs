//! `ackpace-host gateway` as the server sees it: a socket that says what is mounted, and counters of written chunks.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::done;

const COUNTERS: usize = 1 << 20;
const CHUNK_BYTES: u64 = 64 << 10;
/// The places of its texts: serial number, path of the mount, address.
const PLACES: [usize; 3] = [256, 1024, 512];

/// What it says of the unit.
#[derive(Clone, Debug)]
pub struct SaidUnit {
    /// `st_dev` of the files of the mount.
    pub device: u64,
    /// Bytes of the unit.
    pub len_bytes: u64,
    /// Its serial number.
    pub serial: String,
}

impl SaidUnit {
    fn hello(&self) -> Vec<u8> {
        let texts = [
            &*self.serial,
            "/mounted",
            "iscsi://127.0.0.1/iqn.2026-01.org.example:disk/1",
        ];
        let mut bytes = b"ACKG".to_vec();
        bytes.extend(1u16.to_le_bytes());
        bytes.extend(0u16.to_le_bytes());
        bytes.extend(self.device.to_le_bytes());
        bytes.extend(self.len_bytes.to_le_bytes());
        bytes.extend(512u32.to_le_bytes());
        for text in texts {
            bytes.extend((text.len() as u16).to_le_bytes());
        }
        for (text, place) in texts.into_iter().zip(PLACES) {
            let end = bytes.len() + place;
            bytes.extend(text.as_bytes());
            bytes.resize(end, 0);
        }
        bytes
    }
}

/// The program. It ends when it is dropped.
pub struct GatewayProgram {
    path: PathBuf,
    counters: Arc<Counters>,
    listener: Arc<OwnedFd>,
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Counters {
    memory: OwnedFd,
    at: *mut AtomicU32,
}

// SAFETY: a mapping that lives as long as this, all of it atomic.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

impl Drop for Counters {
    fn drop(&mut self) {
        // SAFETY: it was mapped so.
        unsafe { libc::munmap(self.at.cast(), COUNTERS * 4) };
    }
}

impl Counters {
    fn new() -> Counters {
        // SAFETY: plain system calls; the descriptor is new, and the mapping is checked.
        unsafe {
            let memory = libc::memfd_create(c"counters".as_ptr(), libc::MFD_CLOEXEC);
            assert!(memory >= 0, "memfd_create");
            let memory = OwnedFd::from_raw_fd(memory);
            done(libc::ftruncate(memory.as_raw_fd(), COUNTERS as i64 * 4)).expect("memory");
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            let at = libc::mmap(
                std::ptr::null_mut(),
                COUNTERS * 4,
                rights,
                libc::MAP_SHARED,
                memory.as_raw_fd(),
                0,
            );
            assert_ne!(at, libc::MAP_FAILED, "mmap");
            Counters {
                memory,
                at: at.cast(),
            }
        }
    }

    fn add(&self, number: usize) {
        assert!(number < COUNTERS);
        // SAFETY: inside the mapping.
        unsafe { (*self.at.add(number)).fetch_add(1, Ordering::SeqCst) };
    }
}

impl GatewayProgram {
    /// Listens at this path, and says this to who connects.
    pub fn start(path: &Path, unit: &SaidUnit) -> GatewayProgram {
        let counters = Arc::new(Counters::new());
        let listener = Arc::new(listen(path));
        let is_over = Arc::new(AtomicBool::new(false));
        let (hello, memory) = (unit.hello(), Arc::clone(&counters));
        let (at, over) = (Arc::clone(&listener), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let mut connections = Vec::new();
            loop {
                // SAFETY: accept(2) of a descriptor that is open; the new one is ours.
                let accepted = unsafe {
                    let none = std::ptr::null_mut();
                    libc::accept4(at.as_raw_fd(), none, none.cast(), libc::SOCK_CLOEXEC)
                };
                if accepted < 0 || over.load(Ordering::SeqCst) {
                    return;
                }
                // SAFETY: it is open, and nobody else has it.
                let connection = unsafe { OwnedFd::from_raw_fd(accepted) };
                say(&connection, &hello, &memory.memory);
                connections.push(connection);
            }
        });
        GatewayProgram {
            path: path.to_owned(),
            counters,
            listener,
            is_over,
            thread: Some(thread),
        }
    }

    /// These bytes of the unit were written.
    pub fn written(&self, offset_bytes: u64, len_bytes: u64) {
        let last = (offset_bytes + len_bytes.max(1) - 1) / CHUNK_BYTES;
        for chunk in offset_bytes / CHUNK_BYTES..=last {
            self.counters.add((chunk % COUNTERS as u64) as usize);
        }
    }
}

impl Drop for GatewayProgram {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // SAFETY: shutdown(2) of a descriptor that is open ends accept(2).
        unsafe { libc::shutdown(self.listener.as_raw_fd(), libc::SHUT_RDWR) };
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}

fn listen(path: &Path) -> OwnedFd {
    let text = CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the address is filled in and outlives the calls; the descriptor is new.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let socket = libc::socket(libc::AF_UNIX, kind, 0);
        assert!(socket >= 0, "a socket");
        let socket = OwnedFd::from_raw_fd(socket);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let bytes = text.as_bytes_with_nul();
        assert!(bytes.len() <= address.sun_path.len(), "a shorter path");
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let len = size_of::<libc::sockaddr_un>() as u32;
        let at = (&raw const address).cast();
        done(libc::bind(socket.as_raw_fd(), at, len)).expect("a free path");
        done(libc::listen(socket.as_raw_fd(), 4)).expect("a socket");
        socket
    }
}

/// Sends the hello with the counters beside it.
fn say(connection: &OwnedFd, hello: &[u8], memory: &OwnedFd) {
    // SAFETY: all buffers outlive the call, and the control message has the room that its macros ask for.
    unsafe {
        let mut bytes = libc::iovec {
            iov_base: hello.as_ptr().cast_mut().cast(),
            iov_len: hello.len(),
        };
        let mut beside = [0u64; 8];
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut bytes;
        message.msg_iovlen = 1;
        message.msg_control = beside.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(4) as _;
        let rights = libc::CMSG_FIRSTHDR(&raw const message);
        (*rights).cmsg_level = libc::SOL_SOCKET;
        (*rights).cmsg_type = libc::SCM_RIGHTS;
        (*rights).cmsg_len = libc::CMSG_LEN(4) as _;
        libc::CMSG_DATA(rights)
            .cast::<libc::c_int>()
            .write_unaligned(memory.as_raw_fd());
        let sent = libc::sendmsg(
            connection.as_raw_fd(),
            &raw const message,
            libc::MSG_NOSIGNAL,
        );
        assert_eq!(sent, hello.len() as isize, "a hello");
    }
}
