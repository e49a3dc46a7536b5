//! Compiles the programs for the kernel, where the feature `bpf` is on and clang is there. Otherwise the binary is built
//! without it, with one line that says why and what to do.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each becomes an object file, from `src/bpf/NAME.bpf.c`.
const PROGRAMS: [&str; 4] = ["tune", "receive", "guard", "exact"];
/// The first one found is used.
const CLANGS: [&str; 7] = [
    "clang", "clang-20", "clang-19", "clang-18", "clang-16", "clang-15", "clang-14",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_bpf)");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    if env::var_os("CARGO_FEATURE_BPF").is_none() {
        return;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    match PROGRAMS.iter().try_for_each(|name| compile(name, &out)) {
        Ok(()) => println!("cargo::rustc-cfg=has_bpf"),
        Err(why) => println!("cargo::warning=ackpace-host is built without BPF: {why}"),
    }
}

fn compile(name: &str, out: &Path) -> Result<(), String> {
    let source = format!("src/bpf/{name}.bpf.c");
    let runs = |clang: &String| Command::new(clang).arg("--version").output().is_ok();
    let named = env::var("CLANG").into_iter();
    let clang = named.chain(CLANGS.map(str::to_owned)).find(runs);
    let clang = clang.ok_or("no clang here (apt-get install clang-14 libbpf-dev)")?;
    let target = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"])
        // Where Debian has <asm/types.h>.
        .arg(format!("-I/usr/include/{target}-linux-gnu"))
        .args(["-c", &source, "-o"])
        .arg(out.join(format!("{name}.bpf.o")))
        .output()
        .map_err(|error| format!("{clang}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{clang} fails on {source} (apt-get install libbpf-dev): {}",
            String::from_utf8_lossy(&output.stderr).replace('\n', " | ")
        )),
    }
}
