//! Lines of text: white space, line ends, file sizes, and forbidden words.

use super::Finding;
use crate::tree::Tree;

/// Larger files are data: they belong outside the tree, or are generated.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Written in pieces, so that this file does not contain them.
const FORBIDDEN: &[(&str, &str)] = &[
    (
        concat!("/wo", "rk/"),
        "a path of one machine; write a relative one",
    ),
    (
        concat!("/ro", "ot/"),
        "a path of one machine; write a relative one, or `~/`",
    ),
    (
        concat!("/ho", "me/"),
        "a path of one machine; write a relative one, or `~/`",
    ),
    (
        concat!("// TO", "DO"),
        "unfinished work; finish it, or file an issue",
    ),
    (
        concat!("TO", "DO:"),
        "unfinished work; finish it, or file an issue",
    ),
    (
        concat!("// FIX", "ME"),
        "unfinished work; finish it, or file an issue",
    ),
    (
        concat!("FIX", "ME:"),
        "unfinished work; finish it, or file an issue",
    ),
    (
        concat!("to", "do!("),
        "a stub; write it, or leave the item out",
    ),
    (
        concat!("unimple", "mented!("),
        "a stub; write it, or leave the item out",
    ),
    (concat!("db", "g!("), "left from debugging; delete it"),
    (concat!("<<<", "<<<< "), "left from a merge; mend it"),
    (concat!(">>>", ">>>> "), "left from a merge; mend it"),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        if file.len_bytes > FILE_BYTES_MAX {
            let what = format!("{} bytes, more than {FILE_BYTES_MAX}", file.len_bytes);
            findings.push(Finding::new(
                &file.path,
                1,
                what,
                "generate it, or keep it outside the tree",
            ));
        }
    }
    // Fuzz seeds are raw bytes, and a licence is quoted verbatim.
    for (path, text) in tree
        .texts()
        .filter(|(path, _)| !path.contains("/corpus/") && !path.starts_with("LICENSE"))
    {
        lines(path, text, &mut findings);
    }
    findings
}

fn lines(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let rust = path.ends_with(".rs");
    for (index, line) in text.split('\n').enumerate() {
        let mut find =
            |what: &str, cure: &str| findings.push(Finding::new(path, index + 1, what, cure));
        if line.ends_with('\r') {
            find("the line ends in CR LF", "write LF alone");
        } else if line.ends_with([' ', '\t']) {
            find("white space at the end of the line", "delete it");
        }
        if rust && line.contains('\t') {
            find("a tab", "write four spaces, or \\t in a literal");
        }
        for (word, why) in FORBIDDEN {
            if contains(line, word) {
                let (what, cure) = why.split_once("; ").unwrap_or((why, "delete it"));
                find(&format!("`{word}` is {what}"), cure);
            }
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        let last = text.split('\n').count();
        findings.push(Finding::new(
            path,
            last,
            "no end of line at the end of the file",
            "add one",
        ));
    }
}

/// Whether a line contains the word at the start of a path: `self/x/` does not count.
fn contains(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "_.-~".contains(c);
    line.match_indices(word)
        .any(|(at, _)| !word.starts_with('/') || !line[..at].ends_with(inside))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn white_space_and_line_ends_are_named_with_their_line() {
        let tree = Tree::of(&[("a.rs", "one\ntwo \n\tthree\nfour\r\nfive")]);
        assert_eq!(
            messages(&check(&tree)),
            "a.rs:2: white space at the end of the line; delete it\n\
             a.rs:3: a tab; write four spaces, or \\t in a literal\n\
             a.rs:4: the line ends in CR LF; write LF alone\n\
             a.rs:5: no end of line at the end of the file; add one\n"
        );
    }

    #[test]
    fn paths_of_a_machine_and_stubs_are_forbidden() {
        let text = format!(
            "see {0}x but self{0}x\n{1} later\n",
            FORBIDDEN[0].0, FORBIDDEN[3].0
        );
        let expected = format!(
            "a.md:1: `{}` is a path of one machine; write a relative one\n\
             a.md:2: `{}` is unfinished work; finish it, or file an issue\n",
            FORBIDDEN[0].0, FORBIDDEN[3].0
        );
        assert_eq!(messages(&check(&Tree::of(&[("a.md", &text)]))), expected);
    }

    #[test]
    fn seeds_and_tabs_of_a_makefile_are_left_alone() {
        let tree = Tree::of(&[
            ("Makefile", "a:\n\tb\n"),
            ("fuzz/corpus/request/1", "GET / \r\n \t"),
        ]);
        assert_eq!(messages(&check(&tree)), "");
    }

    #[test]
    fn a_file_may_have_one_mebibyte_and_not_a_byte_more() {
        let full = "x".repeat((1 << 20) - 1) + "\n";
        assert_eq!(messages(&check(&Tree::of(&[("a.txt", &full)]))), "");
        let above = format!("x{full}");
        assert_eq!(
            messages(&check(&Tree::of(&[("a.txt", &above)]))),
            "a.txt:1: 1048577 bytes, more than 1048576; generate it, or keep it outside the tree\n"
        );
    }
}
