//! Tasks of the tree. `cargo xtask tidy` checks the house rules and says how to fix each finding; `cargo xtask soak`
//! hunts for broken promises of a server for minutes or hours, or runs thousands of seeds of the simulator.

mod soak;
mod tidy;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy(),
        ["soak", ..] => soak::run(&arguments[1..]),
        _ => {
            let [hunt, seeds] = [soak::USAGE, soak::USAGE_OF_SEEDS];
            eprintln!("{USAGE}\n       {hunt}\n       {seeds}");
            ExitCode::from(2)
        }
    }
}

/// Prints how long functions usually are, which does not fail, then the findings.
fn tidy() -> ExitCode {
    let tree = match tree::Tree::read() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!(
                "tidy: cannot read the tree: {error}; run it from a checkout, with git in PATH"
            );
            return ExitCode::FAILURE;
        }
    };
    for note in tidy::notes(&tree) {
        println!("{note}");
    }
    let findings = tidy::findings(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing wrong", tree.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} findings", findings.len());
        ExitCode::FAILURE
    }
}
