use super::*;
use std::net::Ipv4Addr;

#[test]
fn configurations_have_no_place_that_stays_empty() {
    let scratch = std::env::temp_dir().join(format!("ackpace-lab-peers-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).unwrap();
    let site = Site {
        root: Path::new("/served"),
        scratch: &scratch,
        ackpace: Path::new("/bin/ackpace"),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8123)),
        connections: 5000,
        memory_limit_bytes: None,
        origin: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 7654))),
        target: None,
        is_written: false,
    };
    for (name, _) in Contender::presets() {
        let contender = Contender::preset(name);
        let command = contender.command(&site).unwrap();
        let args: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        let mut text = args.join(" ");
        if let Some(path) = args
            .iter()
            .find(|arg| arg.starts_with(&*scratch.to_string_lossy()) && arg.contains('.'))
        {
            text += &std::fs::read_to_string(&**path).unwrap_or_default();
        }
        assert!(!text.contains('@'), "{name}: {text}");
        assert!(
            (text.contains("/served") || text.contains("7654")) && text.contains("8123"),
            "{name}: {text}"
        );
    }
    std::fs::remove_dir_all(&scratch).unwrap();
}

#[test]
fn buffers_of_all_connections_fit_into_the_memory() {
    let buffer_bytes = |memory_limit_bytes, connections| {
        buffer_bytes(&Site {
            root: Path::new("/served"),
            scratch: Path::new("/scratch"),
            ackpace: Path::new("/bin/ackpace"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8123)),
            connections,
            memory_limit_bytes,
            origin: None,
            target: None,
            is_written: false,
        })
    };
    assert_eq!(buffer_bytes(None, 5000), 1 << 20);
    assert_eq!(buffer_bytes(Some(256 << 20), 101), 1 << 20);
    assert_eq!(buffer_bytes(Some(64 << 20), 200), 240 << 10);
    assert_eq!(
        buffer_bytes(Some(64 << 20), 100_000),
        16 << 10,
        "not less than a read needs"
    );
}

#[test]
fn a_contender_of_the_command_line_is_a_preset_or_ours_with_options() {
    let plain = Contender::parse("nginx-aio").unwrap();
    assert_eq!(
        (plain.kind, plain.options[2].as_str()),
        (Kind::Nginx, "aio threads")
    );
    let ours = Contender::parse("ackpace --memory-max 64M").unwrap();
    assert_eq!(ours.name, "ackpace --memory-max 64M");
    assert_eq!(ours.options, ["--memory-max", "64M"]);
    let error = Contender::parse("ngnix").unwrap_err();
    assert!(
        error.contains("no contender \"ngnix\"") && error.contains("nginx-aio"),
        "{error}"
    );
    let error = Contender::parse("nginx --fast").unwrap_err();
    assert!(error.contains("takes no options"), "{error}");
}

#[test]
fn another_build_of_ours_takes_part_under_the_name_of_its_file() {
    let folder = std::env::temp_dir().join(format!("ackpace-lab-builds-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (before, ours) = (folder.join("before"), folder.join("ackpace"));
    std::fs::write(&before, "").unwrap();
    std::fs::write(&ours, "").unwrap();
    let parsed =
        |path: &Path, rest: &str| Contender::parse(&format!("ackpace@{}{rest}", path.display()));
    let build = parsed(&before, " --workers 2").unwrap();
    assert_eq!(build.name, "before --workers 2");
    assert_eq!(build.options, ["--workers", "2"]);
    let site = Site {
        root: Path::new("/served"),
        scratch: &folder,
        ackpace: Path::new("/bin/ackpace"),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8123)),
        connections: 1,
        memory_limit_bytes: None,
        origin: None,
        target: None,
        is_written: false,
    };
    assert_eq!(
        build.command(&site).unwrap().get_program(),
        before.as_os_str()
    );
    let error = parsed(&ours, "").unwrap_err();
    assert!(error.contains("a name of its own"), "{error}");
    let error = parsed(&folder.join("none"), "").unwrap_err();
    assert!(error.contains("not a file"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn settings_become_lines_and_words_of_listen() {
    let options = ["sendfile off".into(), "listen sndbuf=64k".into()];
    let config = Program::of(Kind::Nginx).unwrap().config(&options);
    assert!(config.contains("\n    sendfile off;\n"), "{config}");
    assert!(
        config.contains("listen @IP@:@PORT@ sndbuf=64k;"),
        "{config}"
    );
}

#[test]
fn settings_take_the_values_of_a_point() {
    let contender = Contender::preset("nginx").with("nginx-small", &["listen sndbuf={buffer}k"]);
    let at = contender.at(&Point::of(&[("buffer", 64.0)]));
    assert_eq!(at.options.last().unwrap(), "listen sndbuf=64k");
}
