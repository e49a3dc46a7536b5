//! The build script of each crate with programs for the kernel: compiles all `src/bpf/NAME.bpf.c`, where the feature `bpf` is
//! on and clang is there. Otherwise the object files are empty, and one line says why and what to do.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// The first one found is used.
const CLANGS: [&str; 7] = [
    "clang", "clang-20", "clang-19", "clang-18", "clang-16", "clang-15", "clang-14",
];
/// Where headers are that programs share, seen from `host/` and from beside it.
const HEADERS: [&str; 2] = ["base/bpf", "../host/base/bpf"];

fn main() {
    let headers = HEADERS
        .into_iter()
        .find(|folder| Path::new(folder).exists());
    let headers = headers.expect("host/base/bpf");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-changed={headers}");
    println!("cargo::rerun-if-env-changed=CLANG");
    let is_wanted = env::var_os("CARGO_FEATURE_BPF").is_some();
    for entry in fs::read_dir("src/bpf").expect("src/bpf") {
        let source = entry.expect("an entry").path();
        let Some(name) = source.to_str().and_then(|path| path.strip_suffix(".c")) else {
            continue;
        };
        let Some(name) = name
            .strip_prefix("src/bpf/")
            .filter(|name| name.ends_with(".bpf"))
        else {
            continue;
        };
        let object =
            Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join(format!("{name}.o"));
        let compiled = match is_wanted {
            true => compile(&source, headers, &object),
            false => Err(String::new()),
        };
        if let Err(why) = compiled {
            fs::write(&object, "").expect("a file of the build");
            if is_wanted {
                println!("cargo::warning={name} is not built: {why}");
            }
        }
    }
}

fn compile(source: &Path, headers: &str, object: &Path) -> Result<(), String> {
    let runs = |clang: &String| Command::new(clang).arg("--version").output().is_ok();
    let named = env::var("CLANG").into_iter();
    let clang = named.chain(CLANGS.map(str::to_owned)).find(runs);
    let clang = clang.ok_or("no clang here (apt-get install clang-14 libbpf-dev)")?;
    let target = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let output = Command::new(&clang)
        .args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"])
        // Where Debian has <asm/types.h>.
        .arg(format!("-I/usr/include/{target}-linux-gnu"))
        .arg(format!("-I{headers}"))
        .arg("-c")
        .args([source, Path::new("-o"), object])
        .output()
        .map_err(|error| format!("{clang}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{clang} fails (apt-get install libbpf-dev): {}",
            String::from_utf8_lossy(&output.stderr).replace('\n', " | ")
        )),
    }
}
