//! Bounds live together: a constant that bounds something is in the crate's `limits.rs`, with its reason and its effect
//! when hit.

use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::{Tree, line_of};

/// A name with one of these words is a bound.
const WORDS: [&str; 4] = ["MAX", "LIMIT", "LIMITS", "CAPACITY"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in ["core", "wire", "server", "host"] {
        for source in tree.code(room).filter(|source| !is_limits(&source.path)) {
            let mut bounds = Bounds {
                room,
                path: &source.path,
                findings: &mut findings,
            };
            bounds.visit_file(&source.code);
        }
    }
    findings
}

fn is_limits(path: &str) -> bool {
    path.ends_with("/limits.rs") || path.contains("/limits/")
}

struct Bounds<'a> {
    room: &'a str,
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Bounds<'_> {
    fn one(&mut self, name: &syn::Ident) {
        if name
            .to_string()
            .split('_')
            .any(|word| WORDS.contains(&word))
        {
            let cure = format!(
                "move it to {}/src/limits.rs, with why it is and what happens at it",
                self.room
            );
            self.findings.push(Finding::new(
                self.path,
                line_of(name),
                format!("`{name}` is a bound"),
                cure,
            ));
        }
    }
}

impl<'ast> Visit<'ast> for Bounds<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        // `const A_MAX: usize = limits::A_MAX` only introduces a shorter name.
        let names_a_limit = matches!(&*item.expr, syn::Expr::Path(path)
            if path.path.segments.iter().any(|segment| segment.ident == "limits"));
        if !names_a_limit {
            self.one(&item.ident);
        }
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.one(&item.ident);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.one(&item.ident);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn a_bound_outside_limits_is_sent_there() {
        let code = "const HEAD_BYTES_MAX: usize = 1;\nconst MAXIMAL: u8 = 1;\nfn f() {\n    const LIMIT_US: u64 = 2;\n}\n";
        assert_eq!(
            messages(&check(&Tree::of(&[("wire/src/http.rs", code)]))),
            "wire/src/http.rs:1: `HEAD_BYTES_MAX` is a bound; \
             move it to wire/src/limits.rs, with why it is and what happens at it\n\
             wire/src/http.rs:4: `LIMIT_US` is a bound; \
             move it to wire/src/limits.rs, with why it is and what happens at it\n"
        );
    }

    #[test]
    fn limits_itself_tests_and_short_names_are_free() {
        let tree = Tree::of(&[
            ("core/src/limits.rs", "pub const A_MAX: u8 = 1;\n"),
            (
                "core/src/a.rs",
                "#[cfg(test)]\nmod tests { const ROUNDS_MAX: u8 = 1; }\n",
            ),
            ("core/src/b.rs", "const A_MAX: u8 = crate::limits::A_MAX;\n"),
            ("lab/src/main.rs", "const ROUNDS_MAX: u8 = 1;\n"),
        ]);
        assert_eq!(messages(&check(&tree)), "");
    }
}
