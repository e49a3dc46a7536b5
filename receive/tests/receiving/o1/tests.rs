use super::*;
use ackpace_receive::turn::TURN_OWED_US_MAX;
use proptest::prelude::*;

const MS: u64 = NS_PER_TICK;

/// Runs processes that never sleep for some ticks; returns the ticks of each.
fn run(scheduler: &mut Scheduler, from_ms: u64, ticks: u64) -> Vec<u64> {
    let mut ran = vec![0; scheduler.processes.len()];
    for ms in from_ms + 1..=from_ms + ticks {
        if let Some(task) = scheduler.running() {
            ran[task] += 1;
        }
        if scheduler.tick(None, ms * MS) {
            scheduler.schedule(false, ms * MS);
        }
    }
    ran
}

fn awake(rule: Rule, credits_ms: &[u64]) -> Scheduler {
    let mut scheduler = Scheduler::new(rule);
    for credit_ms in credits_ms {
        let task = scheduler.add(0, credit_ms * MS, SLICE_TICKS);
        scheduler.wake(task, Wake::Disk, 0);
    }
    scheduler.schedule(false, 0);
    scheduler
}

#[test]
fn slices_are_those_of_table_1() {
    let table = [(19, 5), (0, 100), (-10, 600), (-15, 700), (-20, 800)];
    for (nice, ms) in table {
        assert_eq!(slice_ticks(nice), ms, "nice {nice}");
    }
}

#[test]
fn equals_take_turns_of_a_slice() {
    let mut scheduler = awake(Rule::Usual, &[0, 0, 0]);
    assert_eq!(run(&mut scheduler, 0, 150), [100, 50, 0]);
    assert_eq!(run(&mut scheduler, 150, 150), [0, 50, 100]);
    assert_eq!(run(&mut scheduler, 300, 3_000), [1_000, 1_000, 1_000]);
}

/// Credit of 800 ms is used up at a seventh and an eighth of the time that passes, so one that has it runs alone for
/// most of a second, however many others wait. This is what Table 7's excess is made of.
#[test]
fn credit_is_a_monopoly_for_most_of_a_second() {
    for others in [1, 3, 4, 9] {
        let mut credits_ms = vec![0; others];
        credits_ms.push(800);
        let mut scheduler = awake(Rule::Usual, &credits_ms);
        let mut alone_ms = 0;
        while run(&mut scheduler, alone_ms, 1)[others] == 1 {
            alone_ms += 1;
        }
        assert!((800..=1_000).contains(&alone_ms), "{others}: {alone_ms}");
    }
}

#[test]
fn who_slept_long_is_interactive_and_preempts() {
    let mut scheduler = awake(Rule::Usual, &[0]);
    let sleeper = scheduler.add(0, 0, SLICE_TICKS);
    assert!(scheduler.wake(sleeper, Wake::Interrupt, 900 * MS));
    assert!(scheduler.processes[sleeper].is_interactive());
    assert_eq!(scheduler.schedule(false, 900 * MS), Some(sleeper));
    assert_eq!(scheduler.schedule(true, 901 * MS), Some(0));
    let disk = scheduler.add(0, 0, SLICE_TICKS);
    scheduler.wake(disk, Wake::Disk, 5_000 * MS);
    let bonus = scheduler.processes[disk].bonus();
    assert_eq!(bonus, 7, "a disk makes nobody more than just interactive");
}

#[test]
fn interactive_ones_leave_the_active_array_once_the_expired_starve() {
    let mut scheduler = awake(Rule::Usual, &[1_000, 1_000, 0]);
    let first = run(&mut scheduler, 0, 1_000);
    assert_eq!(first[2], 0, "{first:?}");
    scheduler.expired_since_ns = Some(0);
    let later = run(&mut scheduler, 1_000, 3_500);
    assert!(
        later[2] > 0,
        "after a second for each that is awake: {later:?}"
    );
}

#[test]
fn an_extra_turn_by_listing_1_is_part_of_the_next_slice() {
    let mut scheduler = awake(Rule::Listing1, &[0, 0]);
    run(&mut scheduler, 0, 199);
    assert_eq!(scheduler.running(), Some(1));
    let waits = Receiving {
        packets_wait: true,
        owns_lock: true,
    };
    // The last of the active array: it goes on at once.
    assert!(scheduler.tick(Some(waits), 200 * MS));
    assert_eq!(scheduler.schedule(false, 200 * MS), Some(1));
    scheduler.tick(Some(waits), 201 * MS);
    assert!(scheduler.call_ends(201 * MS));
    assert_eq!(scheduler.schedule(false, 201 * MS), Some(0));
    assert_eq!(scheduler.processes[1].slice_ticks, 99);
    assert!(!scheduler.call_ends(201 * MS), "the other has no flag");
    assert_eq!(run(&mut scheduler, 201, 199), [100, 99]);
}

#[test]
fn a_charged_turn_goes_on_in_front_and_is_paid() {
    let rule = Rule::Charged(When::LockOwned);
    let mut scheduler = awake(rule, &[0, 0]);
    run(&mut scheduler, 0, 99);
    let held = Receiving {
        packets_wait: false,
        owns_lock: true,
    };
    scheduler.tick(Some(held), 100 * MS);
    assert_eq!(
        scheduler.schedule(false, 100 * MS),
        Some(0),
        "before the other"
    );
    scheduler.tick(Some(held), 101 * MS);
    scheduler.tick(Some(held), 102 * MS);
    assert!(scheduler.call_ends(102 * MS + MS / 2));
    scheduler.schedule(false, 102 * MS + MS / 2);
    let process = scheduler.processes[0];
    assert_eq!((process.slice_ticks, process.account.owed_us()), (98, 500));
    // Who does not return in time is expired, and charged.
    let mut scheduler = awake(rule, &[0, 0]);
    for ms in 1..=110 {
        if scheduler.tick(Some(held), ms * MS) {
            scheduler.schedule(false, ms * MS);
        }
    }
    assert_eq!(scheduler.running(), Some(1));
    assert_eq!(scheduler.processes[0].slice_ticks, 90);
}

#[test]
fn a_starved_expired_array_ends_the_exception() {
    let mut scheduler = awake(Rule::Listing1, &[0, 0]);
    run(&mut scheduler, 0, 99);
    scheduler.expired_since_ns = Some(0);
    let waits = Receiving {
        packets_wait: true,
        owns_lock: true,
    };
    scheduler.tick(Some(waits), 2_002 * MS);
    assert_eq!(scheduler.processes[0].array, Some(1 - scheduler.active));
}

/// Process 0 receives: its lock is owned at every tick, packets wait if `waits`, and its call returns after each `call`
/// ticks that it ran (0: never). Returns the ticks of each.
fn run_receiver(scheduler: &mut Scheduler, ticks: u64, waits: bool, call: u64) -> Vec<u64> {
    let mut ran = vec![0; scheduler.processes.len()];
    let receiving = Receiving {
        packets_wait: waits,
        owns_lock: true,
    };
    for ms in 1..=ticks {
        let running = scheduler.running().expect("nobody sleeps");
        ran[running] += 1;
        let receives = running == 0;
        if scheduler.tick(receives.then_some(receiving), ms * MS) {
            scheduler.schedule(false, ms * MS);
        }
        let returns = scheduler.running() == Some(0) && call > 0 && ran[0] % call == 0;
        if returns && scheduler.call_ends(ms * MS) {
            scheduler.schedule(false, ms * MS);
        }
    }
    ran
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn everybody_runs_and_no_tick_is_lost(
        credits_ms in prop::collection::vec(0u64..=1_000, 1..8), waits: bool, call in 0u64..300,
    ) {
        for rule in [Rule::Usual, Rule::Listing1, Rule::Charged(When::LockOwned)] {
            let mut scheduler = awake(rule, &credits_ms);
            let ran = run_receiver(&mut scheduler, 40_000, waits, call);
            prop_assert_eq!(ran.iter().sum::<u64>(), 40_000);
            prop_assert!(ran.iter().all(|&ticks| ticks > 0), "{rule:?}: {ran:?}");
        }
    }

    /// However long its calls are, the fair form gives the receiver no more than it has without, but for what it may owe
    /// and the slice that it is in.
    #[test]
    fn a_charged_turn_gains_no_share(others in 1usize..8, waits: bool, call in 0u64..300) {
        let credits_ms = vec![0; others + 1];
        let mut scheduler = awake(Rule::Charged(When::LockOwned), &credits_ms);
        let ran = run_receiver(&mut scheduler, 40_000, waits, call);
        let fair = 40_000 / (others as u64 + 1);
        let most = fair + TURN_OWED_US_MAX / 1_000 + SLICE_TICKS;
        prop_assert!(ran[0] <= most, "{ran:?}");
        prop_assert!(ran[0] + 2 * SLICE_TICKS + fair / 10 >= fair, "nor much less: {ran:?}");
    }
}
