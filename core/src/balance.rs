//! Which worker serves a connection.
//!
//! The kernel spreads new connections by a hash of their addresses. That is even in number when there are many, random when
//! there are few, and blind to what they carry. A worker serves what it accepts. Once it carries clearly more than its
//! share, it gives live connections to the worker that carries least ([`super::worker::In::Export`]).

/// A worker carries clearly more than its share from this part of the mean load on, in hundredths.
const OVER_HUNDREDTHS: u128 = 125;

/// The load of one worker, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Its connections, including those on their way to it.
    pub connections: u64,
    /// The sum of their rates, as far as they are known, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// When workers give live connections to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Moves {
    /// When one carries more than its share.
    #[default]
    ByLoad,
    /// Never.
    Off,
    /// One after the other, all the time, so that tests find every state in which a connection can be moved.
    Always,
}

/// A connection that a worker should give away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relief {
    /// To which worker.
    pub to: usize,
    /// The most that it may carry, bytes per second: with more, the other worker would carry more than this one.
    pub rate_max_bytes_per_s: u64,
}

/// The worker that gets a connection that worker `me` accepts: itself, or if all its `places` are taken the one that has
/// fewest connections. `None`: no worker has a place.
pub fn place(me: usize, loads: &[WorkerLoad], places: u64) -> Option<usize> {
    let free = |(_, load): &(usize, &WorkerLoad)| load.connections < places;
    let workers = || loads.iter().enumerate().filter(free);
    let mine = workers().find(|(worker, _)| *worker == me);
    let least = || workers().min_by_key(|(_, load)| load.connections);
    mine.or_else(least).map(|(worker, _)| worker)
}

/// What worker `me` should give away: something if it carries more than 1.25 times the mean. A connection that idles carries
/// nothing, and the rate of one that has begun to send is known within a second or two.
pub fn relief(me: usize, loads: &[WorkerLoad], places: u64) -> Option<Relief> {
    let rates = loads.iter().map(|load| u128::from(load.rate_bytes_per_s));
    let all: u128 = rates.sum();
    let mine = loads.get(me)?.rate_bytes_per_s;
    if u128::from(mine) * 100 * loads.len() as u128 <= all * OVER_HUNDREDTHS {
        return None;
    }
    let others = loads.iter().enumerate();
    let free = others.filter(|(worker, load)| *worker != me && load.connections < places);
    let (to, least) = free.min_by_key(|(_, load)| load.rate_bytes_per_s)?;
    Some(Relief {
        to,
        rate_max_bytes_per_s: mine.saturating_sub(least.rate_bytes_per_s) / 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(connections: u64, rate_bytes_per_s: u64) -> WorkerLoad {
        WorkerLoad {
            connections,
            rate_bytes_per_s,
        }
    }

    const PLACES: u64 = 100;

    #[test]
    fn who_accepts_a_connection_serves_it_unless_it_is_full() {
        let loads = [load(12, 1_000), load(11, 0), load(10, 0)];
        assert_eq!(place(0, &loads, PLACES), Some(0));
        assert_eq!(place(0, &loads, 12), Some(2), "it has fewest");
        assert_eq!(place(1, &loads, 10), None);
    }

    #[test]
    fn who_carries_its_share_gives_nothing_away() {
        let keeps = |loads: &[WorkerLoad]| relief(0, loads, PLACES).is_none();
        assert!(keeps(&[load(21, 0), load(10, 0)]), "nothing is known");
        assert!(keeps(&[load(12, 1_200), load(10, 800)]));
        assert!(keeps(&[load(30, 400), load(4, 400)]), "26 idle");
        assert!(keeps(&[load(5, 100)]), "there is nobody else");
        assert!(keeps(&[WorkerLoad::default(); 4]));
        assert!(keeps(&[load(9, 900), load(100, 0)]), "no place");
    }

    #[test]
    fn who_carries_more_gives_what_makes_both_even() {
        let by_rate = [load(1, 9_000), load(50, 1_000), load(20, 2_000)];
        let relief = relief(0, &by_rate, PLACES).expect("9 of a mean of 4");
        assert_eq!((relief.to, relief.rate_max_bytes_per_s), (1, 4_000));
    }

    proptest! {
        #[test]
        fn no_connection_goes_to_whom_would_then_carry_more(
            loads in prop::collection::vec((0u64..1 << 20, 0u64..1 << 50), 1..65),
            me in 0usize..65,
            places in 0u64..1 << 21,
        ) {
            let loads: Vec<_> = loads.into_iter().map(|(all, rate)| load(all, rate)).collect();
            let me = me % loads.len();
            match place(me, &loads, places) {
                Some(to) => prop_assert!(loads[to].connections < places),
                None => prop_assert!(loads.iter().all(|load| load.connections >= places)),
            }
            if let Some(Relief { to, rate_max_bytes_per_s }) = relief(me, &loads, places) {
                prop_assert!(to != me && loads[to].connections < places);
                let (mine, theirs) = (loads[me].rate_bytes_per_s, loads[to].rate_bytes_per_s);
                prop_assert!(theirs + rate_max_bytes_per_s <= mine - rate_max_bytes_per_s);
            }
        }
    }
}
