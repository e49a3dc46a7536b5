//! A TUN device with offloads: one end of the emulated wire (kernel documentation, networking/tuntap).

use super::packet::FRAME_LEN_BYTES_MAX;
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Name of the device in both namespaces.
pub const NAME: &str = "wan0";
const DEVICE: &str = "/dev/net/tun";

/// One end. Dropping it removes the device.
#[derive(Debug)]
pub struct Tun {
    device: OwnedFd,
    /// The namespace's device counters; the open file stays readable from other namespaces.
    counters: File,
}

impl Tun {
    /// Creates the device in the namespace of the calling thread.
    pub fn new() -> Result<Tun> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(DEVICE);
        let device = device.map_err(|error| {
            LabError::Setup(format!(
                "{DEVICE}: {error}; the WAN emulator needs it and root: modprobe tun"
            ))
        })?;
        // SAFETY: ifreq is plain data, for which all zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(NAME.bytes()) {
            *to = from as libc::c_char;
        }
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which lives here.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &mut request) };
        checked(done, "TUNSETIFF")?;
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
        checked(done, "TUNSETOFFLOAD")?;
        let unlimited: libc::c_int = libc::c_int::MAX;
        // SAFETY: TUNSETSNDBUF reads one int, which lives here.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETSNDBUF, &unlimited) };
        checked(done, "TUNSETSNDBUF")?;
        let counters = "/proc/thread-self/net/dev";
        Ok(Tun {
            device: device.into(),
            counters: File::open(counters).doing(|| counters.into())?,
        })
    }

    /// Reads the next frame into a buffer of the largest size; returns its length, or `None` if there is none
    /// now.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        debug_assert!(buffer.len() >= FRAME_LEN_BYTES_MAX);
        rustix::io::read(&self.device, buffer).ok()
    }

    /// Passes a frame to the kernel; returns false if it refuses.
    pub fn write(&self, frame: &[u8]) -> bool {
        rustix::io::write(&self.device, frame).is_ok()
    }

    /// The descriptor, for poll.
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// Packets that the kernel dropped because we read too slowly.
    pub fn overruns(&self) -> u64 {
        let mut text = vec![0; 4096];
        let len = rustix::io::pread(&self.counters, &mut text, 0).unwrap_or(0);
        overruns(&String::from_utf8_lossy(&text[..len])).unwrap_or(0)
    }
}

/// Field "drop" of "transmit", in the text of /proc/net/dev.
fn overruns(text: &str) -> Option<u64> {
    let fields = |line: &str| {
        Some(
            line.trim()
                .strip_prefix(NAME)?
                .strip_prefix(':')?
                .to_owned(),
        )
    };
    let fields = text.lines().find_map(fields)?;
    fields.split_whitespace().nth(11)?.parse().ok()
}

fn checked(result: libc::c_int, what: &str) -> Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(|| format!("{what} of {DEVICE}")),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn drops_of_transmit_are_the_twelfth_figure() {
        let text = "Inter-| Receive | Transmit\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13\n\
            wan0: 1 2 3 4 5 6 7 8 9 10 11 12345 13 14 15 16\n";
        assert_eq!(super::overruns(text), Some(12345));
        assert_eq!(super::overruns("lo: 1"), None);
    }
}
