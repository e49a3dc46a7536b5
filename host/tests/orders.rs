//! Looks at sockets, and carries out orders for those that are as the order says. Needs root, and a kernel and a build with BPF.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use ackpace_host::kernel::{Order, has_bpf};
use ackpace_host::matching::Matching;
use ackpace_host::passes::Passes;
use ackpace_host::snapshot::{Outcome, View};
use ackpace_share::outside::Setting;

/// A listener in a network namespace of this thread's own, and passes for the sockets of its port; `None`: said why
/// not.
fn opened(test: &str) -> Option<(TcpListener, Passes)> {
    let skipped = |why: &str| {
        println!("skipped: {test}: {why}");
        None
    };
    if !has_bpf() {
        return skipped("built without BPF");
    }
    // SAFETY: no pointers; only this thread moves.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return skipped("a network namespace needs root");
    }
    let up = std::process::Command::new("ip")
        .args(["link", "set", "lo", "up"])
        .status();
    if !up.is_ok_and(|status| status.success()) {
        return skipped("no ip(8)");
    }
    // Which control it is does not matter, but that it lets itself be clamped.
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").expect("it is always there");
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback is up");
    let matching = Matching {
        ports: vec![listener.local_addr().expect("it is bound").port()],
        ..Matching::default()
    };
    let binary = Path::new(env!("CARGO_BIN_EXE_ackpace-host"));
    let mut passes = Passes::start(binary).expect("the binary of this package");
    match passes.open(None, &matching) {
        Ok(()) => Some((listener, passes)),
        Err(why) => {
            println!("skipped: {test}: {why}");
            None
        }
    }
}

/// A new connection, and its end at the listener.
fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let address = listener.local_addr().expect("it is bound");
    let client = TcpStream::connect(address).expect("it listens");
    (client, listener.accept().expect("just now").0)
}

fn lowat(socket: &TcpStream) -> u32 {
    let (mut value, mut len) = (0u32, size_of::<u32>() as libc::socklen_t);
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    // SAFETY: the kernel writes at most `len` bytes, which there are.
    let got = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len)
    };
    assert_eq!(got, 0);
    value
}

/// Cookie and setting of each socket, as one look tells.
fn looked(passes: &mut Passes) -> Vec<(u64, Setting)> {
    let (mut view, mut seen) = (View::default(), Vec::new());
    let piece = |view: &View| {
        seen.extend(view.snapshots.iter().map(|it| (it.cookie, it.now)));
        seen.extend(view.quiet.iter().map(|it| (it.cookie, it.now)));
    };
    passes.look(0, &mut view, piece).expect("it was opened");
    seen
}

/// What became of these orders, in their sequence.
fn outcomes(passes: &mut Passes, orders: &[Order]) -> Vec<Option<Outcome>> {
    let mut answers = Vec::new();
    let carried_out = passes.carry_out(orders, |answer| answers.push(answer));
    carried_out.expect("it was opened");
    let of = |order: &Order| {
        let answer = answers.iter().find(|answer| answer.cookie == order.cookie);
        answer.map(|answer| answer.outcome)
    };
    orders.iter().map(of).collect()
}

#[test]
fn an_order_is_carried_out_if_its_socket_is_as_it_says() {
    let test = "an_order_is_carried_out_if_its_socket_is_as_it_says";
    let Some((listener, mut passes)) = opened(test) else {
        return;
    };
    let pairs: Vec<(TcpStream, TcpStream)> = (0..3).map(|_| pair(&listener)).collect();
    let before = looked(&mut passes);
    assert_eq!(before.len(), 3, "{before:?}");
    let to = Setting {
        clamp_segments: 12,
        lowat_bytes: 34_567,
    };
    let order = |(cookie, from): (u64, Setting)| Order {
        cookie,
        from,
        to: Some(to),
    };
    // The first is as the order says, the second is not, the third has none.
    let mut second = order(before[1]);
    second.from.lowat_bytes = 5;
    let became = outcomes(&mut passes, &[order(before[0]), second]);
    assert_eq!(became, [Some(Outcome::Done), Some(Outcome::Changed)]);
    let mut after = looked(&mut passes);
    after.sort_by_key(|(cookie, _)| before.iter().position(|(it, _)| it == cookie));
    assert_eq!(after, [(before[0].0, to), before[1], before[2]]);
    let set = pairs.iter().filter(|(_, sender)| lowat(sender) == 34_567);
    assert_eq!(set.count(), 1);
    assert_eq!(passes.changed().ok(), Some(1));

    // It is carried out once; and what it had comes back in the same way.
    let back = Order {
        cookie: before[0].0,
        from: to,
        to: None,
    };
    assert_eq!(outcomes(&mut passes, &[back]), [Some(Outcome::Done)]);
    assert_eq!(passes.changed().ok(), Some(0));
    assert!(pairs.iter().all(|(_, sender)| lowat(sender) == 0));
}

/// A look reads ahead by the walk of the last one, which may have been another.
#[test]
fn each_socket_is_told_once_and_obeys_whoever_comes_and_goes() {
    let test = "each_socket_is_told_once_and_obeys_whoever_comes_and_goes";
    let Some((listener, mut passes)) = opened(test) else {
        return;
    };
    let mut pairs: Vec<(TcpStream, TcpStream)> = (0..150).map(|_| pair(&listener)).collect();
    for round in 0..6u32 {
        let before = looked(&mut passes);
        let mut cookies: Vec<u64> = before.iter().map(|(cookie, _)| *cookie).collect();
        cookies.sort_unstable();
        cookies.dedup();
        assert_eq!((before.len(), cookies.len()), (pairs.len(), pairs.len()));
        let to = Setting {
            clamp_segments: 10 + round,
            lowat_bytes: 10_000 + round,
        };
        let orders: Vec<Order> = before
            .iter()
            .map(|(cookie, from)| Order {
                cookie: *cookie,
                from: *from,
                to: Some(to),
            })
            .collect();
        let became = outcomes(&mut passes, &orders);
        assert!(became.iter().all(|became| *became == Some(Outcome::Done)));
        // First, a run of neighbours as long as the program may lose sight by.
        let gone = if round == 0 { 0..100 } else { 0..7 };
        let close = pairs.drain(gone);
        close.for_each(|(client, sender)| {
            // Without TIME-WAIT, and at once.
            let reset = rustix::net::sockopt::set_socket_linger(&sender, Some(Duration::ZERO));
            reset.expect("it is a socket");
            drop((sender, client));
        });
        pairs.extend((0..20).map(|_| pair(&listener)));
        let after = looked(&mut passes);
        assert_eq!(after.len(), pairs.len());
        let set = after.iter().filter(|(_, setting)| *setting == to).count();
        assert_eq!(set, pairs.len() - 20, "all but those who came");
    }
}
