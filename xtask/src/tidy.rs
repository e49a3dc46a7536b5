//! The house rules that a program can check. Each check is a function of the tree, with its tests below it.

mod cycles;
mod lengths;
mod limits;
mod links;
mod map;
mod markdown;
mod options;
mod pure;

use std::fmt;

use crate::tree::Tree;

/// A broken rule: where, what, and what to do.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the root of the tree.
    pub path: String,
    /// Counted from 1; 1 also stands for the whole file.
    pub line: usize,
    /// The broken rule.
    pub what: String,
    /// How to fix it.
    pub cure: String,
}

impl Finding {
    pub fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Finding {
        Finding {
            path: path.to_string(),
            line: line.max(1),
            what: what.into(),
            cure: cure.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}; {}",
            self.path, self.line, self.what, self.cure
        )
    }
}

/// Findings that must be fixed before a change lands, in order of path and line.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let checks: [fn(&Tree) -> Vec<Finding>; 8] = [
        cycles::check,
        lengths::check,
        limits::check,
        links::check,
        map::check,
        options::check,
        pure::check,
        unparsed,
    ];
    let mut findings: Vec<Finding> = checks.iter().flat_map(|check| check(tree)).collect();
    findings.sort();
    findings.dedup();
    findings
}

/// Remarks that do not fail the check: how long functions usually are.
pub fn notes(tree: &Tree) -> Vec<String> {
    lengths::usual(tree)
}

fn unparsed(tree: &Tree) -> Vec<Finding> {
    let finding = |(path, line, message): &(String, usize, String)| {
        Finding::new(
            path,
            *line,
            format!("cannot be parsed: {message}"),
            "see what rustc says of it",
        )
    };
    tree.unparsed().iter().map(finding).collect()
}

/// What a check finds in these files: path and text of each.
#[cfg(test)]
fn checked(check: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> String {
    let findings = check(&Tree::of(files));
    findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_of_all_checks_come_sorted() {
        let files = [("b.md", "# [a](c.md)\n"), ("a.rs", "fn 1() {}\n")];
        assert_eq!(
            checked(findings, &files),
            "a.rs:1: cannot be parsed: expected identifier; see what rustc says of it\n\
             b.md:1: dead link: `c.md` does not exist; link to what is there now, or delete the link\n"
        );
    }
}
