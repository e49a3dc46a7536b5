//! How long files and functions are, how deep functions nest, and how long they usually are in a crate.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::{Source, Tree};

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;
/// Control structures, one inside another.
const NESTING: usize = 5;
/// Crates whose functions are to be short: the lines of the median, and of the 90th percentile.
const USUAL_LINES: [(&str, [usize; 2]); 2] = [("core", [7, 24]), ("server", [8, 27])];

/// Long files, long functions and functions that nest deeply; tests are not counted.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.sources() {
        let last = source.code.items.last();
        let lines = last.map_or(0, |item| item.span().end().line);
        let mut find = |line: usize, what: String, cure: &str| {
            findings.push(Finding::new(&source.path, line, what, cure));
        };
        if lines > FILE_LINES {
            let what = format!("{lines} lines without tests, more than {FILE_LINES}");
            find(1, what, "make it two files, one for each of its jobs");
        }
        for function in functions(source) {
            let (name, lines, nesting) = (function.name, function.lines, function.nesting);
            if lines > FUNCTION_LINES {
                let what = format!("`{name}` has {lines} lines, more than {FUNCTION_LINES}");
                find(function.start, what, "make it two functions");
            }
            if nesting > NESTING {
                let what = format!("`{name}` nests {nesting} deep, more than {NESTING}");
                find(function.start, what, "make the inner part a function");
            }
        }
    }
    findings
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
    /// The most control structures around one of its statements.
    nesting: usize,
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
            nesting: nesting(block),
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

fn nesting(block: &syn::Block) -> usize {
    let mut nesting = Nesting::default();
    nesting.visit_block(block);
    nesting.deepest
}

/// Walks the body of a function. An `else if` is as deep as its `if`.
#[derive(Default)]
struct Nesting {
    depth: usize,
    deepest: usize,
}

impl Nesting {
    fn inside(&mut self, walk: impl FnOnce(&mut Self)) {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        walk(self);
        self.depth -= 1;
    }
}

impl<'ast> Visit<'ast> for Nesting {
    /// Functions within functions are judged by themselves.
    fn visit_item(&mut self, _: &'ast syn::Item) {}

    fn visit_expr_if(&mut self, expr: &'ast syn::ExprIf) {
        self.visit_expr(&expr.cond);
        self.inside(|walk| walk.visit_block(&expr.then_branch));
        match &expr.else_branch {
            Some((_, other)) if matches!(**other, syn::Expr::If(_)) => self.visit_expr(other),
            Some((_, other)) => self.inside(|walk| walk.visit_expr(other)),
            None => {}
        }
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.visit_expr(&expr.expr);
        self.inside(|walk| expr.arms.iter().for_each(|arm| walk.visit_arm(arm)));
    }

    fn visit_expr_for_loop(&mut self, expr: &'ast syn::ExprForLoop) {
        self.visit_expr(&expr.expr);
        self.inside(|walk| walk.visit_block(&expr.body));
    }

    fn visit_expr_while(&mut self, expr: &'ast syn::ExprWhile) {
        self.visit_expr(&expr.cond);
        self.inside(|walk| walk.visit_block(&expr.body));
    }

    fn visit_expr_loop(&mut self, expr: &'ast syn::ExprLoop) {
        self.inside(|walk| walk.visit_block(&expr.body));
    }

    fn visit_expr_closure(&mut self, expr: &'ast syn::ExprClosure) {
        match *expr.body {
            syn::Expr::Block(_) => self.inside(|walk| walk.visit_expr(&expr.body)),
            _ => self.visit_expr(&expr.body),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        let of = |lines: usize| format!("fn a() {{\n{}}}\n", "    b();\n".repeat(lines - 2));
        assert_eq!(tidy::checked(check, &[("core/src/a.rs", &of(70))]), "");
        assert_eq!(
            tidy::checked(check, &[("core/src/a.rs", &of(71))]),
            "core/src/a.rs:1: `a` has 71 lines, more than 70; make it two functions\n"
        );
    }

    #[test]
    fn a_file_of_501_lines_is_found_and_one_of_500_is_not() {
        let tests = "#[cfg(test)]\nmod tests {}\n";
        let of = |lines: usize| format!("{}{tests}", "use a;\n".repeat(lines));
        let found = |lines: usize| tidy::checked(check, &[("core/src/a.rs", &of(lines))]);
        assert_eq!(found(500), "");
        assert_eq!(
            found(501),
            "core/src/a.rs:1: 501 lines without tests, more than 500; make it two files, one for each of its jobs\n"
        );
    }

    #[test]
    fn nesting_counts_control_structures_around_a_statement() {
        let of = |body: &str| {
            let tree = Tree::of(&[("core/src/a.rs", &format!("fn a() {{ {body} }}\n"))]);
            functions(&tree.sources()[0])[0].nesting
        };
        assert_eq!(of("b(if x { 1 } else { 2 });"), 1);
        assert_eq!(of("if x { b() } else if y { b() } else { c() }"), 1);
        assert_eq!(
            of("for b in c { if let Some(x) = b { match x { 1 => d(), _ => {} } } }"),
            3
        );
        assert_eq!(of("loop { while b { c.map(|d| { e(d); f() }) } }"), 3);
        assert_eq!(of("b.map(|c| c + 1); fn inner() { if x { loop {} } }"), 0);
    }

    #[test]
    fn a_function_that_nests_six_deep_is_found_and_one_that_nests_five_is_not() {
        let of = |deep: usize| {
            format!(
                "fn a() {{ {}{} }}\n",
                "if x { ".repeat(deep),
                "}".repeat(deep)
            )
        };
        assert_eq!(tidy::checked(check, &[("core/src/a.rs", &of(5))]), "");
        assert_eq!(
            tidy::checked(check, &[("core/src/a.rs", &of(6))]),
            "core/src/a.rs:1: `a` nests 6 deep, more than 5; make the inner part a function\n"
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
