use super::*;

const GOOD: &str = r#"
    seed = 7
    ecn = "on"
    beside = "10.3.0.1"
    [link.isp]
    rate_mbit_per_s = 100.0
    queue_ms = 50.0
    [[path]]
    name = "home"
    clients = "10.1.0.1-10.1.0.20"
    per_client = true
    rate_spread = 0.4
    down = { rate_mbit_per_s = 20.0, delay_ms = 12.5, loss = 0.001 }
    up = { delay_ms = 12.5, bursts = { to_bad = 0.01, to_good = 0.5 } }
    down_through = ["isp"]
    [[path]]
    name = "office"
    clients = "10.2.0.0/16"
    server_port = 8080
"#;

fn wrong(change: impl Fn(&str) -> String) -> String {
    let read = |text: &str| Plan::of(&Topology::parse(text)?).map(|_| ());
    read(&change(GOOD)).expect_err("wrong, but taken")
}

#[test]
fn a_topology_becomes_links_and_paths() {
    let plan = Plan::of(&Topology::parse(GOOD).unwrap()).unwrap();
    assert_eq!((plan.links.len(), plan.paths.len()), (1 + 2 * 21, 21));
    let home = &plan.paths[2];
    assert_eq!(home.name, "home/10.1.0.3");
    assert_eq!(home.links(Direction::Down).len(), 2);
    assert!(home.takes("10.1.0.3".parse().unwrap(), Some(80)));
    assert!(!home.takes("10.1.0.4".parse().unwrap(), Some(80)));
    let office = &plan.paths[20];
    assert!(office.takes("10.2.255.255".parse().unwrap(), Some(8080)));
    assert!(!office.takes("10.2.0.1".parse().unwrap(), Some(80)));
    assert!(!office.takes("10.2.0.1".parse().unwrap(), None));
    assert!(
        plan.beside
            .is_some_and(|clients| clients.contains(&"10.3.0.1".parse::<IpAddr>().unwrap()))
    );
    let isp = &plan.links[0].profile;
    assert_eq!(
        isp.queue,
        QueueDiscipline::DropTail {
            limit_bytes: 625_000
        }
    );
    let rates: Vec<u64> = (0..20)
        .filter_map(|nth| plan.links[1 + 2 * nth].profile.rate_bits_per_s)
        .collect();
    assert_eq!(rates.len(), 20);
    assert!(
        rates
            .iter()
            .all(|rate| (12_000_000..28_000_000).contains(rate))
    );
    assert!(rates.iter().any(|rate| *rate < 16_000_000));
    assert!(rates.iter().any(|rate| *rate > 24_000_000));
}

/// The text replaced in the good topology, its replacement, and a part of the error.
const WRONG: &[(&str, &str, &str)] = &[
    ("seed = 7", "sead = 7", "unknown field `sead`"),
    (
        "seed = 7",
        "frame_packets_min = 45",
        "frame_packets_min = 45; allowed: 1 to 44",
    ),
    (
        "\"on\"",
        "\"yes\"",
        "expected one of `off`, `on`, `passive`",
    ),
    (
        "0.001",
        "1.5",
        "path \"home\": down.loss = 1.5; allowed: 0 to 1",
    ),
    (
        "20.0, d",
        "0.0, d",
        "down.rate_mbit_per_s = 0; allowed: 0.001 to",
    ),
    (
        "to_good = 0.5",
        "to_good = 0.0",
        "up.bursts.to_good = 0; allowed",
    ),
    (
        "[\"isp\"]",
        "[\"ips\"]",
        "down_through names \"ips\"; allowed: isp",
    ),
    (
        "10.2.0.0/16",
        "10.2.0.0/33",
        "allowed: 10.1.0.7, 10.1.0.0/24",
    ),
    (
        "10.2.0.0/16",
        "10.2.0.1/16",
        "allowed: 10.1.0.7, 10.1.0.0/24",
    ),
    (
        "10.2.0.0/16",
        "fd00::1",
        "server has no address of that family",
    ),
    (
        "office",
        "home",
        "path.name \"home\": not empty, and once only",
    ),
    (
        "queue_ms = 50.0",
        "queue_ms = -1.0",
        "link \"isp\".queue_ms = -1",
    ),
    (
        "10.3.0.1",
        "10.3.0.0/33",
        "beside = \"10.3.0.0/33\"; allowed: 10.1.0.7",
    ),
    ("10.3.0.1", "fd00::1", "allowed: addresses of IPv4"),
    (
        "per_client = true",
        "",
        "allowed: 0 to below 1, with per_client",
    ),
    (
        "10.1.0.1-10.1.0.20",
        "10.1.0.1-10.2.0.20",
        "more than 65536 paths",
    ),
];

#[test]
fn what_is_wrong_is_named_with_what_is_allowed() {
    let replaced = |from: &str, to: &str| {
        let (from, to) = (from.to_owned(), to.to_owned());
        wrong(move |good| {
            assert!(good.contains(&from));
            good.replace(&from, &to)
        })
    };
    for (from, to, expected) in WRONG {
        let got = replaced(from, to);
        assert!(got.contains(expected), "{to}: {got}");
    }
    assert!(wrong(|_| String::new()).contains("at least one [[path]]"));
}

#[test]
fn a_range_is_the_fewest_prefixes() {
    let of = |text: &str| {
        let prefixes = prefixes(&clients(text).unwrap());
        let text = prefixes.iter().map(|(at, len)| format!("{at}/{len}"));
        text.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(of("10.1.0.0/24"), "10.1.0.0/24");
    assert_eq!(
        of("10.1.0.1-10.1.0.6"),
        "10.1.0.1/32 10.1.0.2/31 10.1.0.4/31 10.1.0.6/32"
    );
    assert_eq!(of("255.255.255.254-255.255.255.255"), "255.255.255.254/31");
    assert_eq!(of("fd00::/64"), "fd00::/64");
    assert_eq!(of("::/0"), "::/0");
    assert_eq!(of("0.0.0.0/0"), "0.0.0.0/0");
}
