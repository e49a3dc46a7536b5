//! What POSIX and NFS promise of a file system, checked through the kernel of a client. `run.sh` boots a guest whose kernel
//! mounts a server's export twice, as two clients would, and starts this there. It runs on any two paths to one folder:
//!
//! ```console
//! # ackpace-lab-posix /mnt/a /mnt/b
//! ```
//!
//! Each check is a line, `ok NAME` or `FAILED NAME: WHY`; the last line counts them. Checks as another user need root.

mod attributes;
mod coherence;
mod content;
mod folders;
mod names;
mod sys;
mod users;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sys::Why;

/// Where a check works: an empty folder of its own, by both paths.
struct Place {
    a: PathBuf,
    b: PathBuf,
}

/// A check by its name.
type Check = (&'static str, fn(&Place) -> Result<(), Why>);

fn main() -> ExitCode {
    let mut paths = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(a), b) = (paths.next(), paths.next()) else {
        eprintln!("ackpace-lab-posix: give it a folder, and the same folder by another mount");
        return ExitCode::from(2);
    };
    let b = b.unwrap_or_else(|| a.clone());
    let all = [
        content::CHECKS,
        names::CHECKS,
        folders::CHECKS,
        attributes::CHECKS,
        users::CHECKS,
        coherence::CHECKS,
    ];
    let all: Vec<&Check> = all.iter().copied().flatten().collect();
    let failed = all.iter().filter(|check| !run(check, &a, &b)).count();
    println!("POSIX {} of {} checks hold", all.len() - failed, all.len());
    match failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn run((name, check): &Check, a: &Path, b: &Path) -> bool {
    let folder = format!("posix-{}-{name}", std::process::id());
    let place = Place {
        a: a.join(&folder),
        b: b.join(&folder),
    };
    let checked = catch_unwind(AssertUnwindSafe(|| {
        std::fs::create_dir(&place.a).map_err(|error| format!("a new folder: {error}"))?;
        check(&place)
    }));
    sys::as_root();
    let _ = std::fs::remove_dir_all(&place.a);
    match &checked {
        Ok(Ok(())) => println!("ok {name}"),
        Ok(Err(why)) => println!("FAILED {name}: {why}"),
        Err(_) => println!("FAILED {name}: it panicked"),
    }
    matches!(checked, Ok(Ok(())))
}
