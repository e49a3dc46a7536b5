//! A TUN device with offloads: one end of the emulated wire (kernel documentation, networking/tuntap).

use super::packet::FRAME_LEN_BYTES_MAX;
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Name of the device in both namespaces.
pub const NAME: &str = "wan0";
const DEVICE: &str = "/dev/net/tun";

/// One end. Dropping it removes the device.
#[derive(Debug)]
pub struct Tun {
    device: OwnedFd,
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
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN;
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: TUNSETOFFLOAD takes its flags by value.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) };
        checked(done, "TUNSETOFFLOAD")?;
        let unlimited: libc::c_int = libc::c_int::MAX;
        // SAFETY: TUNSETSNDBUF reads one int, which lives here.
        let done = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETSNDBUF, &unlimited) };
        checked(done, "TUNSETSNDBUF")?;
        Ok(Tun {
            device: device.into(),
        })
    }

    /// Reads the next frame into a buffer of the largest size; returns its length, or `None` if there is none
    /// now.
    pub fn read(&self, buffer: &mut [u8]) -> Option<usize> {
        debug_assert!(buffer.len() >= FRAME_LEN_BYTES_MAX);
        rustix::io::read(&self.device, buffer).ok()
    }

    /// Passes a frame to the kernel, which may refuse it as a wire may lose it.
    pub fn write(&self, frame: &[u8]) {
        let _ = rustix::io::write(&self.device, frame);
    }

    /// The descriptor, for poll.
    pub fn device(&self) -> &OwnedFd {
        &self.device
    }
}

fn checked(result: libc::c_int, what: &str) -> Result<()> {
    match result {
        0.. => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(|| format!("{what} of {DEVICE}")),
    }
}
