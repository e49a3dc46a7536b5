//! What a path may reach, on a real tree.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

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
        Root::open(&self.dir.join("root"), follow, &allowed).expect("a root")
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
            fs::File::from(fd)
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
    // Had anybody opened the fifo for reading, a writer that does not wait would get in.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    let writer = rustix::fs::openat(CWD, tree.dir.join("root/fifo"), flags, Mode::empty());
    assert_eq!(writer.err(), Some(Errno::NXIO));
}

#[test]
fn one_file_is_served_alone() {
    let tree = Tree::new("only");
    let root =
        Root::open(&tree.dir.join("root/file"), FollowSymlinks::Inside, &[]).expect("a file");
    assert_eq!(root.only(), Some(&b"file"[..]));
    assert_eq!(text(&root, "file").as_deref(), Ok("inside"));
    for path in ["", "near", "sub/deep"] {
        assert_eq!(text(&root, path), Err(Miss::NotFound), "{path}");
    }
}

#[test]
fn what_cannot_be_a_root_is_refused_with_a_cure() {
    let tree = Tree::new("refused");
    let open = |name: &str| {
        Root::open(
            &tree.dir.join("root").join(name),
            FollowSymlinks::Inside,
            &[],
        )
    };
    let missing = open("nothing").expect_err("it is not there").to_string();
    assert!(
        missing.ends_with("; name a directory or a file that this user may read"),
        "{missing}"
    );
    let fifo = open("fifo").expect_err("a fifo is no root").to_string();
    assert!(
        fifo.ends_with("is neither a directory nor a regular file; name one of these"),
        "{fifo}"
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
