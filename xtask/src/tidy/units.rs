//! In the core, bytes and times are integers: floats would round, and differ between machines.

use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Expr, Lit, Pat, Type};

use super::Finding;
use super::documented::line_of;
use crate::tree::Tree;

/// A name with one of these words is a size or a time. `_s` alone does not count: it also ends `bytes_per_s`, which has
/// `bytes`.
const WORDS: [&str; 5] = ["bytes", "us", "ms", "ns", "pages"];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in tree.code("core") {
        let mut floats = Floats {
            path: &source.path,
            findings: &mut findings,
        };
        floats.visit_file(&source.code);
    }
    findings
}

struct Floats<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Floats<'_> {
    fn one(&mut self, name: &syn::Ident, is_float: bool) {
        if is_float
            && name
                .to_string()
                .split('_')
                .any(|word| WORDS.contains(&word))
        {
            let cure =
                "make it an integer; floats are for ratios (units.rs multiplies before it divides)";
            self.findings.push(Finding::new(
                self.path,
                line_of(name),
                format!("`{name}` is a float"),
                cure,
            ));
        }
    }

    fn pattern(&mut self, pattern: &Pat, is_float: bool) {
        match pattern {
            Pat::Ident(name) => self.one(&name.ident, is_float),
            Pat::Type(typed) => self.pattern(&typed.pat, type_is_float(&typed.ty)),
            _ => {}
        }
    }
}

fn type_is_float(of: &Type) -> bool {
    let text = of.to_token_stream().to_string();
    text.split(|c: char| !c.is_alphanumeric())
        .any(|word| word == "f64" || word == "f32")
}

fn value_is_float(value: &Expr) -> bool {
    match value {
        Expr::Cast(cast) => type_is_float(&cast.ty),
        Expr::Lit(literal) => matches!(literal.lit, Lit::Float(_)),
        Expr::Paren(inner) => value_is_float(&inner.expr),
        Expr::Binary(binary) => value_is_float(&binary.left) || value_is_float(&binary.right),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Floats<'_> {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.one(name, type_is_float(&field.ty));
        }
        visit::visit_field(self, field);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        // Names of constants are in upper case.
        let name = syn::Ident::new(&item.ident.to_string().to_lowercase(), item.ident.span());
        self.one(&name, type_is_float(&item.ty));
        visit::visit_item_const(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let syn::ReturnType::Type(_, returned) = &signature.output {
            self.one(&signature.ident, type_is_float(returned));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_pat_type(&mut self, argument: &'ast syn::PatType) {
        self.pattern(&argument.pat, type_is_float(&argument.ty));
        visit::visit_pat_type(self, argument);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let (Pat::Ident(_), Some(init)) = (&local.pat, &local.init) {
            self.pattern(&local.pat, value_is_float(&init.expr));
        }
        visit::visit_local(self, local);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::messages;

    #[test]
    fn float_bytes_and_times_are_named_wherever_they_are_born() {
        let code = "const GAP_US: f64 = 1.0;\nstruct S {\n    rate_bytes_per_s: Option<f64>,\n    loss_ratio: f64,\n}\n\
                    fn rtt_us(len_bytes: f32, n: u64) -> f64 {\n    let part_bytes = n as f64 * 0.5;\n    let share = 0.5;\n    0.0\n}\n";
        let cure =
            "make it an integer; floats are for ratios (units.rs multiplies before it divides)";
        let expected: String = [
            (1, "gap_us"),
            (3, "rate_bytes_per_s"),
            (6, "rtt_us"),
            (6, "len_bytes"),
            (7, "part_bytes"),
        ]
        .iter()
        .map(|(line, name)| format!("core/src/a.rs:{line}: `{name}` is a float; {cure}\n"))
        .collect();
        assert_eq!(
            messages(&check(&Tree::of(&[("core/src/a.rs", code)]))),
            expected
        );
    }

    #[test]
    fn ratios_may_be_floats_and_so_may_what_is_not_core() {
        let tree = Tree::of(&[
            (
                "core/src/a.rs",
                "fn f(busy_ratio: f64) -> f64 {\n    busy_ratio\n}\n",
            ),
            ("lab/src/a.rs", "fn rtt_us() -> f64 {\n    0.0\n}\n"),
        ]);
        assert_eq!(messages(&check(&tree)), "");
    }
}
