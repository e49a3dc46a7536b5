//! The walks in ARCHITECTURE.md: tables that lead through files by the functions in them. Each function is where the table
//! says, and the walks that have a bound keep it.

use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::Tree;

const MAP: &str = "ARCHITECTURE.md";
/// The head of such a table.
const HEAD: &str = "| | file: function |";
/// Begin of a title, and how many files the walk below it may pass.
const BOUNDS: [(&str, usize); 3] = [
    ("## A request", 5),
    ("## A cold byte", 9),
    ("## A reset", 5),
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut title, mut within, mut files) = ("", false, 0);
    for (nth, line) in tree.text(MAP).unwrap_or_default().lines().enumerate() {
        within = line.starts_with(HEAD) || within && line.starts_with('|');
        match line {
            _ if line.starts_with("## ") => (title, files) = (line, 0),
            _ if !within || line.starts_with(HEAD) || line.starts_with("|---") => {}
            row => {
                files += 1;
                findings.extend(row_findings(tree, row, nth + 1));
                let bound = BOUNDS.iter().find(|(begin, _)| title.starts_with(begin));
                if let Some((_, most)) = bound.filter(|(_, most)| files == most + 1) {
                    findings.push(Finding::new(
                        MAP,
                        nth + 1,
                        format!("`{title}` passes more than {most} files"),
                        "merge two of them, or cut one out of the way",
                    ));
                }
            }
        }
    }
    findings
}

/// What is wrong with a row: `| 1 | `path`: `function`, `function` | ... |`.
fn row_findings(tree: &Tree, row: &str, line: usize) -> Vec<Finding> {
    let cell = row.split('|').nth(2).unwrap_or_default();
    let mut names = cell.split('`').skip(1).step_by(2);
    let path = names.next().unwrap_or_default();
    let Some(source) = tree.sources().iter().find(|source| source.path == path) else {
        let what = format!("`{path}` is no Rust file of the tree");
        return vec![Finding::new(MAP, line, what, "say which file it is now")];
    };
    let mut defined = Defined(Vec::new());
    defined.visit_file(&source.code);
    let lacking = names.filter(|name| !defined.0.iter().any(|defined| defined == name));
    let finding = |name: &str| {
        let what = format!("`{path}` has no function `{name}`");
        Finding::new(
            MAP,
            line,
            what,
            "walk this way again, and name what is there",
        )
    };
    lacking.map(finding).collect()
}

/// The functions of a file.
struct Defined(Vec<String>);

impl<'ast> Visit<'ast> for Defined {
    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.0.push(signature.ident.to_string());
        visit::visit_signature(self, signature);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    const CODE: &str = "fn on() {}\nimpl A { fn poll(&self) {} }\n";

    #[test]
    fn a_walk_by_functions_that_are_there_is_right() {
        let map = "## A reset\n| | file: function | asks |\n|---|---|---|\n| 1 | `core/src/a.rs`: `on`, `poll` | `b.rs` |\n";
        let tree = Tree::of(&[(MAP, map), ("core/src/a.rs", CODE)]);
        assert_eq!(messages(&check(&tree)), "");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let map = "| | file: function |\n|---|---|\n| 1 | `core/src/a.rs`: `off` |\n| 2 | `core/src/b.rs`: `on` |\n\n| 3 | `c` |\n";
        let tree = Tree::of(&[(MAP, map), ("core/src/a.rs", CODE)]);
        assert_eq!(
            messages(&check(&tree)),
            "ARCHITECTURE.md:3: `core/src/a.rs` has no function `off`; walk this way again, and name what is there\n\
             ARCHITECTURE.md:4: `core/src/b.rs` is no Rust file of the tree; say which file it is now\n"
        );
    }

    #[test]
    fn a_walk_with_a_bound_may_not_grow_beyond_it() {
        let row = "| | `core/src/a.rs`: `on` |\n";
        let map = |title: &str| format!("{title}\n| | file: function |\n{}", row.repeat(6));
        let of = |title: &str| check(&Tree::of(&[(MAP, &map(title)), ("core/src/a.rs", CODE)]));
        assert_eq!(
            messages(&of("## A reset, on its way")),
            "ARCHITECTURE.md:8: `## A reset, on its way` passes more than 5 files; merge two of them, or cut one out of the way\n"
        );
        assert_eq!(messages(&of("## An ACK")), "");
    }
}
