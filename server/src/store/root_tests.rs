//! What a path may reach, on a real tree.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::fs::Mode;

use super::*;

/// A tree with every kind of name, beside a secret. Removed at the end of the test.
struct Tree {
    dir: PathBuf,
}

impl Tree {
    fn new(name: &str) -> Tree {
        let dir = std::env::temp_dir().join(format!("ackpace-root-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let root = dir.join("root");
        fs::create_dir_all(root.join("sub")).expect("a directory");
        fs::create_dir_all(dir.join("other")).expect("a directory");
        fs::write(dir.join("secret"), "secret").expect("a file");
        fs::write(dir.join("other/shared"), "shared").expect("a file");
        fs::write(root.join("file"), "inside").expect("a file");
        fs::write(root.join("sub/deep"), "deep").expect("a file");
        for (target, link) in [
            ("file", "near"),
            ("../secret", "climbs"),
            ("../../secret", "sub/climbs"),
            ("../file", "sub/up"),
            ("loop", "loop"),
            ("missing", "dangling"),
            ("/proc/self/fd/0", "magic"),
        ] {
            symlink(target, root.join(link)).expect("a link");
        }
        symlink(root.join("file"), root.join("absolute")).expect("a link");
        symlink(dir.join("secret"), root.join("leaves")).expect("a link");
        symlink(dir.join("other"), root.join("allowed")).expect("a link");
        rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from(0o644), 0)
            .expect("a fifo");
        Tree { dir }
    }

    fn root(&self, follow: FollowSymlinks) -> Root {
        let allowed = [self.dir.join("other")];
        let hide = Hide::new(&[".*"]).expect("a good pattern");
        Root::open(&self.dir.join("root"), follow, &allowed, hide).expect("a root")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn text(root: &Root, path: &str) -> Result<String, Miss> {
    match root.find(path.as_bytes(), Wait::Yes)? {
        Found::File(fd, _) => {
            let mut text = String::new();
            fs::File::from(fd.try_clone().expect("a descriptor"))
                .read_to_string(&mut text)
                .expect("a small file");
            Ok(text)
        }
        Found::Directory(_) => Ok("(directory)".to_owned()),
    }
}

fn is_astray(result: Result<String, Miss>) -> bool {
    matches!(result, Err(Miss::Astray(_)))
}

fn is_forbidden(result: Result<String, Miss>) -> bool {
    matches!(result, Err(Miss::Forbidden(_)))
}

#[test]
fn links_that_stay_inside_are_followed_and_links_that_leave_are_not() {
    let tree = Tree::new("inside");
    let root = tree.root(FollowSymlinks::Inside);
    for (path, content) in [
        ("file", "inside"),
        ("near", "inside"),
        ("sub/up", "inside"),
        ("absolute", "inside"),
        ("allowed/shared", "shared"),
        ("sub/", "(directory)"),
        ("sub", "(directory)"),
        ("", "(directory)"),
    ] {
        assert_eq!(text(&root, path).as_deref(), Ok(content), "{path}");
    }
    for path in ["climbs", "sub/climbs", "leaves", "loop", "magic"] {
        let result = text(&root, path);
        assert!(is_astray(result.clone()), "{path}: {result:?}");
    }
    for path in [
        "dangling",
        "nothing",
        "file/",
        "file/below",
        "sub/nothing",
        &"x".repeat(300),
    ] {
        assert_eq!(text(&root, path), Err(Miss::NotFound), "{path}");
    }
}

#[test]
fn what_is_renamed_elsewhere_hides_no_file_behind_a_link_that_climbs() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let tree = Tree::new("renames");
    let root = tree.root(FollowSymlinks::Inside);
    let names = ["one", "other"].map(|name| tree.dir.join("other").join(name));
    fs::write(&names[0], "renamed").expect("a file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                fs::rename(&names[0], &names[1]).expect("our own");
                fs::rename(&names[1], &names[0]).expect("our own");
            }
        });
        let found: Vec<_> = (0..20_000).map(|_| text(&root, "sub/up")).collect();
        is_over.store(true, Relaxed);
        let missed = found.iter().find(|found| found.as_deref() != Ok("inside"));
        assert_eq!(missed, None);
    });
}

#[test]
fn no_link_or_any_link_is_followed_as_the_operator_says() {
    let tree = Tree::new("modes");
    let none = tree.root(FollowSymlinks::None);
    assert_eq!(text(&none, "sub/deep").as_deref(), Ok("deep"));
    for path in ["near", "sub/up", "absolute", "leaves", "allowed/shared"] {
        assert!(is_astray(text(&none, path)), "{path}");
    }
    let all = tree.root(FollowSymlinks::All);
    assert_eq!(text(&all, "leaves").as_deref(), Ok("secret"));
    assert!(
        is_astray(text(&all, "magic")),
        "magic links are followed never"
    );
}

#[test]
fn a_fifo_is_refused_without_being_opened() {
    let tree = Tree::new("fifo");
    let root = tree.root(FollowSymlinks::Inside);
    assert!(is_forbidden(text(&root, "fifo")));
    // If the fifo had been opened for reading, opening it for writing without waiting would succeed.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let writer = rustix::fs::openat(CWD, tree.dir.join("root/fifo"), flags, Mode::empty());
    assert_eq!(writer.err(), Some(Errno::NXIO));
}

#[test]
fn one_file_is_served_alone() {
    let tree = Tree::new("only");
    let root = Root::open(
        &tree.dir.join("root/file"),
        FollowSymlinks::Inside,
        &[],
        Hide::default(),
    )
    .expect("a file");
    assert_eq!(root.only(), Some(&b"file"[..]));
    assert_eq!(text(&root, "file").as_deref(), Ok("inside"));
    for path in ["", "near", "sub/deep"] {
        assert_eq!(text(&root, path), Err(Miss::NotFound), "{path}");
    }
}

#[test]
fn a_link_that_is_served_alone_keeps_the_name_that_was_given() {
    let tree = Tree::new("only-link");
    let at = |name: &str| tree.dir.join("root").join(name);
    for follow in [
        FollowSymlinks::Inside,
        FollowSymlinks::None,
        FollowSymlinks::All,
    ] {
        for (link, content) in [
            ("near", "inside"),
            ("leaves", "secret"),
            ("climbs", "secret"),
        ] {
            let root = Root::open(&at(link), follow, &[], Hide::default()).expect("a file");
            assert_eq!(root.only(), Some(link.as_bytes()));
            assert_eq!(
                text(&root, link).as_deref(),
                Ok(content),
                "{link} {follow:?}"
            );
            for other in ["", "file", "secret", "sub/deep", "absolute"] {
                assert_eq!(text(&root, other), Err(Miss::NotFound), "{other}");
            }
        }
    }
    // A new version, to which the link leads from now on.
    let root = Root::open(&at("near"), FollowSymlinks::Inside, &[], Hide::default());
    let root = root.expect("a file");
    fs::write(at("new"), "new").expect("a file");
    symlink("new", at("near.tmp")).expect("a link");
    fs::rename(at("near.tmp"), at("near")).expect("a rename");
    assert_eq!(text(&root, "near").as_deref(), Ok("new"));
}

#[test]
fn what_cannot_be_a_root_is_refused_with_a_cure() {
    let tree = Tree::new("refused");
    let open = |name: &str| {
        Root::open(
            &tree.dir.join("root").join(name),
            FollowSymlinks::Inside,
            &[],
            Hide::default(),
        )
    };
    let missing = open("nothing").expect_err("it is not there").to_string();
    assert!(
        missing.ends_with("; name a directory or a file that this user may read"),
        "{missing}"
    );
    let forged = open("a\u{202e}\u{1b}]0;t\u{7}\nackpace: good").expect_err("it is not there");
    let shown = "a\\u{202e}\\u{1b}]0;t\\u{7}\\nackpace: good: No such file";
    assert!(forged.to_string().contains(shown), "{forged}");
    let fifo = open("fifo").expect_err("a fifo is no root").to_string();
    assert!(
        fifo.ends_with("is neither a directory nor a regular file; name one of these"),
        "{fifo}"
    );
}

#[test]
fn what_cannot_be_allowed_is_refused_with_its_option_and_a_cure() {
    let tree = Tree::new("allowed-refused");
    for (name, why) in [
        ("nothing", "No such file"),
        ("root/file", "Not a directory"),
    ] {
        let (root, path) = (tree.dir.join("root"), tree.dir.join(name));
        let allowed = [tree.dir.join("other"), path.clone()];
        let refused = Root::open(&root, FollowSymlinks::Inside, &allowed, Hide::default());
        let refused = refused.expect_err("it is no directory");
        assert_eq!(refused.option, "allow_roots");
        let text = refused.to_string();
        assert!(
            text.starts_with(&format!("{}: {why}", path.display()))
                && text.ends_with("; name a directory that this user may enter"),
            "{text}"
        );
    }
}

#[test]
fn a_root_that_is_removed_is_seen_at_the_next_look_and_stays_removed() {
    let tree = Tree::new("removed");
    let root = tree.root(FollowSymlinks::Inside);
    root.place.look();
    assert_eq!(root.presence(), Presence::Here);
    fs::rename(tree.dir.join("root"), tree.dir.join("renamed")).expect("our own tree");
    root.place.look();
    assert_eq!(root.presence(), Presence::Here);
    fs::remove_dir_all(tree.dir.join("renamed")).expect("our own tree");
    root.place.look();
    assert_eq!(root.presence(), Presence::Removed);
    fs::create_dir(tree.dir.join("root")).expect("a directory");
    root.place.look();
    assert_eq!(
        root.presence(),
        Presence::Removed,
        "the new one is another one"
    );
}

#[test]
fn what_the_kernel_has_not_cached_is_left_to_those_who_may_wait() {
    let tree = Tree::new("cached");
    let root = tree.root(FollowSymlinks::Inside);
    assert!(matches!(
        root.find(b"file", Wait::No),
        Ok(Found::File(..)) | Err(Miss::Cold)
    ));
    assert_eq!(
        root.find(b"absolute", Wait::No).err(),
        Some(Miss::Cold),
        "leaving links need a closer look"
    );
}

/// Hidden names in a tree and beside it, and links of every kind to them.
fn with_hidden(name: &str) -> Tree {
    let tree = Tree::new(name);
    let root = tree.dir.join("root");
    fs::create_dir_all(root.join(".dir")).expect("a directory");
    fs::create_dir_all(tree.dir.join("other/.dir")).expect("a directory");
    for file in ["root/.file", "root/.dir/a", "other/.file", "other/.dir/a"] {
        fs::write(tree.dir.join(file), "hidden").expect("a file");
    }
    for (target, link) in [
        (".file", "to-file"),
        ("to-file", "to-link"),
        (".dir", "to-dir"),
        ("to-dir/a", "by-dir"),
        ("../.dir/a", "sub/climbs-back"),
        ("file", ".near"),
        (".near", "through"),
        (".dir/../file", "past"),
    ] {
        symlink(target, root.join(link)).expect("a link");
    }
    for (target, link) in [
        ("root/.file", "absolute-file"),
        ("root/.dir", "absolute-dir"),
        ("other/.file", "allowed-file"),
        ("other/.dir", "allowed-dir"),
    ] {
        symlink(tree.dir.join(target), root.join(link)).expect("a link");
    }
    tree
}

/// Paths that lead to something hidden.
const TO_HIDDEN: [&str; 18] = [
    ".file",
    ".dir",
    ".dir/",
    ".dir/a",
    ".near",
    "to-file",
    "to-link",
    "to-dir",
    "to-dir/",
    "to-dir/a",
    "by-dir",
    "sub/climbs-back",
    "absolute-file",
    "absolute-dir/a",
    "allowed-file",
    "allowed-dir/a",
    "allowed/.file",
    "allowed/.dir/a",
];

#[test]
fn what_has_a_hidden_name_is_not_found_whatever_leads_there() {
    let tree = with_hidden("hidden");
    for follow in [FollowSymlinks::Inside, FollowSymlinks::All] {
        let root = tree.root(follow);
        for path in TO_HIDDEN {
            assert_eq!(text(&root, path), Err(Miss::Hidden), "{path}");
            let stat = root.stat(path.as_bytes());
            assert_eq!(stat.err(), Some(Miss::Hidden), "{path}");
            let found = root.find(path.as_bytes(), Wait::No);
            let miss = found.err();
            assert!(
                matches!(miss, Some(Miss::Hidden | Miss::Cold)),
                "{path}: {miss:?}"
            );
        }
        for path in ["through", "past", "near"] {
            let text = text(&root, path);
            assert_eq!(text.as_deref(), Ok("inside"), "{path} leads to what is not");
        }
    }
}

#[test]
fn outside_of_all_roots_every_part_of_a_name_counts() {
    let tree = with_hidden("outside");
    let root = tree.dir.join("root");
    for (target, link) in [("else/.dir", "out-dir"), ("else/.file", "out-file")] {
        fs::create_dir_all(tree.dir.join("else/.dir")).expect("a directory");
        fs::write(tree.dir.join("else/.dir/a"), "hidden").expect("a file");
        fs::write(tree.dir.join("else/.file"), "hidden").expect("a file");
        symlink(tree.dir.join(target), root.join(link)).expect("a link");
    }
    let root = tree.root(FollowSymlinks::All);
    for path in ["out-file", "out-dir/a"] {
        assert_eq!(text(&root, path), Err(Miss::Hidden), "{path}");
    }
    assert_eq!(text(&root, "leaves").as_deref(), Ok("secret"));
}

#[test]
fn a_hidden_name_above_the_root_is_the_operators_choice() {
    let tree = with_hidden("above");
    let hide = || Hide::new(&[".*"]).expect("a good pattern");
    let open = |path: &str| {
        let path = tree.dir.join(path);
        Root::open(&path, FollowSymlinks::Inside, &[], hide()).expect("a root")
    };
    symlink("a", tree.dir.join("root/.dir/link")).expect("a link");
    let root = open("root/.dir");
    for path in ["a", "link"] {
        assert_eq!(text(&root, path).as_deref(), Ok("hidden"), "{path}");
    }
}

#[test]
fn a_judged_name_that_becomes_a_link_is_not_followed() {
    let tree = with_hidden("swapped");
    let dir = tree.dir.join("root");
    let root = tree.root(FollowSymlinks::Inside);
    let name = root.door.name(&root.place.dir, b"file").expect("visible");
    fs::rename(dir.join("to-file"), dir.join("file")).expect("a rename");
    assert_eq!(name.open(READ, Wait::Yes).err(), Some(Errno::LOOP));
    assert_eq!(text(&root, "file"), Err(Miss::Hidden));
}

#[test]
fn a_root_that_is_renamed_keeps_its_links() {
    let tree = Tree::new("renamed");
    let root = tree.root(FollowSymlinks::Inside);
    fs::rename(tree.dir.join("root"), tree.dir.join("moved")).expect("a rename");
    for path in ["near", "sub/up"] {
        assert_eq!(text(&root, path).as_deref(), Ok("inside"), "{path}");
    }
}
