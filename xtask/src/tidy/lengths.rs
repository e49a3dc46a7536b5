//! Files and functions that may have two jobs. They are listed but never fail: some lists are long by nature.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::Tree;

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

pub fn list(tree: &Tree) -> Vec<Finding> {
    let mut notes = Vec::new();
    for source in tree.sources() {
        let lines = tree
            .text(&source.path)
            .map_or(0, |text| text.lines().count());
        if lines > FILE_LINES {
            let what = format!("note: {lines} lines, more than {FILE_LINES}");
            notes.push(Finding::new(
                &source.path,
                1,
                what,
                "could it be two files?",
            ));
        }
        let mut functions = Functions {
            path: &source.path,
            notes: &mut notes,
        };
        functions.visit_file(&source.code);
    }
    notes
}

struct Functions<'a> {
    path: &'a str,
    notes: &'a mut Vec<Finding>,
}

impl Functions<'_> {
    fn one(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (start, end) = (
            signature.fn_token.span().start().line,
            block.span().end().line,
        );
        let lines = end + 1 - start;
        if lines > FUNCTION_LINES {
            let what = format!(
                "note: `{}` has {lines} lines, more than {FUNCTION_LINES}",
                signature.ident
            );
            self.notes.push(Finding::new(
                self.path,
                start,
                what,
                "could it be two functions?",
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
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
        let tree = |lines: usize| Tree::of(&[("core/src/a.rs", &"// a\n".repeat(lines))]);
        assert_eq!(messages(&list(&tree(500))), "");
        assert_eq!(
            messages(&list(&tree(501))),
            "core/src/a.rs:1: note: 501 lines, more than 500; could it be two files?\n"
        );
    }
}
