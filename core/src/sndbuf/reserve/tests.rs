use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const SHARE_BYTES: u64 = 24_000;

fn conn(index: usize) -> ConnId {
    ConnId {
        index: index as u32,
        generation: 0,
    }
}

fn at(ms: u64) -> Instant {
    Instant { us: ms * 1_000 }
}

/// Sockets, and what of each is in the kernel.
struct World {
    reserve: Reserve,
    sockets: Vec<Socket>,
    now: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Socket {
    stake: Stake,
    share_bytes: u64,
    held_bytes: u64,
    given_bytes: u64,
    rtt_us: u64,
}

impl World {
    fn new(shares: &[u64]) -> World {
        let socket = |&share_bytes: &u64| Socket {
            stake: Stake::default(),
            share_bytes,
            held_bytes: 0,
            given_bytes: 0,
            rtt_us: 50,
        };
        World {
            reserve: Reserve::default(),
            sockets: shares.iter().map(socket).collect(),
            now: at(0),
        }
    }

    /// It is offered so much, by a client with this window. What comes of it.
    fn fill(&mut self, index: usize, wanted_bytes: u64, window_bytes: u64) -> Loan {
        let socket = &mut self.sockets[index];
        let look = Look {
            share_bytes: socket.share_bytes,
            held_bytes: socket.held_bytes,
            wanted_bytes,
            takes_part: is_short(socket.rtt_us),
        };
        let open = Open {
            window_bytes,
            cwnd_bytes: u64::MAX,
            in_flight_bytes: 0,
        };
        let whose = (conn(index), look);
        let loan = match (socket.stake).borrows(whose, &mut self.reserve, self.now) {
            Borrows::No => Loan::None,
            Borrows::Waits => Loan::Waits,
            Borrows::IfOpen => (socket.stake).lend(whose, open, &mut self.reserve, self.now),
        };
        let beyond_bytes = match loan {
            Loan::None => 0,
            Loan::Lent(bytes) => bytes,
            Loan::Waits => return loan,
        };
        let room_bytes = socket.stake.room_bytes(look) + beyond_bytes;
        let taken_bytes = wanted_bytes.min(room_bytes);
        socket.held_bytes += taken_bytes;
        socket.given_bytes += taken_bytes;
        (socket.stake).settle(socket.held_bytes, socket.share_bytes, &mut self.reserve);
        loan
    }

    fn check(&self) {
        let sum = |of: fn(&Socket) -> u64| -> u64 { self.sockets.iter().map(of).sum() };
        let pledged_bytes = sum(|socket| socket.stake.pledged_bytes);
        let lent_bytes = sum(|socket| socket.stake.lent_bytes);
        assert_eq!(self.reserve.pledged_bytes(), pledged_bytes);
        assert_eq!(self.reserve.lent_bytes(), lent_bytes);
        // What they hold, or may take at any time.
        let most_bytes = sum(|socket| {
            let standing_bytes = socket.stake.standing_bytes(socket.share_bytes);
            socket
                .held_bytes
                .max(standing_bytes + socket.stake.lent_bytes)
        });
        let all_bytes = sum(|socket| socket.share_bytes) + self.reserve.short_bytes();
        assert!(most_bytes <= all_bytes, "{most_bytes} of {all_bytes}");
    }
}

proptest! {
    #[test]
    fn all_together_hold_no_more_than_their_shares(
        shares in prop::collection::vec(SHARE_BYTES_MIN..80_000, 2..24),
        eager: bool,
        steps in prop::collection::vec((0..8u8, any::<u16>(), 0..600_000u64), 1..400),
    ) {
        let mut world = World::new(&shares);
        if eager {
            world.reserve = Reserve::eager();
        }
        for (what, index, bytes) in steps {
            let index = usize::from(index) % shares.len();
            match what {
                0..3 => {
                    world.fill(index, bytes, 300_000);
                }
                3 => {
                    let socket = &mut world.sockets[index];
                    socket.held_bytes -= socket.held_bytes.min(bytes);
                }
                4 => world.sockets.iter_mut().for_each(|socket| socket.held_bytes = 0),
                5 => {
                    let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
                    socket.share_bytes = (socket.held_bytes + SHARE_BYTES_MIN).max(bytes / 8);
                    socket.stake.share(socket.share_bytes, socket.held_bytes, reserve);
                    if bytes % 5 == 0 {
                        socket.rtt_us = 20_000;
                    }
                }
                6 => {
                    let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
                    socket.stake.end(reserve);
                    (socket.held_bytes, socket.rtt_us) = (0, 50);
                }
                _ => {
                    world.now = world.now.plus_us(bytes);
                    while let Some(conn) = world.reserve.next(world.now) {
                        world.sockets[conn.index as usize].stake.takes_turn();
                    }
                }
            }
            world.check();
        }
    }
}

/// Clients that take all at once, and are filled whenever they have taken it, `turns` times each.
fn filled(world: &mut World, turns: usize) {
    for _ in 0..turns {
        for index in 0..world.sockets.len() {
            world.sockets[index].held_bytes = 0;
            world.fill(index, 300_000, 200_000);
            world.check();
        }
        for _ in 0..world.sockets.len() {
            let Some(conn) = world.reserve.next(world.now) else {
                break;
            };
            let index = conn.index as usize;
            if world.sockets[index].stake.takes_turn() {
                world.fill(index, 300_000, 200_000);
                world.check();
            }
        }
        world.now = world.now.plus_us(1_000);
    }
}

#[test]
fn sockets_that_run_dry_have_many_times_their_shares_in_turn() {
    let mut world = World::new(&[SHARE_BYTES; 160]);
    filled(&mut world, 300);
    let given = || world.sockets.iter().map(|socket| socket.given_bytes);
    let (least, most) = (given().min().unwrap(), given().max().unwrap());
    assert!(
        least * 10 >= most * 9,
        "{least} to {most}: some wait for longer than others"
    );
    // Of 160 pledges of 12 KB an eighth is kept, and the last 512 KB are not called for: five times 200 KB a turn.
    assert_eq!(world.reserve.loan_bytes_max(), LOAN_BYTES_MAX);
    assert!(given().sum::<u64>() > 290 * 5 * 200_000, "{least}");
}

#[test]
fn few_or_unequal_ones_keep_their_shares() {
    for shares in [&[SHARE_BYTES; 20][..], &[60_000, 6_000, 6_000, 6_000]] {
        let mut world = World::new(shares);
        filled(&mut world, 40);
        assert_eq!(world.sockets[0].stake.pledged_bytes, 0, "{shares:?}");
    }
}

#[test]
fn who_waits_in_vain_goes_on_with_its_share() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 2);
    let mut waits: Vec<usize> = Vec::new();
    for index in 0..40 {
        let socket = &mut world.sockets[index];
        if socket.stake.lent_bytes == 0 {
            socket.held_bytes = 0;
            if world.fill(index, 300_000, 200_000) == Loan::Waits {
                waits.push(index);
            }
        }
    }
    let waiting = *waits.first().expect("all others wait");
    world.now = world.now.plus_us(LOAN_WAIT_US / 2);
    assert_eq!(world.fill(waiting, 300_000, 200_000), Loan::Waits);
    world.now = world.now.plus_us(LOAN_WAIT_US / 2);
    world.reserve.lent_at = world.now; // others are lent something
    assert_eq!(world.fill(waiting, 300_000, 200_000), Loan::Waits);
    world.now = world.now.plus_us(LOAN_STILL_US);
    for _ in 0..PLEDGE_LOOKS {
        world.sockets[waiting].held_bytes = 0;
        assert_eq!(world.fill(waiting, 300_000, 200_000), Loan::None);
        assert!(world.sockets[waiting].held_bytes >= SHARE_BYTES / 2);
    }
    assert!(
        world.reserve.rests(world.now),
        "borrowers give nothing back"
    );
    world.sockets[waits[1]].held_bytes = 0;
    assert_eq!(world.fill(waits[1], 300_000, 200_000), Loan::None);
}

#[test]
fn nobody_starves_where_one_loan_comes_back_in_a_turn() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 40);
    let (mut filled_bytes, mut timers) = ([0; 40], [world.now; 40]);
    for turn in 0..5_000 {
        let is_lent = |index: &usize| world.sockets[*index].stake.lent_bytes() > 0;
        let back = (0..40).map(|nth| (turn + nth) % 40).find(is_lent);
        if let Some(index) = back {
            let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
            socket.held_bytes = 0;
            socket.stake.settle(0, SHARE_BYTES, reserve);
        }
        let waits = |index: &usize| world.sockets[*index].stake.waits();
        let is_late = |index: &usize| waits(index) && timers[*index] <= world.now;
        let late: Vec<usize> = (0..40).filter(is_late).collect();
        // As a worker does: it calls as many as there are loans, and then serves all.
        let mut called = Vec::new();
        let mut turns = world.reserve.loan_turns(world.now);
        let sockets = &mut world.sockets;
        let mut waits = |conn: ConnId| sockets[conn.index as usize].stake.takes_turn();
        while let Some(conn) = turns.next(&mut world.reserve, world.now, &mut waits) {
            called.push(conn.index as usize);
        }
        for index in called.into_iter().chain(back).chain(late) {
            let before_bytes = world.sockets[index].held_bytes;
            world.fill(index, 300_000, 200_000);
            world.check();
            filled_bytes[index] += world.sockets[index].held_bytes - before_bytes;
            timers[index] = world.now.plus_us(LOAN_WAIT_US); // each attempt sets it anew
        }
        world.now = world.now.plus_us(1_000);
    }
    let starved = filled_bytes.iter().filter(|bytes| **bytes == 0).count();
    assert_eq!(starved, 0, "{filled_bytes:?}");
}

#[test]
fn while_a_worker_sleeps_beside_those_who_wait_nobody_lends() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 40);
    assert!(world.reserve.is_awaited());
    for _ in 0..5 {
        world.now = world.now.plus_us(LOAN_SLEPT_EACH_US + 1);
        world.reserve.slept(LOAN_SLEPT_US_MAX - 1, world.now);
    }
    assert!(!world.reserve.rests(world.now));
    world.reserve.slept(LOAN_SLEPT_US_MAX, world.now);
    for round in 0..2 {
        while let Some(conn) = world.reserve.next(world.now) {
            world.sockets[conn.index as usize].stake.takes_turn();
        }
        for index in 0..40 {
            world.sockets[index].held_bytes = 0;
            assert_eq!(world.fill(index, 300_000, 200_000), Loan::None);
        }
        for _ in 0..PLEDGE_LOOKS * round {
            (0..40).for_each(|index| {
                world.sockets[index].held_bytes = 0;
                world.fill(index, 300_000, 200_000);
            });
        }
    }
    assert_eq!(
        world.reserve.pledged_bytes(),
        0,
        "they have their shares back"
    );
    world.now = world.now.plus_us(LOAN_REST_US);
    filled(&mut world, 2);
    assert!(world.reserve.lent_bytes() > 0, "they try again");
}

/// Sockets that have given back what they were lent, while many wait; and how many loans are free.
fn all_given_back() -> (World, u64) {
    let mut world = World::new(&[SHARE_BYTES; 160]);
    filled(&mut world, 40);
    for socket in &mut world.sockets {
        socket.held_bytes = 0;
        (socket.stake).settle(0, socket.share_bytes, &mut world.reserve);
    }
    let loans = world.reserve.free_bytes() / world.reserve.loan_bytes_max();
    (world, loans)
}

/// How many are called to borrow now.
fn called(world: &mut World) -> u64 {
    let (sockets, reserve) = (&mut world.sockets, &mut world.reserve);
    let mut waits = |conn: ConnId| sockets[conn.index as usize].stake.takes_turn();
    let mut turns = reserve.loan_turns(world.now);
    let next = || turns.next(reserve, world.now, &mut waits);
    core::iter::from_fn(next).count() as u64
}

#[test]
fn who_was_called_and_has_not_borrowed_yet_keeps_its_loan() {
    let (mut world, loans) = all_given_back();
    assert_eq!((called(&mut world), called(&mut world)), (loans, 0));
    // They wait for a disk, others wait for them, and nothing happens until the worker has slept.
    let us = world.reserve.sleeps_us();
    world.now = world.now.plus_us(us);
    world.reserve.slept(us, world.now);
    assert!(!world.reserve.rests(world.now), "memory does not lack");
    assert_eq!(called(&mut world), loans);
}

#[test]
fn who_was_called_and_does_without_a_loan_keeps_none_for_itself() {
    let (mut world, loans) = all_given_back();
    for turn in 0..4 * loans {
        let mut turns = world.reserve.loan_turns(world.now);
        let sockets = &mut world.sockets;
        let mut waits = |conn: ConnId| sockets[conn.index as usize].stake.takes_turn();
        let called = turns.next(&mut world.reserve, world.now, &mut waits);
        let index = called.expect("nobody is lent anything").index as usize;
        match turn % 2 {
            0 => assert_eq!(world.fill(index, 1_000, 200_000), Loan::None),
            _ => world.sockets[index].stake.end(&mut world.reserve),
        }
        world.now = world.now.plus_us(LOAN_CALLED_US / 4);
    }
}

#[test]
fn where_nothing_is_pledged_nobody_is_left_waiting() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 40);
    for socket in &mut world.sockets {
        socket.stake.end(&mut world.reserve);
    }
    for _ in 0..4 {
        let mut turns = world.reserve.loan_turns(world.now);
        turns.next(&mut world.reserve, world.now, |_| false);
    }
    assert!(!world.reserve.is_awaited());
}

#[test]
fn what_a_share_serves_waits_for_nobody() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 2);
    for index in 0..40 {
        if world.sockets[index].stake.lent_bytes == 0 {
            world.sockets[index].held_bytes = 0;
            assert_eq!(world.fill(index, 5_000, 200_000), Loan::None);
            assert_eq!(world.sockets[index].held_bytes, 5_000);
            world.sockets[index].held_bytes = 0;
            let twice = world.fill(index, SHARE_BYTES, 200_000);
            assert_eq!(twice, Loan::None, "what two fillings can do");
        }
    }
}

#[test]
fn a_client_whose_window_is_closed_borrows_nothing() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 40);
    world
        .sockets
        .iter_mut()
        .for_each(|socket| socket.held_bytes = 0);
    let loans: Vec<Loan> = (0..40)
        .map(|index| world.fill(index, 300_000, 5_000))
        .collect();
    assert!(
        !loans.iter().any(|loan| matches!(loan, Loan::Lent(_))),
        "{loans:?}"
    );
}

#[test]
fn who_does_not_run_dry_takes_its_pledge_back() {
    let mut world = World::new(&[SHARE_BYTES; 40]);
    filled(&mut world, 40);
    assert!(world.reserve.pledged_bytes() > 0);
    for _ in 0..=PLEDGE_LOOKS {
        for index in 0..40 {
            world.sockets[index].held_bytes = 9_000;
            world.fill(index, 300_000, 200_000);
        }
    }
    assert_eq!(
        world.reserve,
        Reserve {
            waiting: world.reserve.waiting.clone(),
            lent_at: world.reserve.lent_at,
            ..Reserve::default()
        }
    );
}
