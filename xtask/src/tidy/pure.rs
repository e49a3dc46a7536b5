//! Purity: what core, share and wire must not contain, and which crates may depend on which.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;

use super::Finding;
use crate::tree::Tree;

/// Each forbidden word, and what to use instead.
const NOT_IN_CORE: &[(&str, &str)] = &[
    ("std", "it is no_std: use core:: or alloc::"),
    (
        "HashMap",
        "its order differs from run to run: use BTreeMap or an index",
    ),
    (
        "HashSet",
        "its order differs from run to run: use BTreeSet or an index",
    ),
    ("SystemTime", "time is an argument: take `now: Instant`"),
    ("println", "it says nothing: return a value"),
    ("eprintln", "it says nothing: return a value"),
];
const NOT_IN_WIRE: &[(&str, &str)] = &[
    ("now", "time is an argument"),
    ("fs", "a parser opens nothing: take bytes"),
    ("thread", "a parser starts nothing"),
    ("process", "a parser starts nothing"),
    ("env", "what a parser needs is an argument"),
    ("TcpStream", "a parser takes bytes"),
    ("TcpListener", "a parser takes bytes"),
    ("println", "a parser says nothing: return a value"),
    ("eprintln", "a parser says nothing: return a value"),
];

/// The crates that each room may depend on; rooms that are not listed may depend on any.
const ARROWS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("share", &["ackpace-core"]),
    ("wire", &[]),
    ("server", &["ackpace-core", "ackpace-share", "ackpace-wire"]),
    ("host/base", &["ackpace-core"]),
    ("receive", &["ackpace-core", "ackpace-host-base"]),
    (
        "host",
        &[
            "ackpace-core",
            "ackpace-host-base",
            "ackpace-receive",
            "ackpace-share",
            "ackpace-wire",
        ],
    ),
    ("receive/guest", &["ackpace-lab-base"]),
    ("lab/base", &[]),
    ("lab/disk", &["ackpace-lab-base", "ackpace-sim"]),
    (
        "lab/wan",
        &["ackpace-lab-base", "ackpace-sim", "ackpace-wire"],
    ),
    ("lab/swarm", &["ackpace-lab-base"]),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    attributes(tree, &mut findings);
    arrows(tree, &mut findings);
    for (room, words) in [
        ("core", NOT_IN_CORE),
        ("share", NOT_IN_CORE),
        ("wire", NOT_IN_WIRE),
    ] {
        for source in tree.code(room) {
            let mut items = source.code.items.iter().map(ToTokens::to_token_stream);
            items
                .by_ref()
                .for_each(|tokens| forbidden(&source.path, tokens, room, words, &mut findings));
        }
    }
    findings
}

/// `no_std` and no `unsafe` at the top of the crate, so that rustc itself refuses the rest.
fn attributes(tree: &Tree, findings: &mut Vec<Finding>) {
    for (room, wanted) in [
        ("core", &["no_std", "forbid(unsafe_code)"][..]),
        ("share", &["no_std", "forbid(unsafe_code)"][..]),
        ("wire", &["forbid(unsafe_code)"][..]),
    ] {
        let path = format!("{room}/src/lib.rs");
        let Some(text) = tree.text(&path) else {
            continue;
        };
        for attribute in wanted {
            let says = |line: &str| line.starts_with("#![") && line.contains(attribute);
            if !text.lines().any(says) {
                let cure = format!("add `#![{attribute}]` below the docs");
                findings.push(Finding::new(
                    &path,
                    1,
                    format!("{room} does not say {attribute}"),
                    cure,
                ));
            }
        }
    }
}

fn arrows(tree: &Tree, findings: &mut Vec<Finding>) {
    for (room, may) in ARROWS {
        let path = format!("{room}/Cargo.toml");
        let mut section = "";
        for (index, line) in tree.text(&path).unwrap_or("").lines().enumerate() {
            if line.starts_with('[') {
                section = line;
            }
            let name = line.split([' ', '=', '.']).next().unwrap_or("");
            let ours = name.starts_with("ackpace") && !may.contains(&name);
            // Dependencies of tests do not count.
            if section.contains("dependencies") && !section.contains("dev-dependencies") && ours {
                let cure = "arrows point down the table of rooms in ARCHITECTURE.md, never back: move the shared part below both";
                findings.push(Finding::new(
                    &path,
                    index + 1,
                    format!("{room} knows {name}"),
                    cure,
                ));
            }
        }
    }
}

fn forbidden(
    path: &str,
    tokens: TokenStream,
    room: &str,
    words: &[(&str, &str)],
    findings: &mut Vec<Finding>,
) {
    // A word counts only in a path or as a macro's name: a field may be called `env`.
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => forbidden(path, group.stream(), room, words, findings),
            TokenTree::Ident(ident) if in_path(&tokens, index) => {
                let name = ident.to_string();
                if let Some((word, why)) = words.iter().find(|(word, _)| *word == name) {
                    let line = ident.span().start().line;
                    findings.push(Finding::new(
                        path,
                        line,
                        format!("`{word}` in {room}"),
                        *why,
                    ));
                }
            }
            _ => {}
        }
    }
}

/// Whether the word stands beside a `::`, before a `!`, in a group of `use`, or is a type's name.
fn in_path(tokens: &[TokenTree], index: usize) -> bool {
    let punct = |at: Option<usize>, sign: char| {
        at.and_then(|at| tokens.get(at))
            .is_some_and(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == sign))
    };
    let before = |sign| punct(index.checked_sub(1), sign) && punct(index.checked_sub(2), sign);
    let after = |sign| punct(Some(index + 1), sign) && punct(Some(index + 2), sign);
    let type_name = matches!(&tokens[index], TokenTree::Ident(ident) if ident.to_string().starts_with(char::is_uppercase));
    let module = after(':')
        || (before(':')
            && !matches!(tokens.get(index + 1), Some(TokenTree::Punct(p)) if p.as_char() == '.'));
    module || punct(Some(index + 1), '!') || type_name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    const LIB: (&str, &str) = (
        "core/src/lib.rs",
        "//! Docs.\n#![cfg_attr(not(test), no_std)]\n#![forbid(unsafe_code)]\n",
    );

    #[test]
    fn clocks_and_random_order_are_not_for_the_core() {
        let code = "use std::time::Instant;\nfn f(env: u8) -> HashMap<u8, u8> {\n    g(env.now);\n    println!(\"x\")\n}\n\
                    #[cfg(test)]\nmod tests { use std::fs; }\n";
        assert_eq!(
            tidy::checked(check, &[LIB, ("core/src/a.rs", code)]),
            "core/src/a.rs:1: `std` in core; it is no_std: use core:: or alloc::\n\
             core/src/a.rs:2: `HashMap` in core; its order differs from run to run: use BTreeMap or an index\n\
             core/src/a.rs:4: `println` in core; it says nothing: return a value\n"
        );
    }

    #[test]
    fn a_parser_may_use_values_of_std_but_neither_clock_nor_files() {
        let code = "use std::time::{Duration, SystemTime};\nfn f() { SystemTime::now(); std::fs::read(\"x\"); }\n";
        assert_eq!(
            tidy::checked(check, &[("wire/src/a.rs", code)]),
            "wire/src/a.rs:2: `now` in wire; time is an argument\n\
             wire/src/a.rs:2: `fs` in wire; a parser opens nothing: take bytes\n"
        );
    }

    #[test]
    fn rustc_is_told_to_refuse_std_and_unsafe() {
        assert_eq!(
            tidy::checked(
                check,
                &[
                    ("core/src/lib.rs", "//! Docs.\n"),
                    ("wire/src/lib.rs", "//! Docs.\n")
                ]
            ),
            "core/src/lib.rs:1: core does not say no_std; add `#![no_std]` below the docs\n\
             core/src/lib.rs:1: core does not say forbid(unsafe_code); add `#![forbid(unsafe_code)]` below the docs\n\
             wire/src/lib.rs:1: wire does not say forbid(unsafe_code); add `#![forbid(unsafe_code)]` below the docs\n"
        );
    }

    #[test]
    fn arrows_point_one_way() {
        let manifest = "[package]\nname = \"ackpace-wire\"\n[dependencies]\nhttparse = \"1\"\nackpace-core = { path = \"../core\" }\n\
                        [dev-dependencies]\nackpace = { path = \"../server\" }\n";
        assert_eq!(
            tidy::checked(check, &[("wire/Cargo.toml", manifest)]),
            "wire/Cargo.toml:5: wire knows ackpace-core; \
             arrows point down the table of rooms in ARCHITECTURE.md, never back: move the shared part below both\n"
        );
    }
}
