//! A constant that bounds something says beside it why it is what it is, and what happens when it is reached.

use syn::visit::{self, Visit};

use super::Finding;
use crate::tree::{Tree, line_of};

/// A name with one of these words is a bound.
const WORDS: [&str; 4] = ["MAX", "LIMIT", "LIMITS", "CAPACITY"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for room in [
        "core",
        "share",
        "wire",
        "server",
        "host",
        "host/base",
        "receive",
    ] {
        for source in tree.code(room) {
            let mut bounds = Bounds {
                path: &source.path,
                findings: &mut findings,
            };
            bounds.visit_file(&source.code);
        }
    }
    findings
}

struct Bounds<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Bounds<'_> {
    fn one(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        let text = name.to_string();
        let is_bound = text.split('_').any(|word| WORDS.contains(&word));
        if is_bound && !attributes.iter().any(|one| one.path().is_ident("doc")) {
            let what = format!("`{text}` is a bound without a reason");
            let cure = "say above it why it is that much and what happens at it";
            self.findings
                .push(Finding::new(self.path, line_of(name), what, cure));
        }
    }
}

impl<'ast> Visit<'ast> for Bounds<'_> {
    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        // `const A_MAX: usize = limits::A_MAX` only introduces a shorter name.
        if !matches!(&*item.expr, syn::Expr::Path(_)) {
            self.one(&item.ident, &item.attrs);
        }
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.one(&item.ident, &item.attrs);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.one(&item.ident, &item.attrs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn a_bound_without_a_reason_is_found() {
        let code = "const HEAD_BYTES_MAX: usize = 1;\nconst MAXIMAL: u8 = 1;\n\
                    /// As long as the protocol allows. Longer: 431.\nconst NAME_BYTES_MAX: u64 = 2;\n\
                    const SHORT_MAX: u64 = NAME_BYTES_MAX;\n";
        assert_eq!(
            tidy::checked(check, &[("wire/src/http.rs", code)]),
            "wire/src/http.rs:1: `HEAD_BYTES_MAX` is a bound without a reason; \
             say above it why it is that much and what happens at it\n"
        );
    }
}
