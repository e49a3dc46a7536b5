//! A stand-in until the flow switch is there.
use ackpace_host_base::failure::Failure;
use ackpace_wire::cluster::Tuple;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[derive(Debug)]
pub struct Settings { pub vips: Vec<IpAddr>, pub ports: Vec<u16>, pub peers: Vec<IpAddr>, pub devices: Vec<String> }
pub struct Tracked { pub ack: u32, pub seq_end: u32 }
pub struct Switch(OwnedFd);
impl Switch {
    pub fn start(_: &Settings) -> Result<Switch, Failure> { Ok(Switch(rustix::pipe::pipe().unwrap().0)) }
    pub fn clear() -> Result<(), Failure> { Ok(()) }
    pub fn hold(&mut self, _: &Tuple, _: u32) -> Result<(), Failure> { Ok(()) }
    pub fn thaw(&mut self, _: &Tuple) {}
    pub fn redirect(&mut self, _: &Tuple, _: usize, _: u32) -> Result<u32, Failure> { Ok(0) }
    pub fn claim(&mut self, _: &Tuple, _: u32, _: Option<u64>) -> Result<(), Failure> { Ok(()) }
    pub fn lease(&mut self, _: &Tuple, _: u32, _: u64) -> Result<(), Failure> { Ok(()) }
    pub fn fence(&mut self, _: &Tuple, _: u32) -> Result<(), Failure> { Ok(()) }
    pub fn track(&mut self, _: &Tuple) -> Option<Tracked> { None }
    pub fn epoch(&self, _: &Tuple) -> Option<u32> { None }
    pub fn forget(&mut self, _: &Tuple) {}
    pub fn inject(&mut self, _: &[u8]) -> Result<(), Failure> { Ok(()) }
    pub fn fd(&self) -> BorrowedFd<'_> { self.0.as_fd() }
    pub fn hear(&mut self) {}
    pub fn entries(&self) -> Result<usize, Failure> { Ok(0) }
}
