//! A swarm against a server that misbehaves on purpose. The counts are exact, regardless of timing.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::command::SwarmCommand;
use super::fleet::Fleet;
use super::summary::{ClassSummary, Line};
use super::workload::{
    Abort, Afterwards, Arrivals, Burst, Choice, Class, Kind, Leave, Objects, Part, PartChoice,
    Pause, Rate, Segments, Workload,
};
use ackpace_lab_base::content::{self, Tag};

/// Length of every file of the server.
const FILE_BYTES: u64 = 300_000;
const SEED: u64 = 11;

/// The behaviour of the server.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Right,
    WrongByte,
    Short,
    Status500,
    Hang,
    HangAfterOne,
    Reset,
    OtherRange,
    OtherLength,
    TooMuch,
}

/// A server on the loopback with a thread for each connection; it ends with the test's process.
fn server(manner: Manner) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            std::thread::spawn(move || serve(socket, manner));
        }
    });
    address
}

/// Answers until the client leaves; an error means that it left.
fn serve(mut socket: TcpStream, manner: Manner) -> Option<()> {
    for nth in 0.. {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).ok()?;
            request.push(byte[0]);
        }
        if manner == Manner::HangAfterOne && nth == 1 {
            let _ = socket.read(&mut [0]); // until the client leaves
            return None;
        }
        answer(&mut socket, manner, &String::from_utf8(request).unwrap())?;
    }
    None
}

fn answer(socket: &mut TcpStream, manner: Manner, request: &str) -> Option<()> {
    let path = request.split(' ').nth(1).unwrap();
    let range = request.split("Range: bytes=").nth(1).map(|rest| {
        let (first, last) = rest.lines().next().unwrap().split_once('-').unwrap();
        (first.parse::<u64>().unwrap(), last.parse::<u64>().unwrap())
    });
    let (first, last) = range.unwrap_or((0, FILE_BYTES - 1));
    let mut body = vec![0; (last - first + 1) as usize];
    content::fill(Tag::of(path), first, &mut body);
    let status = match range {
        _ if manner == Manner::Status500 => "500 Oops",
        Some(_) => "206 Partial Content",
        None => "200 OK",
    };
    let shown = first + u64::from(manner == Manner::OtherRange);
    let len = body.len() as u64 + u64::from(manner == Manner::OtherLength);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nContent-Range: bytes {shown}-{last}/{FILE_BYTES}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).ok()?;
    let half = body.len() / 2;
    match manner {
        Manner::WrongByte => body[half] ^= 1,
        Manner::TooMuch => body.push(0),
        Manner::Short | Manner::Hang | Manner::Reset => {
            socket.write_all(&body[..half]).ok()?;
            if manner == Manner::Hang {
                let _ = socket.read(&mut [0]); // until the client gives up
            }
            if manner == Manner::Reset {
                set_socket_linger(&*socket, Some(Duration::ZERO)).unwrap();
            }
            return None;
        }
        _ => {}
    }
    socket.write_all(&body).ok()
}

fn class(name: &str, clients: u32, requests_each: u32) -> Class {
    let mut object = Objects::one("/film.bin");
    object.len_bytes = Some(FILE_BYTES);
    let mut class = Class::new(name, clients, object);
    class.requests_each = Some(requests_each);
    class
}

/// Runs classes until all clients are done, or until `stop`.
fn run(classes: Vec<Class>, target: SocketAddr) -> (Vec<ClassSummary>, Vec<Line>) {
    run_with(classes, target, |_, _| ())
}

fn run_with(
    classes: Vec<Class>,
    target: SocketAddr,
    mut on: impl FnMut(&Line, &Sender<SwarmCommand>),
) -> (Vec<ClassSummary>, Vec<Line>) {
    println!("seed {SEED}");
    let workload = Workload {
        seed: SEED,
        classes,
        ..Workload::default()
    };
    let fleet = Fleet::start(&workload, target, &[]).unwrap();
    let (speaker, mut lines) = (fleet.speaker(), Vec::new());
    let summary = fleet.run(|line| {
        on(line, &speaker);
        lines.push(line.clone());
    });
    (summary.unwrap().classes, lines)
}

fn errors(class: &ClassSummary) -> Vec<(&str, u64)> {
    let errors = class.errors.iter();
    errors
        .map(|(kind, count)| (kind.as_str(), *count))
        .collect()
}

#[test]
fn a_right_server_gives_every_client_every_byte() {
    let target = server(Manner::Right);
    let mut paced = class("paced", 2, 1);
    paced.rate = Some(Rate::fixed(16_000_000));
    let mut closing = class("closing", 2, 3);
    closing.keep_alive = false;
    let mut ranges = class("ranges", 3, 5);
    ranges.part = Some(Part {
        choice: PartChoice::Ranges,
        len_bytes: Some(1234),
        ..Part::default()
    });
    let mut idle = class("idle", 4, 1);
    idle.afterwards = Afterwards::Idle;
    idle.source = Some("127.0.0.2-127.0.0.3".into());
    let classes = vec![class("plain", 4, 5), paced, closing, ranges, idle];
    // Idle clients never end. The run ends when all others have, and a second has passed.
    let (got, lines) = run_with(classes, target, |line, speaker| {
        if let Line::Second(second) = line {
            let done: u64 = second.classes[..4].iter().map(|class| class.active).sum();
            if done == 0 {
                speaker.send(SwarmCommand::Stop).unwrap();
            }
        }
    });
    let figures = |class: &ClassSummary| (class.completed, class.bytes, class.connects);
    let figures: Vec<_> = got.iter().map(figures).collect();
    let of = |completed, connects| (completed, completed * FILE_BYTES, connects);
    assert_eq!(
        figures,
        [of(20, 4), of(2, 2), of(6, 6), (15, 15 * 1234, 3), of(4, 4)]
    );
    assert!(
        got.iter()
            .all(|class| class.errors.is_empty() && !class.failed)
    );
    assert_eq!(
        (
            got[4].connected,
            got[0].ttfb_us.count,
            got[0].completion_us.count
        ),
        (4, 20, 20)
    );
    assert!(got[1].demand_met.is_some() && got[0].demand_met.is_none());
    let seconds = lines.iter().map(|line| match line {
        Line::Second(second) => second.classes[0].bytes,
        _ => 0,
    });
    assert!(
        seconds.sum::<u64>() <= got[0].bytes,
        "seconds add up to no more than the whole"
    );
    assert!(matches!(lines.last(), Some(Line::Summary(_))));
}

#[test]
fn each_misbehaviour_is_an_error_of_its_kind() {
    for (manner, kind, failed) in [
        (Manner::WrongByte, "wrong-byte", true),
        (Manner::Short, "closed-early", false),
        (Manner::Status500, "status", true),
        (Manner::Hang, "timeout", false),
        (Manner::Reset, "reset", false),
        (Manner::OtherLength, "length", true),
    ] {
        let mut class = class("a", 2, 2);
        class.timeout_s = 0.5;
        let (got, lines) = run(vec![class], server(manner));
        assert_eq!(errors(&got[0]), [(kind, 4)]);
        assert_eq!((got[0].failed, got[0].completed), (failed, 0), "{kind}");
        let told = got[0].first_errors.first().unwrap();
        assert!(
            told.starts_with(kind) && told.contains("GET /film.bin"),
            "{told}"
        );
        assert!(lines.iter().any(|line| matches!(line, Line::Fault(_))));
        if manner == Manner::WrongByte {
            assert!(
                told.contains(&format!("offset {}:", FILE_BYTES / 2)),
                "{told}"
            );
        }
    }
}

#[test]
fn another_range_and_bytes_beyond_the_answer_are_wrong_answers() {
    let mut ranges = class("ranges", 1, 2);
    ranges.part = Some(Part {
        choice: PartChoice::Ranges,
        len_bytes: Some(1000),
        ..Part::default()
    });
    let (got, _) = run(vec![ranges.clone()], server(Manner::OtherRange));
    assert_eq!((errors(&got[0]), got[0].failed), (vec![("range", 2)], true));
    ranges.requests_each = Some(1);
    ranges.afterwards = Afterwards::Idle; // it still reads after the answer
    let (got, _) = run_with(vec![ranges], server(Manner::TooMuch), |line, speaker| {
        if matches!(line, Line::Second(_)) {
            let _ = speaker.send(SwarmCommand::Stop);
        }
    });
    assert_eq!((errors(&got[0]), got[0].failed), (vec![("head", 1)], true));
}

#[test]
fn a_class_that_is_told_to_leave_is_gone_when_the_answer_comes() {
    let classes = vec![class("leaver", 3, 1), class("other", 2, 1)];
    let mut said = false;
    let (got, lines) = run_with(classes, server(Manner::Hang), |line, speaker| match line {
        Line::Second(second) if !said && second.classes[0].connected == 3 => {
            said = true;
            let class = "leaver".into();
            speaker.send(SwarmCommand::Leave { class }).unwrap();
        }
        Line::Answer(answer) if answer.command != "stop" => {
            speaker.send(SwarmCommand::Stop).unwrap();
        }
        _ => {}
    });
    let answers = lines.iter().filter(|line| match line {
        Line::Answer(answer) => answer.command == "leave leaver" && answer.refused.is_none(),
        _ => false,
    });
    assert_eq!(answers.count(), 1);
    assert_eq!((got[0].aborted, got[1].aborted), (3, 0));
    assert!(got[0].errors.is_empty() && got[1].errors.is_empty());
}

#[test]
fn no_server_is_an_error_of_each_request() {
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (got, _) = run(vec![class("a", 3, 1)], nobody);
    assert_eq!(errors(&got[0]), [("connect", 3)]);
    assert!(got[0].first_errors[0].contains("connection to 127.0.0.1"));
}

#[test]
fn clients_leave_in_each_way_and_only_a_half_close_gets_the_rest() {
    let target = server(Manner::Right);
    for (how, completed) in [(Leave::Rst, 4), (Leave::Fin, 4), (Leave::HalfClose, 8)] {
        let mut class = class("a", 4, 2);
        class.abort = Some(Abort {
            share: 0.5,
            how,
            after_bytes: Some(10_000),
            after_s: None,
            come_back: true,
        });
        let (got, _) = run(vec![class], target);
        assert_eq!(
            (got[0].aborted, got[0].completed),
            (4, completed),
            "{how:?}"
        );
        assert!(
            got[0].errors.is_empty(),
            "{how:?}: {:?}",
            got[0].first_errors
        );
        assert!(got[0].bytes >= completed * FILE_BYTES + (8 - completed) * 10_000);
    }
}

#[test]
fn those_who_pause_or_jump_get_right_bytes_too() {
    let target = server(Manner::Right);
    let mut paused = class("paused", 2, 1);
    paused.rate = Some(Rate::fixed(8_000_000));
    paused.pause = Some(Pause {
        share: 1.0,
        at_s: 0.05,
        for_s: 0.2,
        every_s: None,
    });
    let mut jumping = class("jumping", 2, 1);
    jumping.rate = Some(Rate::fixed(1_000_000));
    jumping.part = Some(Part {
        choice: PartChoice::Seeks,
        every_s: Some(0.1),
        ..Part::default()
    });
    let (got, _) = run(vec![paused, jumping], target);
    assert_eq!(
        (got[0].pauses, got[0].completed, got[0].bytes),
        (2, 2, 2 * FILE_BYTES)
    );
    assert_eq!((got[1].completed, got[1].requests), (2, 2 + got[1].seeks));
    assert!(got.iter().all(|class| class.errors.is_empty()));
}

/// Segments of 50 ms, six in a film.
fn player(name: &str, times: Option<f64>, requests_each: u32) -> Class {
    let mut class = class(name, 2, requests_each);
    class.kind = Kind::Player;
    class.rate = Some(Rate::fixed(8_000_000));
    class.segments = Some(Segments {
        film_s: 0.05,
        times,
    });
    class
}

#[test]
fn those_who_limit_themselves_get_right_bytes_in_their_own_way() {
    let target = server(Manner::Right);
    let mut paced = class("self-paced", 2, 1);
    paced.kind = Kind::SelfPaced;
    paced.rate = Some(Rate::fixed(16_000_000));
    let mut small = paced.clone();
    small.name = "small-buffer".into();
    small.receive_buffer_bytes = Some(32 << 10);
    let mut bursty = class("bursty", 2, 1);
    bursty.kind = Kind::Bursty;
    bursty.burst = Some(Burst {
        len_bytes: 110_000,
        every_s: 0.05,
    });
    let players = [player("four", Some(4.0), 6), player("full-speed", None, 7)];
    let classes = [vec![paced, small, bursty], players.into()].concat();
    let (got, _) = run(classes, target);
    let figures = |class: &ClassSummary| (class.completed, class.bytes, class.ttfb_us.count);
    let figures: Vec<_> = got.iter().map(figures).collect();
    let whole = (2, 2 * FILE_BYTES, 2);
    // The seventh segment is the first one of the film again.
    let again = (14, 2 * (FILE_BYTES + 50_000), 14);
    assert_eq!(
        figures,
        [whole, whole, whole, (12, 2 * FILE_BYTES, 12), again]
    );
    for class in &got {
        assert!(class.errors.is_empty(), "{:?}", class.first_errors);
        assert_eq!(class.connects, 2, "{}: idle connections stay", class.class);
        let has_pace = class.class != "full-speed";
        assert_eq!(class.demand_met.is_some(), has_pace, "{}", class.class);
    }
}

#[test]
fn a_player_whose_next_segment_does_not_come_has_stalled() {
    let target = server(Manner::HangAfterOne);
    let (mut completed, mut seconds) = (0, 0);
    let (got, _) = run_with(vec![player("a", None, 9)], target, |line, speaker| {
        if let Line::Second(second) = line {
            completed += second.classes[0].completed;
            // Each has its first segment, and has had a second to play 50 ms of film.
            seconds += u64::from(completed == 2);
            if seconds == 2 {
                speaker.send(SwarmCommand::Stop).unwrap();
            }
        }
    });
    assert_eq!((got[0].completed, got[0].stalls), (2, 2), "{:?}", got[0]);
    assert!(got[0].stalled_s > 0.0 && got[0].errors.is_empty());
}

#[test]
fn readers_of_one_file_begin_at_places_of_their_own() {
    let mut object = Objects::set(Choice::Dealt, "/set/{n}.bin", 3);
    object.len_bytes = Some(FILE_BYTES);
    let mut pairs = Class::new("pairs", 6, object);
    pairs.requests_each = Some(1);
    pairs.part = Some(Part {
        choice: PartChoice::Places,
        apart_bytes: Some(100_000),
        ..Part::default()
    });
    let (got, _) = run(vec![pairs], server(Manner::Right));
    assert_eq!((got[0].completed, got[0].bytes), (6, 3 * 500_000));
    assert!(got[0].errors.is_empty(), "{:?}", got[0].first_errors);
}

#[test]
fn a_pace_of_its_own_takes_no_other() {
    let mut said = false;
    let players = vec![player("a", None, 1000)];
    let (_, lines) = run_with(players, server(Manner::Right), |line, speaker| {
        if matches!(line, Line::Second(_)) && !said {
            said = true;
            for line in ["rate a 8000", "stop"] {
                speaker.send(SwarmCommand::parse(line).unwrap()).unwrap();
            }
        }
    });
    let refused = lines.iter().find_map(|line| match line {
        Line::Answer(answer) if answer.command == "rate a 8000" => answer.refused.clone(),
        _ => None,
    });
    assert!(refused.is_some_and(|why| why.contains("player")));
}

#[test]
fn an_open_loop_asks_at_its_rate_and_obeys_commands() {
    let mut object = Objects::set(Choice::Zipf, "/set/{n}.bin", 100);
    object.s = Some(0.9);
    let mut open = Class::new("open", 8, object);
    open.arrivals = Some(Arrivals {
        requests_per_s: Some(100.0),
        ..Arrivals::default()
    });
    let mut seconds = 0;
    let (got, lines) = run_with(vec![open], server(Manner::Right), |line, speaker| {
        seconds += u32::from(matches!(line, Line::Second(_)));
        let say = |line: &str| speaker.send(SwarmCommand::parse(line).unwrap()).unwrap();
        match line {
            Line::Begin(_) => say("requests nobody 5"),
            Line::Second(_) if seconds == 1 => {
                say("rate open 80000000");
                say("reset");
            }
            Line::Second(_) if seconds == 2 => say("stop"),
            _ => {}
        }
    });
    let answers = lines.iter().filter_map(|line| match line {
        Line::Answer(answer) => Some((answer.command.as_str(), answer.refused.is_none())),
        _ => None,
    });
    let expected = [
        ("requests nobody 5", false),
        ("rate open 80000000", true),
        ("reset", true),
        ("stop", true),
    ];
    assert_eq!(answers.collect::<Vec<_>>(), expected);
    assert!(
        got[0].requests > 0 && got[0].errors.is_empty(),
        "{:?}",
        got[0]
    );
    assert_eq!(
        got[0].connects, 0,
        "the connections were made before the reset"
    );
    assert!(
        got[0].demand_met.is_some(),
        "there is a rate since the reset"
    );
}
