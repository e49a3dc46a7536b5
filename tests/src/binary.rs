//! Paths of the server under test, of the lab's binary, and of the privileged one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Path of the server: `ACKPACE_BIN`, or a build in the profile and target directory of this test.
pub fn server_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("ACKPACE_BIN") {
        Some(path) => path.into(),
        None => build("ackpace", &[]),
    })
}

/// Path of the lab: `ACKPACE_LAB_BIN`, or a build like that of [`server_binary`].
pub fn lab_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("ACKPACE_LAB_BIN") {
        Some(path) => path.into(),
        None => build("ackpace-lab", &[]),
    })
}

/// Path of the privileged program: `ACKPACE_HOST_BIN`, or a build like that of [`server_binary`], with BPF where this
/// machine has what that is built with.
pub fn host_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os("ACKPACE_HOST_BIN") {
        Some(path) => path.into(),
        None => {
            let headers = ["/usr/include/bpf/bpf_helpers.h", "/usr/include/libelf.h"];
            let has_all = headers.iter().all(|header| Path::new(header).exists());
            let bpf: &[&str] = if has_all { &["--features", "bpf"] } else { &[] };
            build("ackpace-host", bpf)
        }
    })
}

/// Builds a package and returns the path of its binary, which has the same name.
fn build(package: &str, features: &[&str]) -> PathBuf {
    // TARGET_DIR/PROFILE/deps/NAME-HASH
    let test = std::env::current_exe().expect("the path of this test");
    let profile_dir = test
        .ancestors()
        .nth(2)
        .expect("a test lies in PROFILE/deps");
    let profile = profile_dir.file_name().expect("the name of a profile");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "--locked", "--package", package])
        .args(features)
        .arg("--target-dir")
        .arg(
            profile_dir
                .parent()
                .expect("a profile lies in a target directory"),
        )
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile != "debug" {
        build.arg("--profile").arg(profile);
    }
    let status = build.status().expect("cargo starts");
    assert!(status.success(), "{package} could not be built");
    profile_dir.join(package)
}
