//! The numbers of a log, in one pass.

use std::collections::HashMap;

use super::line::{Bad, Entry, LogFormat, parse};
use super::sampled::{Sampled, key};

/// Two requests of a client within this time came by one connection (DTCP 4.3).
pub const CONNECTION_MS: i64 = 15_000;
/// Files of which something is kept. More: every second one, and so on.
const FILES_MAX: usize = 1 << 20;
/// Clients likewise.
const CLIENTS_MAX: usize = 1 << 18;
/// Servers of a proxy. More: the half with fewer requests is forgotten, which is told.
const SERVERS_MAX: usize = 1 << 16;
/// Bytes of a server's name. Longer: they end there.
const SERVER_BYTES_MAX: usize = 255;
/// Pairs of a server and a client of it. More: every second one, and so on.
const PAIRS_MAX: usize = 1 << 19;
/// Servers that are shown: those with most requests.
pub const SERVERS_SHOWN_MAX: usize = 10;
/// Lines that are no entries, of which it is kept where and why. More: only counted.
pub const FAULTS_SHOWN_MAX: usize = 5;

/// Memory of an [`Analyser`] at worst. A table has at most 16/7 places for each entry, and a new one is filled while the old one is there.
pub const MEMORY_BYTES: u64 = {
    let tables = FILES_MAX * (8 + size_of::<File>() + 1)
        + CLIENTS_MAX * (8 + size_of::<Client>() + 1)
        + PAIRS_MAX * (8 + size_of::<Pair>() + 1)
        + SERVERS_MAX * (size_of::<(Box<[u8]>, Server)>() + 1);
    (tables * 24 / 7 + SERVERS_MAX * (SERVER_BYTES_MAX + 16)) as u64
};

const _: () = assert!(MEMORY_BYTES < 200 << 20, "docs/cluster.md promises that");

#[derive(Default)]
struct File {
    requests: u64,
    /// The longest response.
    bytes: u64,
}

#[derive(Default)]
struct Client {
    last_ms: i64,
    /// Requests of the present connection.
    run: u64,
    connections: u64,
    /// Those with a second request.
    persistent: u64,
    /// Requests on those.
    on_persistent: u64,
}

/// Of the server with this key.
#[derive(Default)]
struct Pair(u64);

#[derive(Default)]
struct Server {
    last_ms: i64,
    /// The client that had the connection opened.
    opener: u64,
    requests: u64,
    unrelated: u64,
    connections: u64,
}

/// Reads a log line by line.
pub struct Analyser {
    format: Option<LogFormat>,
    lines: u64,
    faults: Vec<(u64, Bad)>,
    bad_lines: u64,
    requests: u64,
    bytes: u64,
    span_ms: Option<(i64, i64)>,
    files: Sampled<File>,
    clients: Sampled<Client>,
    servers: HashMap<Box<[u8]>, Server>,
    pairs: Sampled<Pair>,
    forgot_servers: bool,
}

/// What a log has in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// By its first line that is an entry of any.
    pub format: LogFormat,
    /// All lines, empty ones not counted.
    pub lines: u64,
    /// Lines that are no entries.
    pub bad_lines: u64,
    /// The first of these: the number of the line, and why.
    pub faults: Vec<(u64, Bad)>,
    /// Requests and connections.
    pub totals: Totals,
    /// What was asked for.
    pub files: Files,
    /// The servers that a proxy asked most, those first (Tables 1 and 2).
    pub servers: Vec<ServerRow>,
    /// There were too many servers: one that was asked seldom at first may be missing, or have too few requests.
    pub forgot_servers: bool,
}

/// Sums over a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Requests.
    pub requests: u64,
    /// Bytes of their responses.
    pub bytes: u64,
    /// From the first to the last.
    pub span_ms: u64,
    /// Who asked.
    pub clients: u64,
    /// Connections by the rule of the paper: a client's requests, each within 15 s of the one before.
    pub connections: u64,
    /// Connections that carried more than one request.
    pub persistent: u64,
    /// Requests on those.
    pub on_persistent: u64,
    /// Each client that was looked at stands for so many; 1: the numbers are exact.
    pub client_stands_for: u64,
}

/// The distribution of requests over files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// How many there are.
    pub files: u64,
    /// Their lengths together: of each the longest response.
    pub bytes: u64,
    /// Files that were asked for once.
    pub once: u64,
    /// The share of requests that the 1, 10, 25 and 50 % of files have that are asked for most, in thousandths.
    pub top_permille: [u64; 4],
    /// The share of files that have 50, 90 and 99 % of the requests, in thousandths.
    pub needed_permille: [u64; 3],
    /// Each file that was looked at stands for so many; 1: the numbers are exact.
    pub file_stands_for: u64,
}

/// A row of Table 1.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerRow {
    /// Host and port.
    pub server: String,
    /// Total Reqs.
    pub requests: u64,
    /// Unrelated Reqs.: of another client than the one that had the connection opened.
    pub unrelated: u64,
    /// Pers. Conn.
    pub connections: u64,
    /// Clients.
    pub clients: u64,
}

impl Default for Analyser {
    fn default() -> Analyser {
        Analyser {
            format: None,
            lines: 0,
            faults: Vec::new(),
            bad_lines: 0,
            requests: 0,
            bytes: 0,
            span_ms: None,
            files: Sampled::new(FILES_MAX),
            clients: Sampled::new(CLIENTS_MAX),
            servers: HashMap::new(),
            pairs: Sampled::new(PAIRS_MAX),
            forgot_servers: false,
        }
    }
}

impl Analyser {
    /// Takes the next line, without its line feed. `number`: where it stands in the log, for errors.
    pub fn line(&mut self, number: u64, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        self.lines += 1;
        let format = self.format.unwrap_or_else(|| LogFormat::of(line));
        match parse(format, line) {
            Ok(entry) => {
                self.format = Some(format);
                self.entry(&entry);
            }
            Err(why) => self.fault(number, why),
        }
    }

    /// The next line is longer than any of a log.
    pub fn overlong(&mut self, number: u64) {
        self.lines += 1;
        self.fault(number, Bad::Length);
    }

    fn fault(&mut self, number: u64, why: Bad) {
        self.bad_lines += 1;
        if self.faults.len() < FAULTS_SHOWN_MAX {
            self.faults.push((number, why));
        }
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        let at_ms = entry.at_ms;
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(entry.bytes);
        let (first, last) = self.span_ms.unwrap_or((at_ms, at_ms));
        self.span_ms = Some((first.min(at_ms), last.max(at_ms)));
        if let Some(file) = self.files.of(key(&[entry.file])) {
            file.requests += 1;
            file.bytes = file.bytes.max(entry.bytes);
        }
        let client = key(&[entry.client]);
        if let Some(client) = self.clients.of(client) {
            client.asks(at_ms);
        }
        if let Some(server) = entry.server {
            self.asked(server, client, at_ms);
        }
    }

    /// A proxy asked a server for a client.
    fn asked(&mut self, name: &[u8], client: u64, at_ms: i64) {
        let name = name[..name.len().min(SERVER_BYTES_MAX)].to_ascii_lowercase();
        let server = key(&[&name]);
        if let Some(pair) = self.pairs.of(key(&[&name, &client.to_le_bytes()])) {
            *pair = Pair(server);
        }
        if self.servers.len() >= SERVERS_MAX && !self.servers.contains_key(&name[..]) {
            self.forget_servers();
        }
        self.servers
            .entry(name.into())
            .or_default()
            .asked(client, at_ms);
    }

    fn forget_servers(&mut self) {
        let mut requests: Vec<u64> = self.servers.values().map(|it| it.requests).collect();
        let (_, median, _) = requests.select_nth_unstable(SERVERS_MAX / 2);
        let least = *median;
        // Of many with as few, all are forgotten: else there would be no room.
        self.servers.retain(|_, server| server.requests > least);
        self.forgot_servers = true;
    }

    /// What was in the log. Errors: how many lines stood there, and none was an entry; with the first faults.
    pub fn finish(self) -> Result<Report, (u64, Vec<(u64, Bad)>)> {
        let Some(format) = self.format else {
            return Err((self.lines, self.faults));
        };
        Ok(Report {
            format,
            lines: self.lines,
            bad_lines: self.bad_lines,
            totals: self.totals(),
            files: self.distribution(),
            servers: self.rows(),
            forgot_servers: self.forgot_servers,
            faults: self.faults,
        })
    }

    fn totals(&self) -> Totals {
        let each = self.clients.stands_for();
        let all = |of: fn(&Client) -> u64| self.clients.values().map(of).sum::<u64>() * each;
        let (first, last) = self.span_ms.unwrap_or_default();
        Totals {
            requests: self.requests,
            bytes: self.bytes,
            span_ms: last.abs_diff(first),
            clients: all(|_| 1),
            connections: all(|client| client.connections),
            persistent: all(|client| client.persistent),
            on_persistent: all(|client| client.on_persistent),
            client_stands_for: each,
        }
    }

    fn distribution(&self) -> Files {
        let each = self.files.stands_for();
        let mut counts: Vec<u64> = self.files.values().map(|file| file.requests).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let (files, all) = (counts.len() as u64, counts.iter().sum::<u64>());
        let top = |percent: u64| {
            let most = (files * percent).div_ceil(100) as usize;
            permille(counts[..most].iter().sum(), all)
        };
        let needed = |percent: u64| {
            let mut left = (all * percent).div_ceil(100);
            let enough = counts.iter().position(|count| {
                left = left.saturating_sub(*count);
                left == 0
            });
            permille(enough.map_or(0, |at| at as u64 + 1), files)
        };
        let lengths = self.files.values().map(|file| file.bytes);
        let bytes = lengths.fold(0, u64::saturating_add);
        Files {
            files: files * each,
            bytes: bytes.saturating_mul(each),
            once: counts.iter().filter(|count| **count == 1).count() as u64 * each,
            top_permille: [1, 10, 25, 50].map(top),
            needed_permille: [50, 90, 99].map(needed),
            file_stands_for: each,
        }
    }

    fn rows(&self) -> Vec<ServerRow> {
        let mut most: Vec<(&[u8], &Server)> = self
            .servers
            .iter()
            .map(|(name, it)| (&**name, it))
            .collect();
        most.sort_unstable_by_key(|(name, it)| (std::cmp::Reverse(it.requests), *name));
        most.truncate(SERVERS_SHOWN_MAX);
        let row = |(name, server): &(&[u8], &Server)| {
            let key = key(&[name]);
            let clients = self.pairs.values().filter(|pair| pair.0 == key).count() as u64;
            ServerRow {
                server: String::from_utf8_lossy(name).into_owned(),
                requests: server.requests,
                unrelated: server.unrelated,
                connections: server.connections,
                clients: clients * self.pairs.stands_for(),
            }
        };
        most.iter().map(row).collect()
    }
}

impl Client {
    fn asks(&mut self, at_ms: i64) {
        // Lines may be out of order by a little.
        let same = self.connections > 0 && at_ms.saturating_sub(self.last_ms) <= CONNECTION_MS;
        self.run = if same { self.run + 1 } else { 1 };
        match self.run {
            1 => self.connections += 1,
            2 => {
                (self.persistent, self.on_persistent) =
                    (self.persistent + 1, self.on_persistent + 2)
            }
            _ => self.on_persistent += 1,
        }
        self.last_ms = if same { self.last_ms.max(at_ms) } else { at_ms };
    }
}

impl Server {
    fn asked(&mut self, client: u64, at_ms: i64) {
        let same = self.connections > 0 && at_ms.saturating_sub(self.last_ms) <= CONNECTION_MS;
        if !same {
            self.connections += 1;
            self.opener = client;
        }
        self.requests += 1;
        self.unrelated += u64::from(client != self.opener);
        self.last_ms = if same { self.last_ms.max(at_ms) } else { at_ms };
    }
}

fn permille(part: u64, of: u64) -> u64 {
    let permille = (u128::from(part) * 1_000).checked_div(of.into());
    permille.unwrap_or(0) as u64
}
