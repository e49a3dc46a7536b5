//! A swarm against a server that misbehaves on purpose. The counts are exact, regardless of timing.

use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::command::SwarmCommand;
use super::fleet::Fleet;
use super::summary::{ClassSummary, Line};
use super::workload::{Class, Kind, Objects, Part, Workload};
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
    let mut object = Objects::one("film");
    object.len_bytes = Some(FILE_BYTES);
    let mut class = Class::new(name, clients, object);
    class.requests_each = Some(requests_each);
    class
}

/// Runs classes until nobody wants anything at the end of a second.
fn run(classes: Vec<Class>, target: SocketAddr) -> (Vec<ClassSummary>, Vec<Line>) {
    run_with(classes, target, |line, speaker| {
        if let Line::Second(second) = line {
            if second.classes.iter().all(|class| class.active == 0) {
                let _ = speaker.send(SwarmCommand::Stop);
            }
        }
    })
}

fn run_with(
    classes: Vec<Class>,
    target: SocketAddr,
    mut on: impl FnMut(&Line, &Sender<SwarmCommand>),
) -> (Vec<ClassSummary>, Vec<Line>) {
    println!("seed {SEED}");
    let seed = SEED;
    let fleet = Fleet::start(&Workload { seed, classes }, target, None).unwrap();
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
    let mut paced = class("paced", 2, 1);
    paced.rate_bits_per_s = Some(16_000_000);
    let mut closing = class("closing", 2, 3);
    closing.keep_alive = false;
    let mut ranges = class("ranges", 3, 5);
    ranges.part = Part::Range { len_bytes: 1234 };
    let mut apart = class("apart", 4, 1);
    apart.source = Some("127.0.0.2-127.0.0.3".into());
    apart.apart = true;
    let classes = vec![class("plain", 4, 5), paced, closing, ranges, apart];
    let (got, lines) = run(classes, server(Manner::Right));
    let figures = |class: &ClassSummary| (class.completed, class.bytes, class.connects);
    let figures: Vec<_> = got.iter().map(figures).collect();
    let of = |completed, connects| (completed, completed * FILE_BYTES, connects);
    assert_eq!(
        figures,
        [of(20, 4), of(2, 2), of(6, 6), (15, 15 * 1234, 3), of(4, 4)]
    );
    for class in &got {
        assert!(class.errors.is_empty() && !class.failed);
    }
    let counts = (got[0].ttfb_us.count, got[0].completion_us.count);
    assert_eq!((got[4].connected, counts), (4, (20, 20)), "idle ones stay");
    assert!(got[1].demand_met.is_some() && got[0].demand_met.is_none());
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
        let (got, _) = run(vec![class], server(manner));
        assert_eq!(errors(&got[0]), [(kind, 4)]);
        assert_eq!((got[0].failed, got[0].completed), (failed, 0), "{kind}");
        let told = got[0].first_errors.first().unwrap();
        assert!(
            told.starts_with(kind) && told.contains("GET /film-00000.bin"),
            "{told}"
        );
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
    ranges.part = Part::Range { len_bytes: 1000 };
    let (got, _) = run(vec![ranges.clone()], server(Manner::OtherRange));
    assert_eq!((errors(&got[0]), got[0].failed), (vec![("range", 2)], true));
    ranges.requests_each = Some(1); // its connection stays, and it still reads
    let (got, _) = run(vec![ranges], server(Manner::TooMuch));
    assert_eq!((errors(&got[0]), got[0].failed), (vec![("head", 1)], true));
}

#[test]
fn a_class_that_is_told_to_leave_is_gone_when_the_answer_comes() {
    let classes = vec![class("leaver", 3, 1), class("other", 2, 1)];
    let leave = SwarmCommand::Leave("leaver".into());
    let mut said = false;
    let (got, lines) = run_with(classes, server(Manner::Hang), |line, speaker| match line {
        Line::Second(second) if !said && second.classes[0].connected == 3 => {
            said = true;
            speaker.send(leave.clone()).unwrap();
        }
        Line::Answer(answer) if answer.command != SwarmCommand::Stop => {
            speaker.send(SwarmCommand::Stop).unwrap();
        }
        _ => {}
    });
    let answers = lines.iter().filter(|line| match line {
        Line::Answer(answer) => answer.command == leave && !answer.refused,
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
fn clients_that_leave_by_the_clock_are_gone() {
    let mut class = class("a", 4, 2);
    class.leaves_after_s = Some(0.05);
    let (got, _) = run(vec![class], server(Manner::Hang));
    assert_eq!(
        (got[0].aborted, got[0].requests, got[0].connected),
        (4, 4, 0)
    );
    assert!(got[0].errors.is_empty(), "{:?}", got[0].first_errors);
}

/// Segments of 50 ms, six in a film.
fn player(name: &str, times: Option<f64>, requests_each: u32) -> Class {
    let mut class = class(name, 2, requests_each);
    let film_s = 0.05;
    class.kind = Kind::Player { film_s, times };
    class.rate_bits_per_s = Some(8_000_000);
    class
}

#[test]
fn those_who_limit_themselves_get_right_bytes_in_their_own_way() {
    let target = server(Manner::Right);
    let mut paced = class("self-paced", 2, 1);
    paced.kind = Kind::SelfPaced;
    paced.rate_bits_per_s = Some(16_000_000);
    let mut small = paced.clone();
    small.name = "small-buffer".into();
    small.receive_buffer_bytes = Some(32 << 10);
    let mut bursty = class("bursty", 2, 1);
    bursty.kind = Kind::Bursty {
        len_bytes: 110_000,
        every_s: 0.05,
    };
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
    let mut object = Objects::dealt("set", 3, 0);
    object.len_bytes = Some(FILE_BYTES);
    let mut pairs = Class::new("pairs", 6, object);
    pairs.requests_each = Some(1);
    pairs.part = Part::Places {
        apart_bytes: 102_400,
        apart_max_bytes: None,
    };
    let (got, _) = run(vec![pairs], server(Manner::Right));
    let all = 3 * (2 * FILE_BYTES - 102_400);
    assert_eq!((got[0].completed, got[0].bytes), (6, all));
    assert!(got[0].errors.is_empty(), "{:?}", got[0].first_errors);
}

#[test]
fn an_open_loop_asks_at_its_rate_and_obeys_commands() {
    let mut open = Class::new("open", 8, Objects::any("set", 100));
    open.arrivals_per_s = Some(100.0);
    let mut seconds = 0;
    let (got, lines) = run_with(vec![open], server(Manner::Right), |line, speaker| {
        seconds += u32::from(matches!(line, Line::Second(_)));
        let say = |command| speaker.send(command).unwrap();
        match line {
            Line::Second(_) if seconds == 1 => {
                say(SwarmCommand::Leave("nobody".into()));
                say(SwarmCommand::Reset);
            }
            Line::Second(_) if seconds == 2 => say(SwarmCommand::Stop),
            _ => {}
        }
    });
    let answers = lines.iter().filter_map(|line| match line {
        Line::Answer(answer) => Some(answer.refused),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), [true, false, false]);
    let got = &got[0];
    assert!(got.requests > 0 && got.errors.is_empty(), "{got:?}");
    assert_eq!(
        got.connects, 0,
        "the connections were made before the reset"
    );
}
