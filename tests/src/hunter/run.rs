//! A hunt: one weather after another, each with its own server and files.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::client::{Swarm, Total};
use super::findings::{Findings, Log};
use super::target;
use super::watch::{self, Extremes};
use super::weather::{Weather, course};
use super::world::World;
use super::wrong::{Kind, Wrong};
use crate::{Rng, Server, Setup, command, run, server_binary};

/// A weather ends after this many findings.
const FINDINGS: usize = 300;

/// Settings of a hunt.
#[derive(Clone, Debug)]
pub struct Hunt {
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Duration of a weather, without setup and shutdown.
    pub each: Duration,
    /// No weather begins later than this.
    pub length: Duration,
    /// Run only the weather of this name.
    pub only: Option<String>,
    /// Arguments of the server; they override those of the weather.
    pub args: Vec<String>,
    /// A file that receives a copy of all output.
    pub log: Option<PathBuf>,
}

impl Hunt {
    /// Runs the weathers, and returns the number of findings.
    pub fn run(&self) -> usize {
        let start = Instant::now();
        let mut count = 0;
        self.logs().say(&format!(
            "hunter: seed {}, {}",
            self.seed,
            server_binary().display()
        ));
        for (nth, weather) in course(self.seed).enumerate() {
            if start.elapsed() >= self.length {
                break;
            }
            if self.only.as_ref().is_some_and(|only| only != weather.name) {
                continue;
            }
            let seed = self
                .seed
                .wrapping_add(nth as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            count += if weather.target {
                self.logs()
                    .say(&format!("weather target (seed {})", self.seed));
                target::storm(seed, self.each, &self.logs(), start)
            } else {
                self.weather(&weather, seed, start)
            };
        }
        self.logs().say(&format!(
            "hunter: seed {}, {count} findings in {:.0} s",
            self.seed,
            start.elapsed().as_secs_f64()
        ));
        count
    }

    fn logs(&self) -> Log {
        let (seed, file) = (self.seed, self.log.clone());
        Log { seed, file }
    }

    fn weather(&self, weather: &Weather, seed: u64, start: Instant) -> usize {
        let Some(world) = World::new(weather, seed) else {
            return 0;
        };
        self.logs().say(&format!(
            "weather {} (seed {}): {weather:?}",
            weather.name, self.seed
        ));
        let origin = weather.gateway.then(|| Origin::start(&world));
        let setup = match &origin {
            Some(origin) => Setup::new(origin.server.url()),
            None => world.setup(),
        };
        let setup = setup.args(&self.arguments(weather)[..]);
        let server = setup.args("--metrics 0").start();
        world.serves(server.pid());
        let findings = Findings::new(self.logs(), weather.name, start, server.metrics());
        let begun = Instant::now();
        let (total, seen) =
            self.storm((&Arc::new(world), origin), weather, server, &findings, seed);
        let count = findings.count();
        let (sums, s) = (total.sums, begun.elapsed().as_secs_f64());
        self.logs().say(&format!(
            "weather {} is over after {s:.1} s: {count} findings{}; {} connections, {} answers ({} ended early, {} torn), {} MB; \
             RssAnon {} MB, longest sleep in D {} ms, slowest small request {} ms",
            weather.name,
            findings.summary(),
            total.connections,
            sums.heads,
            sums.cut,
            sums.torn,
            sums.bytes / 1_000_000,
            seen.memory_bytes / 1_000_000,
            seen.asleep_ms,
            seen.small_ms
        ));
        count
    }

    /// Arguments of the server: those of the hunt override those of the weather.
    fn arguments<'a>(&'a self, weather: &'a Weather) -> Vec<&'a str> {
        let given = |name: &str| self.args.iter().any(|own| own == name);
        let words: Vec<&str> = weather.args.split(' ').collect();
        let pairs = words.chunks(2).filter(|pair| !given(pair[0]));
        let own = self.args.iter().map(String::as_str);
        // Every second seed gives each connection from worker to worker all the time.
        let moves =
            (self.seed % 2 == 1 && !given("--compare")).then_some(["--compare", "moves=always"]);
        let moves = moves.into_iter().flatten();
        pairs.flatten().copied().chain(moves).chain(own).collect()
    }

    fn storm(
        &self,
        (world, origin): (&Arc<World>, Option<Origin>),
        weather: &Weather,
        mut server: Server,
        findings: &Findings,
        seed: u64,
    ) -> (Total, Extremes) {
        let (calm, dead, over) = (
            AtomicBool::new(false),
            AtomicBool::new(false),
            AtomicBool::new(false),
        );
        let (pid, address) = (server.pid(), server.address());
        let promised = promised_bytes(&self.arguments(weather), weather.gateway);
        let swarm = Swarm {
            world,
            address,
            weather,
            findings,
            send_buffer_bytes: send_buffer_bytes(),
            calm: &calm,
            dead: &dead,
        };
        let until = Instant::now() + self.each;
        let result = std::thread::scope(|scope| {
            world.others(scope);
            if let Some(origin) = origin {
                scope.spawn(|| origin.fails(world, seed, &over));
            }
            let swarm = scope.spawn(|| swarm.run(seed));
            let watch = scope.spawn(|| watch::workers(pid, promised, findings, &over));
            let small = scope.spawn(|| watch::small(address, findings, &over, &dead));
            while !swarm.is_finished() {
                if let Some(status) = server.ended() {
                    dead.store(true, Ordering::Release);
                    let text = format!(
                        "the server ended with {status} (signal {:?})",
                        status.signal()
                    );
                    findings.add(&Wrong::new(Kind::Abort, text), &watch::last_lines(&server));
                    break;
                }
                let enough = Instant::now() >= until || findings.count() >= FINDINGS;
                if enough && !calm.swap(true, Ordering::AcqRel) {
                    world.calm_down();
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            world.calm_down(); // the server may be gone before that
            over.store(true, Ordering::Release);
            let mut seen = watch.join().expect("a watch does not panic");
            seen.small_ms = small.join().expect("nor does a probe");
            (swarm.join().expect("nor do clients"), seen)
        });
        if !dead.load(Ordering::Acquire) {
            watch::stop(server, findings);
        }
        result
    }
}

/// The server behind a gateway.
struct Origin {
    server: Server,
    /// Where it listens: an address from which no client calls, so that its port stays free while it is away.
    place: String,
}

impl Origin {
    fn start(world: &World) -> Origin {
        let server = world.setup().listen("127.0.77.1:0").start();
        let place = server.address().to_string();
        Origin { server, place }
    }

    /// Is killed and comes back, again and again until the world is calm; stays until it is over.
    fn fails(self, world: &World, seed: u64, over: &AtomicBool) {
        let Origin { mut server, place } = self;
        let mut rng = Rng::new(seed ^ 9);
        while !world.is_over() {
            world.rest(500 + rng.below(3000) as u64);
            server.kill();
            world.rest(rng.below(400) as u64);
            server = world.setup().listen(&place).start();
        }
        while !over.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The memory bound that the server states (`ackpace limits`), in bytes.
fn promised_bytes(args: &[&str], is_gateway: bool) -> u64 {
    let mut limits = command(server_binary());
    limits.arg("limits").args(args);
    if is_gateway {
        limits.arg("http://origin.invalid");
    }
    let limits = run(&mut limits);
    watch::promised_bytes(&limits.out).unwrap_or_else(|| panic!("no sum in {limits:?}"))
}

/// The most unacknowledged and unsent bytes that the kernel holds for a server's socket (tcp(7), tcp_wmem).
fn send_buffer_bytes() -> u64 {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").unwrap_or_default();
    let most = text
        .split_whitespace()
        .last()
        .and_then(|word| word.parse().ok());
    most.unwrap_or(4 << 20)
}
