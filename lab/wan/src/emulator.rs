//! The emulator's thread: reads frames at both ends, asks the engine, and writes each frame when it is due.

use super::engine::{Engine, LinkCounters};
use super::plan::Direction;
use super::plan::LinkId;
use super::tun::Tun;
use ackpace_lab_base::punctual::be_punctual;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

/// Frames read from one end before the other has its turn, and frames written before the ends are read again.
/// Both are equal: a written packet makes the kernel answer with at most one. If fewer frames were read than
/// written, acknowledgements would pile up in the device until it drops them.
const READS_IN_A_ROW: usize = 32;
const WRITES_IN_A_ROW: usize = 32;
/// Of 1 to 99; any value is above all ordinary processes.
const REALTIME_PRIORITY: libc::c_int = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// Counters since the start.
pub struct Counters {
    /// Time since the start, in us.
    pub elapsed_us: u64,
    /// By link: the shared ones, then each path's own, down and up.
    pub links: Vec<LinkCounters>,
}

/// A command to the thread.
pub enum Order {
    /// Mark packets of a link with this probability.
    Mark(LinkId, f64),
    /// Answer with all counters.
    Count(Sender<Counters>),
    /// End the thread.
    Stop,
}

/// The handle that controls the thread.
pub struct Remote {
    orders: Sender<Order>,
    waker: Arc<OwnedFd>,
}

/// The state of the thread.
pub struct Emulator {
    engine: Engine,
    /// The server's end, then the client's.
    ends: [Tun; 2],
    orders: Receiver<Order>,
    waker: Arc<OwnedFd>,
    began_ns: u64,
    grain_ns: u64,
    /// Frames to the clients, taken from the engine together with those to the server but written after them.
    down: Vec<Vec<u8>>,
}

impl Emulator {
    /// A wire between the server's end and the client's end. The thread wakes every `grain_ns`, or at every
    /// frame if that is 0.
    pub fn new(
        engine: Engine,
        ends: [Tun; 2],
        grain_ns: u64,
    ) -> std::io::Result<(Emulator, Remote)> {
        let waker = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (sender, orders) = channel();
        let remote = Remote {
            orders: sender,
            waker: Arc::clone(&waker),
        };
        let emulator = Emulator {
            engine,
            ends,
            orders,
            waker,
            began_ns: now_ns(),
            grain_ns,
            down: Vec::with_capacity(WRITES_IN_A_ROW),
        };
        Ok((emulator, remote))
    }

    /// Runs until it is told to stop, or the [`Remote`] is gone.
    pub fn run(mut self) {
        be_punctual(REALTIME_PRIORITY);
        let mut buffer = self.engine.buffer();
        loop {
            let read = self.read_both(&mut buffer);
            let wrote = self.write_due();
            if !self.obey() {
                return;
            }
            if !read && !wrote {
                self.sleep();
            }
        }
    }

    fn read_both(&mut self, buffer: &mut Vec<u8>) -> bool {
        let mut any = false;
        for (end, direction) in [Direction::Down, Direction::Up].into_iter().enumerate() {
            for _ in 0..READS_IN_A_ROW {
                let Some(len_bytes) = self.ends[end].read(buffer) else {
                    break;
                };
                any = true;
                self.engine.receive(now_ns(), direction, buffer, len_bytes);
            }
        }
        any
    }

    /// Writes what is due: first frames to the server, then frames to the clients. Acknowledgements in quick
    /// succession find the server's core awake. Interleaved with frames to clients, whose whole path through
    /// TCP runs within the write, each of them would have to wake that core by an interrupt. That took an
    /// eighth of our time.
    fn write_due(&mut self) -> bool {
        let mut any = false;
        for _ in 0..WRITES_IN_A_ROW {
            let Some((direction, frame)) = self.engine.arrived(now_ns()) else {
                break;
            };
            any = true;
            match direction {
                Direction::Down => self.down.push(frame),
                Direction::Up => self.write(0, frame),
            }
        }
        let mut down = std::mem::take(&mut self.down);
        for frame in down.drain(..) {
            self.write(1, frame);
        }
        self.down = down; // keep its capacity
        any
    }

    fn write(&mut self, end: usize, frame: Vec<u8>) {
        self.ends[end].write(&frame);
        self.engine.recycle(frame);
    }

    /// Executes pending orders; returns false when it is time to stop.
    fn obey(&mut self) -> bool {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Mark(link, mark)) => self.engine.set_mark(now_ns(), link, mark),
                Ok(Order::Count(answer)) => {
                    let now_ns = now_ns();
                    // The caller may be gone.
                    let _ = answer.send(Counters {
                        elapsed_us: (now_ns - self.began_ns) / 1000,
                        links: self.engine.counters(now_ns),
                    });
                }
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    /// Sleeps until a frame arrives or is due, or an order wakes it.
    fn sleep(&self) {
        if self.grain_ns > 0 && self.engine.deadline_ns().is_some() {
            let left_ns = self.grain_ns - now_ns() % self.grain_ns;
            std::thread::sleep(std::time::Duration::from_nanos(left_ns));
            return;
        }
        let wait = self.engine.deadline_ns().map(|at_ns| {
            let wait_ns = at_ns.saturating_sub(now_ns());
            Timespec {
                tv_sec: (wait_ns / NS_PER_S) as i64,
                tv_nsec: (wait_ns % NS_PER_S) as _,
            }
        });
        let mut fds = [
            PollFd::new(self.ends[0].device(), PollFlags::IN),
            PollFd::new(self.ends[1].device(), PollFlags::IN),
            PollFd::new(&self.waker, PollFlags::IN),
        ];
        // A signal ends the sleep early, which does no harm.
        let _ = poll(&mut fds, wait.as_ref());
        if !fds[2].revents().is_empty() {
            let _ = rustix::io::read(&self.waker, &mut [0; 8]);
        }
    }
}

impl Remote {
    /// Sends an order; returns false if the thread is gone.
    pub fn tell(&self, order: Order) -> bool {
        let told = self.orders.send(order).is_ok();
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        told
    }

    /// All counters; `None` if the thread is gone.
    pub fn count(&self) -> Option<Counters> {
        let (answer, counters) = channel();
        self.tell(Order::Count(answer));
        counters.recv().ok()
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64
}
