//! What is asked for: files, and requests on persistent connections.

use std::collections::BTreeMap;

/// Requests of one client that lie no further apart are on one connection (DTCP 4.3).
const PERSISTENT_S: u64 = 15;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which file.
    pub file: u32,
    /// On which connection.
    pub connection: u32,
    /// It opens the connection.
    pub is_first: bool,
    /// The connection is closed afterwards.
    pub is_last: bool,
}

/// Files and requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// The length of each file, bytes.
    pub lengths: Vec<u32>,
    /// In the order in which they come.
    pub requests: Vec<Request>,
    /// Connections have numbers below this one.
    pub connections: usize,
}

impl Workload {
    /// Requests by file and connection.
    pub fn new(lengths: Vec<u32>, asked: &[(u32, u32)]) -> Workload {
        let mut last = BTreeMap::new();
        let mut requests: Vec<Request> = Vec::with_capacity(asked.len());
        for (nth, (file, connection)) in asked.iter().enumerate() {
            requests.push(Request {
                file: *file,
                connection: *connection,
                is_first: last.insert(*connection, nth).is_none(),
                is_last: false,
            });
        }
        last.values().for_each(|nth| requests[*nth].is_last = true);
        Workload {
            lengths,
            requests,
            connections: last
                .last_key_value()
                .map_or(0, |(last, _)| *last as usize + 1),
        }
    }

    /// The form of `sim/data`: comments, a line with the lengths of the files, then a line for each request with the
    /// seconds since the one before, the client and the file. `None` if it has another form.
    pub fn from_trace(text: &str) -> Option<Workload> {
        let number = |word: &str| u32::from_str_radix(word, 36).ok();
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let lengths: Option<Vec<u32>> = lines.next()?.split(' ').map(number).collect();
        let lengths = lengths?;
        let (mut now_s, mut connections) = (0u64, 0u32);
        let mut clients: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
        let mut asked = Vec::new();
        for line in lines {
            let mut words = line.split(' ').map(number);
            let [Some(gap_s), Some(client), Some(file)] = [(); 3].map(|()| words.next().flatten())
            else {
                return None;
            };
            now_s += u64::from(gap_s);
            let before = clients.get(&client);
            let open = before.filter(|(at_s, _)| now_s - at_s <= PERSISTENT_S);
            let connection = open.map_or(connections, |(_, connection)| *connection);
            connections = connections.max(connection + 1);
            clients.insert(client, (now_s, connection));
            lengths.get(file as usize)?;
            asked.push((file, connection));
        }
        Some(Workload::new(lengths, &asked))
    }

    /// The same requests by HTTP/1.0: a connection for each.
    pub fn without_persistence(&self) -> Workload {
        let files = self.requests.iter().map(|request| request.file);
        let asked: Vec<(u32, u32)> = files.zip(0..).collect();
        Workload::new(self.lengths.clone(), &asked)
    }

    /// Mean length of what is asked for, bytes.
    pub fn mean_bytes(&self) -> f64 {
        let lengths = self
            .requests
            .iter()
            .map(|request| self.lengths[request.file as usize]);
        lengths.map(f64::from).sum::<f64>() / self.requests.len() as f64
    }

    /// Lengths of the files that are asked for at all, bytes together.
    pub fn asked_bytes(&self) -> u64 {
        let mut asked = vec![false; self.lengths.len()];
        self.requests
            .iter()
            .for_each(|request| asked[request.file as usize] = true);
        let files = self.lengths.iter().zip(asked).filter(|(_, asked)| *asked);
        files.map(|(length, _)| u64::from(*length)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_pauses_for_more_than_15_seconds_opens_another_connection() {
        let trace = "# a comment\n2s 1\n0 0 0\nf 0 1\n1 1 0\ng 0 0\n";
        let workload = Workload::from_trace(trace).expect("a trace");
        assert_eq!(workload.lengths, [100, 1]);
        let of = |nth: usize| {
            let request: Request = workload.requests[nth];
            (request.connection, request.is_first, request.is_last)
        };
        assert_eq!([of(0), of(1)], [(0, true, false), (0, false, true)]);
        assert_eq!([of(2), of(3)], [(1, true, true), (2, true, true)]);
        assert_eq!(workload.without_persistence().connections, 4);
        assert_eq!(Workload::from_trace("1\n0 0 9\n"), None, "no such file");
    }
}
