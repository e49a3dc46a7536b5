//! Responses of the second node to clients behind a path: after the first node has sent much, and small ones with loss.

use super::{Client, Path, Scene, Seen, Told, add_moved, add_times};
use crate::corpus::Set;
use crate::metrics::Values;
use ackpace_lab_base::error::{Doing, Result};

/// What clients ask for, one response after the other.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Window {
    /// The path.
    pub path: Path,
    /// What the first node sends before on the same connection.
    pub before: Option<Set>,
    /// What the second node has: each file is asked for once, on a connection of its own.
    pub of: Set,
    /// Clients.
    pub clients: usize,
}

impl Window {
    pub(super) fn run(&self, scene: &Scene) -> Result<Told> {
        let segment = scene.segment(2, Some(&self.path))?;
        let nodes = scene.nodes(&segment, 2)?;
        let (files, before) = (
            self.of.list(),
            self.before.map(|set| set.list()).unwrap_or_default(),
        );
        if !before.is_empty() {
            scene.warm((&segment, &nodes), 0, &before)?;
        }
        scene.warm((&segment, &nodes), 1, &files)?;
        let here = nodes.sent_at_home();
        let one = |nth: usize| {
            let mine = files.iter().skip(nth).step_by(self.clients);
            let got = mine.map(|(path, len_bytes)| {
                let mut client = Client::connect(None)?;
                for (path, len_bytes) in &before {
                    client.get(path, *len_bytes)?;
                }
                client.get(path, *len_bytes)
            });
            got.collect::<std::io::Result<Vec<Seen>>>()
                .doing(|| "a client".into())
        };
        let seen = segment.clients().run(|| {
            std::thread::scope(|scope| {
                let one = &one;
                let all: Vec<_> = (0..self.clients)
                    .map(|nth| scope.spawn(move || one(nth)))
                    .collect();
                let joined = all.into_iter().map(|it| it.join());
                let joined =
                    joined.map(|it| it.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                Ok(joined.collect::<Result<Vec<_>>>()?.concat())
            })
        })?;
        let mut values = Values::default();
        values.set("responses", seen.len() as f64);
        let all = seen.len() * (1 + before.len());
        add_moved(&mut values, &nodes, here, all);
        add_times(&mut values, &seen);
        Ok((values, serde_json::Value::Null))
    }
}
