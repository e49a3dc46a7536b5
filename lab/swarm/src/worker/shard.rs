//! Shards: which clients belong to which thread.

use crate::setup::Setup;

/// The clients of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its index among all threads.
    pub thread: usize,
    /// The class that it runs alone; `None`: its part of all classes that do not run apart.
    pub class: Option<usize>,
    /// Its part: each `parts`-th client, starting with this one.
    pub part: usize,
    /// Number of threads that share those clients.
    pub parts: usize,
}

impl Shard {
    /// The shards of a swarm on `cores` cores: one for each core, and one more for each class that runs apart.
    pub fn all(setup: &Setup, cores: usize) -> Vec<Shard> {
        let shared = (0..cores).map(|part| (None, part, cores));
        let apart = (0..setup.classes.len()).filter(|&class| setup.classes[class].class.apart);
        let apart = apart.map(|class| (Some(class), 0, 1));
        let shards = shared.chain(apart).enumerate();
        shards
            .map(|(thread, (class, part, parts))| Shard {
                thread,
                class,
                part,
                parts,
            })
            .collect()
    }

    /// True if it has clients of the class.
    pub fn has(&self, setup: &Setup, class: usize) -> bool {
        match self.class {
            Some(own) => own == class,
            None => !setup.classes[class].class.apart,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Class, Objects, Workload};

    #[test]
    fn each_client_is_in_the_shard_of_one_thread() {
        let class = |name, apart| Class {
            apart,
            ..Class::new(name, 3, Objects::one("/a"))
        };
        let workload = Workload {
            seed: 1,
            classes: vec![class("a", false), class("b", true), class("c", false)],
            ..Workload::default()
        };
        let setup = Setup::new(&workload, "127.0.0.1:80".parse().unwrap()).unwrap();
        let shards = Shard::all(&setup, 2);
        let who = |class| {
            let has = shards.iter().filter(|shard| shard.has(&setup, class));
            has.map(|shard| (shard.thread, shard.part, shard.parts))
                .collect::<Vec<_>>()
        };
        assert_eq!(who(0), [(0, 0, 2), (1, 1, 2)]);
        assert_eq!(who(1), [(2, 0, 1)]);
        assert_eq!(who(2), who(0));
    }
}
