//! Which worker a new connection goes to.
//!
//! The kernel spreads connections by a hash of their addresses. That is even in number when there are many, random when
//! there are few, and blind to what they carry. A worker that accepts a connection while it carries clearly more than
//! its share hands it to the worker that carries least; so does one that has no place left.

/// A worker carries clearly more than its share from this part of the mean load on, in hundredths. With 110, the
/// largest of 32 loads would stay at 1.12 times the mean, since it falls below the bound only as its connections end.
const OVER_HUNDREDTHS: u128 = 105;

/// The load of one worker, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Its connections, including those on their way to it.
    pub connections: u64,
    /// The number of them whose rate is known.
    pub known: u64,
    /// The sum of these rates, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// The worker that should get a connection that worker `me` accepts: itself, unless it is full or carries more than 1.05
/// times the mean. Each worker has `places` for connections; `None`: all are taken. Connections of unknown rate count as
/// mean ones.
pub fn place(me: usize, loads: &[WorkerLoad], places: u64) -> Option<usize> {
    let known: u128 = loads.iter().map(|load| u128::from(load.known)).sum();
    let rate: u128 = loads
        .iter()
        .map(|load| u128::from(load.rate_bytes_per_s))
        .sum();
    let weight = |load: &WorkerLoad| {
        if rate == 0 {
            return u128::from(load.connections);
        }
        let unknown = u128::from(load.connections.saturating_sub(load.known));
        u128::from(load.rate_bytes_per_s) * known.max(1) + unknown * rate
    };
    let all: u128 = loads.iter().map(weight).sum();
    let over = |load: &WorkerLoad| weight(load) * 100 * loads.len() as u128 > all * OVER_HUNDREDTHS;
    let has_place = |load: &WorkerLoad| load.connections < places;
    if loads
        .get(me)
        .is_some_and(|load| has_place(load) && !over(load))
    {
        return Some(me);
    }
    let least = loads
        .iter()
        .enumerate()
        .filter(|(_, load)| has_place(load))
        .min_by_key(|(_, load)| (weight(load), load.connections));
    least.map(|(worker, _)| worker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(connections: u64, known: u64, rate_bytes_per_s: u64) -> WorkerLoad {
        WorkerLoad {
            connections,
            known,
            rate_bytes_per_s,
        }
    }

    const PLACES: u64 = 100;

    #[test]
    fn who_carries_its_share_keeps_what_it_accepts() {
        let keeps = |loads: &[WorkerLoad]| place(0, loads, PLACES) == Some(0);
        assert!(keeps(&[load(21, 0, 0), load(20, 0, 0)]));
        assert!(keeps(&[load(10, 10, 1_000), load(20, 20, 1_000)]));
        assert!(keeps(&[load(5, 5, 100)]), "there is nobody else");
        assert!(keeps(&[WorkerLoad::default(); 4]));
    }

    #[test]
    fn who_carries_more_gives_it_to_whom_carries_least() {
        let loads = [load(13, 0, 0), load(10, 0, 0), load(9, 0, 0)];
        assert_eq!(place(0, &loads, PLACES), Some(2));
        let by_rate = [load(1, 1, 9_000), load(50, 50, 1_000), load(20, 20, 2_000)];
        let to = place(0, &by_rate, PLACES);
        assert_eq!(to, Some(1), "the rate counts, not the number");
    }

    #[test]
    fn a_connection_without_a_rate_counts_as_a_mean_one() {
        let sent_there = [load(10, 10, 1_200), load(18, 8, 800), load(10, 10, 1_000)];
        assert_eq!(place(1, &sent_there, PLACES), Some(2));
    }

    #[test]
    fn a_full_worker_gives_it_to_one_that_has_a_place() {
        let loads = [load(12, 12, 1), load(12, 12, 10), load(11, 11, 500)];
        assert_eq!(place(0, &loads, 12), Some(2), "the rate is second");
        assert_eq!(place(2, &loads, 12), Some(2), "there is no other place");
        assert_eq!(place(0, &loads, 11), None);
    }

    proptest! {
        #[test]
        fn a_connection_never_goes_to_whom_carries_more(
            loads in prop::collection::vec((0u64..1 << 20, 0u64..1 << 20, 0u64..1 << 50), 1..65),
            me in 0usize..65,
            places in 0u64..1 << 21,
        ) {
            let loads: Vec<_> = loads.into_iter().map(|(all, known, rate)| load(all.max(known), known, rate)).collect();
            let me = me % loads.len();
            let Some(to) = place(me, &loads, places) else {
                prop_assert!(loads.iter().all(|load| load.connections >= places));
                return Ok(());
            };
            prop_assert!(loads[to].connections < places);
            prop_assert_eq!(place(to, &loads, places), Some(to), "{} is over its share too", to);
        }
    }
}
