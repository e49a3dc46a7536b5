//! How long files and functions are. What may have two jobs is listed, and so is what is usual in a crate; neither ever
//! fails, since some lists are long by nature.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::{Source, Tree};

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;
/// Crates whose functions are to be short: the lines of the median, and of the 90th percentile.
const USUAL_LINES: [(&str, [usize; 2]); 2] = [("core", [7, 24]), ("server", [8, 27])];

/// Long files and functions; tests at the foot of a file are not counted.
pub fn list(tree: &Tree) -> Vec<Finding> {
    let mut notes = Vec::new();
    for source in tree.sources() {
        let last = source.code.items.last();
        let lines = last.map_or(0, |item| item.span().end().line);
        if lines > FILE_LINES {
            let what = format!("note: {lines} lines without tests, more than {FILE_LINES}");
            notes.push(Finding::new(
                &source.path,
                1,
                what,
                "could it be two files?",
            ));
        }
        for function in functions(source) {
            let (name, lines) = (function.name, function.lines);
            if lines > FUNCTION_LINES {
                let what = format!("note: `{name}` has {lines} lines, more than {FUNCTION_LINES}");
                let cure = "could it be two functions?";
                notes.push(Finding::new(&source.path, function.start, what, cure));
            }
        }
    }
    notes
}

/// How long functions usually are, a line for each crate that has a bound.
pub fn usual(tree: &Tree) -> Vec<String> {
    let of_crate = |(name, [median_max, most_max]): (&str, [usize; 2])| {
        let functions = tree.code(name).flat_map(functions);
        let mut lines: Vec<usize> = functions.map(|function| function.lines).collect();
        lines.sort_unstable();
        let percentile = |percent: usize| lines.get(lines.len() * percent / 100).copied();
        let (median, most) = (percentile(50)?, percentile(90)?);
        Some(format!(
            "note: {name}: {} functions, {median} lines in the median (at most {median_max}), {most} at the 90th percentile \
             (at most {most_max})",
            lines.len()
        ))
    };
    USUAL_LINES.into_iter().filter_map(of_crate).collect()
}

/// A function that is not a test's.
struct Function {
    name: String,
    /// Its first line, counted from 1.
    start: usize,
    lines: usize,
}

fn functions(source: &Source) -> Vec<Function> {
    let mut functions = Functions(Vec::new());
    functions.visit_file(&source.code);
    functions.0
}

struct Functions(Vec<Function>);

impl Functions {
    fn one(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let start = signature.fn_token.span().start().line;
        let end = block.span().end().line;
        self.0.push(Function {
            name: signature.ident.to_string(),
            start,
            lines: end + 1 - start,
        });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.one(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.one(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn a_function_of_71_lines_is_listed_and_one_of_70_is_not() {
        let of = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        assert_eq!(
            messages(&list(&Tree::of(&[("core/src/a.rs", &of(70))]))),
            ""
        );
        assert_eq!(
            messages(&list(&Tree::of(&[("core/src/a.rs", &of(71))]))),
            "core/src/a.rs:1: note: `a` has 71 lines, more than 70; could it be two functions?\n"
        );
    }

    #[test]
    fn a_file_of_501_lines_is_listed_and_one_of_500_is_not() {
        let tests = "#[cfg(test)]\nmod tests {}\n";
        let of = |lines: usize| format!("{}{tests}", "use a;\n".repeat(lines));
        let tree = |lines: usize| Tree::of(&[("core/src/a.rs", &of(lines))]);
        assert_eq!(messages(&list(&tree(500))), "");
        assert_eq!(
            messages(&list(&tree(501))),
            "core/src/a.rs:1: note: 501 lines without tests, more than 500; could it be two files?\n"
        );
    }

    #[test]
    fn what_is_usual_leaves_out_tests_and_other_crates() {
        let of = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        let tested = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", of(3), of(90));
        let tree = Tree::of(&[
            ("core/src/a.rs", &tested),
            ("core/src/b.rs", &of(9)),
            ("core/src/worker/tests/c.rs", &of(90)),
            ("lab/src/d.rs", &of(90)),
        ]);
        assert_eq!(
            usual(&tree),
            [
                "note: core: 2 functions, 9 lines in the median (at most 7), 9 at the 90th percentile (at most 24)"
            ]
        );
    }
}
