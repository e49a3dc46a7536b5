//! The clients: many connections in one thread, each with a plan and an oracle of its own.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::findings::Findings;
use super::history::History;
use super::oracle::{End, Oracle, Rules, Sums, Validators};
use super::plan::{Ask, Known, Leave, Limit, Pace, Plan, Span, Subject, When, draw};
use super::weather::{Mood, Weather};
use super::world::{Wanted, World};
use super::wrong::{Kind, Wrong};
use crate::{Rng, connect_with, reset_on_drop};

/// How long a response may stall once the disk is fast and nothing disturbs it.
const CALM_STALL: Duration = Duration::from_secs(15);
/// How long clients may read what they are owed while it keeps coming: enough to see which ones stall.
const CALM: Duration = Duration::from_secs(16);
/// A client with a tiny window reads no more than this then, or it would take minutes.
const TINY_CALM_BYTES: u64 = 64 << 10;
/// Bytes of a request that are sent one by one: the server gives up a head that takes too long.
const DRIPS: usize = 40;
/// A client that waits for this long is followed by others.
const STANDS: Duration = Duration::from_millis(250);
/// Most bytes that a client reads in a turn, so that all get theirs.
const TURN_BYTES: usize = 2 << 20;

/// State that all clients share.
pub struct Swarm<'a> {
    pub world: &'a Arc<World>,
    pub address: SocketAddr,
    pub weather: &'a Weather,
    pub findings: &'a Findings,
    /// Most bytes that the kernel holds for the server's side of a connection.
    pub send_buffer_bytes: u64,
    /// True once no new client may follow another.
    pub calm: &'a AtomicBool,
    /// True once the server is gone.
    pub dead: &'a AtomicBool,
}

/// What clients have seen of a file.
#[derive(Clone, Debug, Default)]
struct KnownFile {
    validators: Option<Validators>,
    /// The range that one of them asked for last.
    asked: Option<Span>,
}

/// Totals of all clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct Total {
    pub connections: usize,
    /// Totals of their oracles.
    pub sums: Sums,
}

impl Swarm<'_> {
    /// Runs clients until it is calm and the last one is done.
    pub fn run(&self, seed: u64) -> Total {
        let mut rng = Rng::new(seed);
        let mut clients: Vec<Client> = Vec::new();
        let mut total = Total::default();
        let mut known = vec![KnownFile::default(); self.weather.files.0];
        let mut room = vec![0; 256 << 10];
        let mut calm_since = None;
        while !self.dead.load(Ordering::Acquire) {
            if self.calm.load(Ordering::Acquire) && calm_since.is_none() {
                calm_since = Some(Instant::now());
                clients.iter_mut().for_each(Client::calm_down);
            }
            while calm_since.is_none() && clients.len() < self.weather.clients {
                match self.client(&mut rng, &known) {
                    Ok(client) => {
                        for ask in &client.plan.asks {
                            if let (Subject::File(file), Some(first)) =
                                (ask.subject, ask.spans.first())
                            {
                                known[file].asked = Some(*first);
                            }
                        }
                        clients.push(client);
                    }
                    Err(_) => break, // the server is gone, or will be there in a moment
                }
            }
            if calm_since.is_some_and(|since| clients.is_empty() || since.elapsed() > CALM) {
                break;
            }
            if calm_since.is_none() {
                self.others_come(&mut clients);
            }
            wait(&clients);
            clients.retain_mut(|client| {
                let ended = client.turn(&mut room, &self.world.history);
                if let Some(new) = client.oracle.validators.take() {
                    let file = new.file;
                    known[file].validators = Some(new);
                }
                let wrong = match ended {
                    Ok(false) => match self.stands_still(client, calm_since) {
                        None => return true,
                        Some(wrong) => Some(wrong),
                    },
                    Ok(true) => None,
                    Err(wrong) => Some(wrong),
                };
                total.add(client);
                if let Some(wrong) = wrong {
                    self.findings.add(&wrong, &client.describe());
                }
                false
            });
        }
        total
    }

    fn client(&self, rng: &mut Rng, known: &[KnownFile]) -> io::Result<Client> {
        let mut some = |rng: &mut Rng| {
            let few = self.weather.popular;
            let from = if few > 0 && rng.below(3) > 0 {
                few
            } else {
                known.len()
            };
            let file = rng.below(from);
            let lives = self.world.history.lives();
            let life = &lives[file];
            let validators = known[file].validators.as_ref();
            Known {
                file,
                target: life.target.clone(),
                len_bytes: life
                    .now()
                    .state
                    .as_ref()
                    .map_or(0, |state| state.len_bytes()),
                tag: validators.map(|known| known.tag.clone()),
                date: validators.map(|known| known.date.clone()),
                asked: known[file].asked,
            }
        };
        let plan = draw(rng, &self.weather.taste, &mut some);
        let rules = self.rules(&plan);
        Client::connect(self.address, plan, rules)
    }

    fn rules(&self, plan: &Plan) -> Rules {
        // Our own buffer is twice the size that was set (socket(7)).
        let in_buffers = plan
            .receive_bytes
            .map(|bytes| 2 * bytes as u64 + self.send_buffer_bytes);
        Rules {
            disk_fails: self.weather.mood == Mood::Fails || self.weather.gateway,
            busy: self.weather.busy,
            in_buffers_bytes: in_buffers.unwrap_or(u64::MAX),
        }
    }

    /// For a client that waits, a program on the machine reads the same range and what comes behind it; then another
    /// client asks for it.
    fn others_come(&self, clients: &mut Vec<Client>) {
        let now = Instant::now();
        for client in clients.iter_mut().filter(|client| !client.followed) {
            let still = now.saturating_duration_since(client.moved);
            let (true, Some((file, span, next))) = (still > STANDS, client.oracle.due()) else {
                continue;
            };
            let Some((at, end)) = span.of(u64::MAX >> 1) else {
                continue;
            };
            let from = next.map_or(at, |next| next.min(at));
            let end = end.min(from + (8 << 20));
            client.followed = self.world.wanted(Wanted {
                file,
                span,
                from,
                end,
            });
        }
        while let Some(Wanted { file, span, .. }) = self.world.read_since() {
            let target = self.world.history.lives()[file].target.clone();
            let mut ask = Ask::get(Subject::File(file), &target);
            ask.spans = vec![span];
            let plan = Plan::quick(ask);
            if clients.len() < 2 * self.weather.clients {
                let rules = self.rules(&plan);
                clients.extend(Client::connect(self.address, plan, rules));
            }
        }
    }

    /// Whether a client waits in vain.
    fn stands_still(&self, client: &Client, calm_since: Option<Instant>) -> Option<Wrong> {
        let now = Instant::now();
        if client.reads_at.is_some_and(|at| at > now) {
            return None;
        }
        let patience = match calm_since {
            None => Duration::from_secs(self.weather.stall_s),
            Some(_) => CALM_STALL,
        };
        let since = [Some(client.moved), calm_since, self.world.hung_at()];
        let since = since.into_iter().flatten().max()?;
        (now.saturating_duration_since(since) > patience).then(|| {
            let still = now.saturating_duration_since(client.moved).as_secs_f64();
            let text = format!(
                "no byte for {still:.1} s, with an empty socket and an open window, {}",
                client.oracle.place()
            );
            Wrong::new(Kind::Stall, text)
        })
    }
}

impl Total {
    fn add(&mut self, client: &Client) {
        let (all, own) = (&mut self.sums, &client.oracle.sums);
        self.connections += 1;
        all.bytes += own.bytes;
        all.heads += own.heads;
        all.complete += own.complete;
        all.cut += own.cut;
        all.torn += own.torn;
    }
}

struct Client {
    stream: TcpStream,
    plan: Plan,
    oracle: Oracle,
    born: Instant,
    /// Number of its requests sent or being sent.
    asked: usize,
    out: Vec<u8>,
    /// For a client that drips: when the next byte is sent, and how many are left.
    drips_at: Option<(Instant, usize)>,
    /// Others follow it to the range that it waits for.
    followed: bool,
    /// It can't send any more.
    shut: bool,
    connected: bool,
    /// When it reads next; `None`: at once.
    reads_at: Option<Instant>,
    /// When bytes last came or went, or when it resumed reading.
    moved: Instant,
}

impl Client {
    fn connect(address: SocketAddr, plan: Plan, rules: Rules) -> io::Result<Client> {
        let stream = connect_with(address, None, plan.receive_bytes, libc::SOCK_NONBLOCK)?;
        let born = Instant::now();
        Ok(Client {
            stream,
            plan,
            oracle: Oracle::new(rules),
            born,
            asked: 0,
            out: Vec::new(),
            drips_at: None,
            followed: false,
            shut: false,
            connected: false,
            reads_at: None,
            moved: born,
        })
    }

    fn describe(&self) -> String {
        let (age, local) = (
            self.born.elapsed().as_secs_f64(),
            self.stream.local_addr().ok(),
        );
        format!(
            "after {age:.2} s on {local:?}, {} requests sent, {:?}; it {}",
            self.asked, self.oracle.sums, self.plan
        )
    }

    /// Ends pauses, and drops requests that are not sent yet.
    fn calm_down(&mut self) {
        self.plan.asks.truncate(self.asked.max(1));
        (self.plan.pace, self.plan.pause, self.reads_at) = (Pace::Fast, None, None);
        (self.plan.drip_ms, self.drips_at) = (None, None);
        if self
            .plan
            .receive_bytes
            .is_some_and(|bytes| bytes < 64 << 10)
        {
            let (bytes, ms) = (self.oracle.sums.bytes + TINY_CALM_BYTES, u64::MAX >> 1);
            self.plan.leave = Leave::Closed(Limit { bytes, ms });
        }
    }

    /// Does what is due now. Returns true if the connection is over.
    fn turn(&mut self, room: &mut [u8], history: &History) -> Result<bool, Wrong> {
        let now = Instant::now();
        if self.reads_at.is_some_and(|at| at <= now) {
            self.reads_at = None;
            if matches!(self.plan.pace, Pace::Fast) {
                self.moved = now; // the end of a pause
            }
        }
        self.ask(now);
        self.write(now);
        let ended = match self.reads_at {
            None => self.read(room, history)?,
            Some(_) => None,
        };
        if let Some(how) = ended {
            return self.oracle.ended(how, now, history).map(|()| true);
        }
        Ok(self.leaves(now))
    }

    fn ask(&mut self, now: Instant) {
        while let Some(ask) = self.plan.asks.get(self.asked) {
            let due = match ask.when {
                When::Together => true,
                When::UnderWay => self.oracle.sums.heads >= self.asked,
                When::Answered => self.oracle.sums.complete >= self.asked,
            };
            let closing = self.asked > 0
                && self.oracle.is_answered()
                && self.oracle.sums.complete < self.asked;
            if !due || closing || self.shut {
                return;
            }
            if let (Some(ms), true, true) = (self.plan.drip_ms, self.out.is_empty(), self.asked > 0)
            {
                self.drips_at = Some((now + Duration::from_millis(ms), DRIPS));
            }
            self.out.extend_from_slice(ask.text().as_bytes());
            self.oracle.asked(ask.clone(), now);
            self.asked += 1;
            if self.oracle.due().is_none() {
                self.moved = now;
            }
        }
    }

    fn write(&mut self, now: Instant) {
        while !self.out.is_empty() && self.drips_at.is_none_or(|(at, _)| at <= now) {
            let end = if self.drips_at.is_some() {
                1
            } else {
                self.out.len()
            };
            match self.stream.write(&self.out[..end]) {
                Ok(written) => {
                    self.drips_at = match (self.drips_at, self.plan.drip_ms) {
                        (Some((_, more)), Some(ms)) if more > 0 => {
                            Some((now + Duration::from_millis(ms), more - 1))
                        }
                        _ => None,
                    };
                    self.out.drain(..written);
                    self.connected = true;
                    if self.out.is_empty() {
                        self.oracle.all_sent(now);
                    }
                    if self.oracle.due().is_none() {
                        self.moved = now; // an answer under way owes nothing to later requests
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::NotConnected
                    ) =>
                {
                    return;
                }
                Err(_) => {
                    // What was sent before may still be answered.
                    self.out.clear();
                    self.shut = true;
                }
            }
        }
        let is_last = self.asked == self.plan.asks.len() && self.out.is_empty();
        if is_last && !self.shut && self.plan.leave == Leave::HalfClosed {
            self.shut = true;
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }

    /// Reads what is there. Returns how the connection ended, if it did.
    fn read(&mut self, room: &mut [u8], history: &History) -> Result<Option<End>, Wrong> {
        let (most, every_ms) = match self.plan.pace {
            Pace::Fast => (room.len(), None),
            Pace::Paced { bytes, every_ms } => (bytes.min(room.len()), Some(every_ms)),
        };
        let mut came = 0;
        while came < TURN_BYTES {
            let now = Instant::now();
            match self.stream.read(&mut room[..most]) {
                Ok(0) => return Ok(Some(End::Closed)),
                Ok(read) => {
                    came += read;
                    self.followed = false;
                    (self.moved, self.connected) = (now, true);
                    self.oracle.feed(&room[..read], now, history)?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::NotConnected
                    ) =>
                {
                    self.oracle.drained(now);
                    return Ok(None);
                }
                Err(_) => return Ok(Some(End::Reset)),
            }
            if let Some(ms) = every_ms {
                self.reads_at = Some(now + Duration::from_millis(ms));
                return Ok(None);
            }
            if let Some((_, ms)) = self
                .plan
                .pause
                .take_if(|pause| self.oracle.sums.bytes >= pause.0)
            {
                self.reads_at = Some(now + Duration::from_millis(ms));
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn leaves(&mut self, now: Instant) -> bool {
        let all_sent = self.asked == self.plan.asks.len() && self.out.is_empty();
        let answered = self.asked > 0 && self.oracle.is_answered();
        let closing = answered && self.oracle.sums.complete < self.plan.asks.len();
        let done = |limit: Limit| {
            let late = now > self.born + Duration::from_millis(limit.ms);
            self.asked > 0 && self.out.is_empty() && (self.oracle.sums.bytes >= limit.bytes || late)
        };
        match self.plan.leave {
            Leave::Reset(limit) if done(limit) => {
                reset_on_drop(&self.stream);
                true
            }
            Leave::Closed(limit) if done(limit) => true,
            // The server has to close by itself.
            Leave::HalfClosed => false,
            _ => answered && (all_sent || closing),
        }
    }

    fn events(&self) -> libc::c_short {
        let mut events = 0;
        if self.reads_at.is_none() {
            events |= libc::POLLIN;
        }
        if (!self.out.is_empty() && self.drips_at.is_none()) || !self.connected {
            events |= libc::POLLOUT;
        }
        events
    }
}

/// Waits for an event, at most for a moment.
fn wait(clients: &[Client]) {
    let mut polled: Vec<libc::pollfd> = clients
        .iter()
        .map(|client| libc::pollfd {
            // A pausing client is not polled: an RST would wake us all the time.
            fd: if client.events() == 0 {
                -1
            } else {
                client.stream.as_raw_fd()
            },
            events: client.events(),
            revents: 0,
        })
        .collect();
    // SAFETY: the pointer and the count describe the vector.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 2) };
}
