//! Every command-line option has docs where it is defined and an entry in docs/configuration.md.

use quote::ToTokens;
use syn::{Expr, ExprLit, Field, Item, Lit, Meta, Token, punctuated::Punctuated};

use super::Finding;
use crate::tree::{Tree, line_of};

const DOCUMENT: &str = "docs/configuration.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let document = tree.text(DOCUMENT).unwrap_or("");
    for source in tree.code("server") {
        for item in &source.code.items {
            let Item::Struct(options) = item else {
                continue;
            };
            for field in &options.fields {
                if let Some(name) = long_name(field) {
                    one(&source.path, field, &name, document, &mut findings);
                }
            }
        }
    }
    findings
}

fn one(path: &str, field: &Field, name: &str, document: &str, findings: &mut Vec<Finding>) {
    if !field
        .attrs
        .iter()
        .any(|attribute| attribute.path().is_ident("doc"))
    {
        let cure = "write a doc comment: effect, default and why, range";
        findings.push(Finding::new(
            path,
            line_of(field),
            format!("option --{name} has no docs"),
            cure,
        ));
    }
    if !mentions(document, &format!("--{name}")) && !mentions(document, &name.replace('-', "_")) {
        let what = format!("option --{name} is not in {DOCUMENT}");
        findings.push(Finding::new(
            path,
            line_of(field),
            what,
            "render it anew: `UPDATE_DOCS=1 cargo test -p ackpace`",
        ));
    }
}

/// Matches whole words only: `--listening` does not mention `--listen`.
fn mentions(document: &str, word: &str) -> bool {
    let part_of_a_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    document.match_indices(word).any(|(at, _)| {
        !document[..at].ends_with(part_of_a_word)
            && !document[at + word.len()..].starts_with(part_of_a_word)
    })
}

/// The name of `#[arg(long)]` or `#[arg(long = "name")]`.
fn long_name(field: &Field) -> Option<String> {
    for attribute in field
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("arg"))
    {
        let Ok(settings) =
            attribute.parse_args_with(Punctuated::<Setting, Token![,]>::parse_terminated)
        else {
            continue;
        };
        if let Some(setting) = settings.into_iter().find(|setting| setting.name == "long") {
            return match setting.value {
                Some(Expr::Lit(ExprLit {
                    lit: Lit::Str(name),
                    ..
                })) => Some(name.value()),
                _ => Some(field.ident.as_ref()?.to_string().replace('_', "-")),
            };
        }
    }
    None
}

/// One setting in `#[arg(..)]`: `long`, `long = "name"` or `range(1..)`.
struct Setting {
    name: String,
    value: Option<Expr>,
}

impl syn::parse::Parse for Setting {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Setting> {
        // A value may be any expression, and `Meta` accepts that too.
        match input.parse::<Meta>()? {
            Meta::NameValue(pair) => Ok(Setting {
                name: pair.path.to_token_stream().to_string(),
                value: Some(pair.value),
            }),
            other => Ok(Setting {
                name: other.path().to_token_stream().to_string(),
                value: None,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy;

    #[test]
    fn options_without_docs_are_named() {
        let code = "struct Options {\n    /// Waits.\n    #[arg(short, long, value_parser = |t: &str| p(t, 1..=2))]\n    idle_timeout: u8,\n    \
                    #[arg(long = \"rate-min\", num_args = 0..=1)]\n    rate: u8,\n    #[arg(value_name = \"DIR\")]\n    root: u8,\n}\n";
        let files = [
            ("server/src/options.rs", code),
            (DOCUMENT, "# C\n`idle_timeout`, --rate-minimum\n"),
        ];
        assert_eq!(
            tidy::checked(check, &files),
            "server/src/options.rs:5: option --rate-min has no docs; write a doc comment: effect, default and why, range\n\
             server/src/options.rs:5: option --rate-min is not in docs/configuration.md; \
             render it anew: `UPDATE_DOCS=1 cargo test -p ackpace`\n"
        );
    }
}
