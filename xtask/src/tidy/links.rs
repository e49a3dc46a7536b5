//! Links in documents: their files and headings exist, paths in code spans exist, and each document has one title.
//! Rust files that comments name exist, too.

use std::collections::BTreeMap;

use super::Finding;
use super::markdown::{self, Document};
use crate::tree::Tree;

/// Generated folders: documents may name them, though they are not in the tree.
const GENERATED: [&str; 3] = ["target", "demo", "results"];

/// A word in code with one of these suffixes is taken for a file of the tree.
const ENDS: [&str; 8] = [".rs", ".md", ".toml", ".sh", ".c", ".h", ".conf", ".awk"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let documents: BTreeMap<&str, Document> = tree
        .texts()
        .filter(|(path, _)| path.ends_with(".md"))
        .map(|(path, text)| (path, markdown::read(text)))
        .collect();
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        comments(tree, path, text, &mut findings);
    }
    for (path, document) in &documents {
        titles(path, document, &mut findings);
        for (line, target) in &document.links {
            link(tree, &documents, path, *line, target, &mut findings);
        }
        let map = *path == "ARCHITECTURE.md";
        let fenced = document.fenced.iter().filter(|_| map);
        for (line, code) in document.spans.iter().chain(fenced) {
            for word in code.split_whitespace() {
                if let Some(named) = path_in(tree, word, map) {
                    named_file(tree, path, *line, named, &mut findings);
                }
            }
        }
    }
    findings
}

/// A comment that names a file says where to read on: `disk.rs`, `core/src/disk.rs`.
fn comments(tree: &Tree, path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, line)| line.trim_start().starts_with("//")) {
        let spans = line.split('`').skip(1).step_by(2);
        let plain = |c: char| c.is_ascii_alphanumeric() || "_./{},-".contains(c);
        for named in spans.filter(|span| span.ends_with(".rs") && span.chars().all(plain)) {
            named_file(tree, path, index + 1, named, findings);
        }
    }
}

fn named_file(tree: &Tree, path: &str, line: usize, named: &str, findings: &mut Vec<Finding>) {
    if !exists(tree, path, named) {
        let what = format!("`{named}` does not exist");
        let cure = "name what is there now, or delete the mention";
        findings.push(Finding::new(path, line, what, cure));
    }
}

fn titles(path: &str, document: &Document, findings: &mut Vec<Finding>) {
    let mut titles = document
        .headings
        .iter()
        .filter(|heading| heading.level == 1);
    match (titles.next(), titles.next()) {
        (None, _) => findings.push(Finding::new(
            path,
            1,
            "no title",
            "begin with a line `# Title`",
        )),
        (_, Some(second)) => {
            let what = format!("a second title `{}`", second.text);
            findings.push(Finding::new(
                path,
                second.line,
                what,
                "make it `##`, or a document of its own",
            ));
        }
        _ => {}
    }
}

fn link(
    tree: &Tree,
    documents: &BTreeMap<&str, Document>,
    path: &str,
    line: usize,
    target: &str,
    findings: &mut Vec<Finding>,
) {
    if target.contains("://") || target.starts_with("mailto:") {
        return; // external: a check would need a network
    }
    let (file, wanted) = target
        .split_once('#')
        .map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let full = if file.is_empty() {
        path.to_string()
    } else {
        beside(path, file)
    };
    if !tree.is_file(&full) && !tree.is_folder(full.trim_end_matches('/')) {
        let what = format!("dead link: `{full}` does not exist");
        findings.push(Finding::new(
            path,
            line,
            what,
            "link to what is there now, or delete the link",
        ));
    } else if let (Some(wanted), Some(document)) = (wanted, documents.get(full.as_str())) {
        let anchors: Vec<String> = document
            .headings
            .iter()
            .map(|heading| markdown::anchor(&heading.text))
            .collect();
        let by_id = tree
            .text(&full)
            .is_some_and(|text| text.contains(&format!("id=\"{wanted}\"")));
        if !by_id && !anchors.iter().any(|anchor| anchor == wanted) {
            let what = format!("dead link: `{full}` has no heading #{wanted}");
            findings.push(Finding::new(
                path,
                line,
                what,
                format!("choose of: {}", anchors.join(" ")),
            ));
        }
    }
}

/// Resolves `target` relative to the folder of `path`.
fn beside(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The path of the tree that a word in code names, if it is one. The map has a wider definition of a path.
fn path_in<'a>(tree: &Tree, word: &'a str, map: bool) -> Option<&'a str> {
    let word = word
        .trim_start_matches(['(', '"', '\''])
        .trim_end_matches([',', ';', ':', '.', ')', '"', '\'']);
    // Drops a line number, as in core/src/disk.rs:12.
    let word = match word.rsplit_once(':') {
        Some((path, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => path,
        _ => word,
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./{},*-".contains(c);
    let (first, _) = word.split_once('/').unwrap_or((word, ""));
    if word.is_empty()
        || !word.chars().all(plain)
        || word.contains("NNNN")
        || GENERATED.contains(&first)
    {
        return None;
    }
    let has_end = ENDS
        .iter()
        .any(|end| word.len() > end.len() && word.ends_with(end));
    let in_room = word.contains('/') && !first.is_empty() && tree.is_folder(first);
    let taken = word.ends_with(".rs")
        || in_room
        || (map && word.contains('/') && (has_end || word.ends_with('/')));
    taken.then_some(word)
}

/// Accepts whole paths, paths beside the document, and ends of paths: a section on `core/src` may say `disk.rs`.
fn exists(tree: &Tree, document: &str, named: &str) -> bool {
    spread(named).iter().all(|path| {
        let path = path.trim_end_matches('/');
        let folder = beside(document, path);
        let end = format!("/{path}");
        let fits = |there: &str| {
            there == path || there == folder || matches(there, path) || there.ends_with(&end)
        };
        tree.files().any(|file| fits(&file.path)) || tree.folders().any(fits)
    })
}

/// Expands braces: `a/{b,c}.md` -> `a/b.md`, `a/c.md`.
fn spread(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else {
        return vec![path.to_string()];
    };
    let Some((choices, after)) = rest.split_once('}') else {
        return vec![path.to_string()];
    };
    choices
        .split(',')
        .flat_map(|choice| spread(&format!("{before}{choice}{after}")))
        .collect()
}

/// Whether a path matches a pattern in which `*` stands for any text.
fn matches(path: &str, pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return path == pattern;
    };
    path.strip_prefix(before).is_some_and(|rest| {
        let after = after.trim_start_matches('*');
        (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(&rest[at..], after))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    fn checked(path: &str, text: &str) -> String {
        let files = [
            (path, text),
            ("core/src/disk.rs", ""),
            ("core/src/sndbuf/atbt.rs", ""),
            ("docs/other.md", "# Other\n## A heading\n"),
        ];
        tidy::checked(check, &files)
    }

    #[test]
    fn dead_links_are_named_and_live_ones_pass() {
        assert_eq!(
            checked(
                "docs/a.md",
                "# A\n[1](other.md#a-heading) [2](../core/src) [3](#a) [4](https://x.org/y)\n[5](gone.md) [6](other.md#b)\n"
            ),
            "docs/a.md:3: dead link: `docs/gone.md` does not exist; link to what is there now, or delete the link\n\
             docs/a.md:3: dead link: `docs/other.md` has no heading #b; choose of: other a-heading\n"
        );
    }

    #[test]
    fn paths_in_code_spans_must_exist() {
        let good = "# A\n`core/src/disk.rs:7`, `disk.rs`, `sndbuf/atbt.rs`, `core/`, `core/src/{disk,sndbuf/atbt}.rs`, \
                    `core/src/*.rs`, `target/release/ackpace`, `application/json`, `docs/decisions/NNNN-title.md`\n";
        assert_eq!(checked("README.md", good), "");
        assert_eq!(
            checked(
                "README.md",
                "# A\n`core/src/gone.rs` and\n`cache.rs` or `cat core/none`\n"
            ),
            "README.md:2: `core/src/gone.rs` does not exist; name what is there now, or delete the mention\n\
             README.md:3: `cache.rs` does not exist; name what is there now, or delete the mention\n\
             README.md:3: `core/none` does not exist; name what is there now, or delete the mention\n"
        );
    }

    #[test]
    fn rust_files_in_comments_must_exist() {
        let good = "//! See `disk.rs` and `sndbuf/{atbt}.rs`; `x.rs().y` is code.\nfn a() {} // `none.rs`\n";
        assert_eq!(checked("core/src/a.rs", good), "");
        assert_eq!(
            checked("core/src/a.rs", "//! See `way.rs`.\n"),
            "core/src/a.rs:1: `way.rs` does not exist; name what is there now, or delete the mention\n"
        );
    }

    #[test]
    fn in_the_map_fenced_lines_and_folders_count_too() {
        let text = "# Map\n```\ncore/src/   policy\nbpf/   later\n```\n";
        assert_eq!(
            checked("ARCHITECTURE.md", text),
            "ARCHITECTURE.md:4: `bpf/` does not exist; name what is there now, or delete the mention\n"
        );
        assert_eq!(checked("README.md", text), "");
    }

    #[test]
    fn a_document_has_one_title() {
        assert_eq!(
            checked("docs/a.md", "text\n"),
            "docs/a.md:1: no title; begin with a line `# Title`\n"
        );
        assert_eq!(
            checked("docs/a.md", "# A\n```\n# no title\n```\n# B\n"),
            "docs/a.md:5: a second title `B`; make it `##`, or a document of its own\n"
        );
    }
}
